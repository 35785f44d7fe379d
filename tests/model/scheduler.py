"""Interleaves drivers on one world, injects faults, and judges the end.

`random_run` is driven by bytes: 0 goes on with the running thread, so a failing example shrinks to
the few decisive switches and faults. Whatever happened, in the end an undisturbed driver must bring
every row to every sink; then sleeping drivers wake up, run to their end, and one more driver must
find all in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from seamark.model.errors import LostTransactionError
from seamark.protocol.points import Point

from .driver import Driver, Operator, Protocol, Restorer, Sweeper, Thread
from .world import ROWS_PER_EPOCH, Setup, Violation, World

POINTS = tuple(Point)
MAX_AWAKE, MAX_DRIVERS, MAX_ROWS, MAX_STEPS = 3, 8, 5 * ROWS_PER_EPOCH, 3000


class Run:
    """One history: the world, its drivers and their history."""

    def __init__(self, setup: Setup, protocol: Protocol | None = None) -> None:
        self.setup = setup
        self.protocol = protocol or Protocol()
        self._first = World(setup)
        self.drivers: list[Driver] = []
        self.trace: list[str] = []
        self.history: list[tuple[str, str]] = []
        self.crashed_at: set[Point] = set()
        self.paused_at: set[Point] = set()

    @property
    def world(self) -> World:
        """The job's current lineage: whoever starts now begins there."""
        return self._first.current()

    # --- the moves

    def start(self) -> Driver:
        driver = Driver(f"d{len(self.drivers)}", self.world, self.protocol)
        self.drivers.append(driver)
        self.note(driver, "start")
        return driver

    def accept_losses(self) -> Driver:
        """Let an operator accept what is lost, as soon as he is stepped."""
        return self._operate(Operator(f"o{len(self.drivers)}", self.world, self.protocol))

    def abort_lingering(self) -> Driver:
        """Let an operator abort what no driver can decide, as soon as he is stepped."""
        return self._operate(Sweeper(f"s{len(self.drivers)}", self.world, self.protocol))

    def restore(self) -> Driver:
        """Let a restore supersede the current lineage, as soon as it is stepped."""
        return self._operate(Restorer(f"r{len(self.drivers)}", self.world, self.protocol))

    def _operate(self, operator: Driver) -> Driver:
        self.drivers.append(operator)
        self.note(operator, "start")
        return operator

    def step(self, driver: Driver, thread: Thread) -> None:
        self.note(driver, thread.name)
        driver.step(thread)

    def crash(self, driver: Driver) -> None:
        self.note(driver, "crash")
        self.crashed_at |= driver.crash()

    def pause(self, driver: Driver) -> None:
        self.note(driver, "pause")
        driver.paused = True
        self.paused_at |= {point for thread in driver.threads for point in thread.at}

    def wake(self, driver: Driver) -> None:
        self.note(driver, "wake")
        driver.paused = False

    def runnable(self, driver: Driver) -> list[Thread]:
        if not driver.alive or driver.paused:
            return []
        return [t for t in driver.threads if t.ready()]

    def advance(self, driver: Driver, steps: int, *, prefer: str = "commit") -> int:
        """Let one driver take up to `steps` steps alone; return how many it took."""
        for taken in range(steps):
            ready = self.runnable(driver)
            if not ready:
                return taken
            self.step(driver, next((t for t in ready if t.name == prefer), ready[-1]))
        return steps

    def advance_to(self, driver: Driver, point: Point, *, prefer: str = "commit") -> bool:
        """Let one driver go on alone until a thread of it has just passed `point`, or it rests or
        has taken 100 steps; return whether it has."""
        for _ in range(100):
            if any(point in thread.at for thread in driver.threads):
                return True
            if not self.advance(driver, 1, prefer=prefer):
                return False
        return False

    def note(self, driver: Driver, what: str) -> None:
        self.history.append((driver.name, what))

    def story(self) -> str:
        """The history with runs of one thread's steps counted, for people."""
        lines: list[str] = []
        count = 0
        for i, (name, what) in enumerate(self.history):
            count += 1
            if i + 1 == len(self.history) or self.history[i + 1] != (name, what):
                lines.append(f"{name} {what}" + (f" x{count}" if count > 1 else ""))
                count = 0
        return f"{self.setup}: " + "; ".join(lines)

    # --- the end

    def finale(self) -> None:
        """Judge the history: see the module's docstring."""
        try:
            for driver in self.drivers:
                if driver.alive and not driver.paused:
                    self.crash(driver)
            self._final_driver()
            sleepers = [d for d in self.drivers if d.alive]
            for driver in sleepers:
                self.wake(driver)
            if sleepers or self.world.late:
                for driver in sleepers:
                    if self.advance(driver, MAX_STEPS) == MAX_STEPS:
                        raise Violation(f"{driver.name} never comes to rest")
                    if driver.alive:
                        self.crash(driver)
                while self.world.late:
                    self.world.land_late_call()
                self._final_driver()
        except Violation as violation:
            raise Violation(f"{violation}\n  after {self.story()}") from violation

    def _final_driver(self) -> None:
        self.world.available += ROWS_PER_EPOCH
        while True:
            driver = self.start()
            taken = self.advance(driver, MAX_STEPS)
            if driver.stopped_by is None:
                break
            if self.setup.losses and isinstance(driver.stopped_by, LostTransactionError):
                before = len(self.world.accepted)
                self.advance(self.accept_losses(), MAX_STEPS)
                if len(self.world.accepted) > before:
                    continue
            if not self.world.repair():
                raise Violation(
                    f"{driver.name}, undisturbed, stopped: {driver.stopped_by!r}"
                ) from driver.stopped_by
        if taken == MAX_STEPS:
            raise Violation(f"{driver.name}, undisturbed, never comes to rest")
        self.world.check_rows()
        driver.stop()
        self.advance(driver, MAX_STEPS)
        if driver.alive or driver.stopped_by:
            raise Violation(f"{driver.name} does not stop cleanly: {driver.stopped_by!r}")
        for uid, sink in self.world.sinks.items():
            if left := [t for t in sink.open() if t.generation <= driver.generation]:
                raise Violation(f"{uid}: transactions left open: {left}")


def random_run(setup: Setup, choices: Sequence[int], protocol: Protocol | None = None) -> Run:
    """Make one history out of `choices` (0 to 255 each) and judge it."""
    run = Run(setup, protocol)
    try:
        _random_part(run, iter(choices))
    except Violation as violation:
        raise Violation(f"{violation}\n  after {run.story()}") from violation
    run.finale()
    return run


def _random_part(run: Run, choices: Iterator[int]) -> None:
    driver = run.start()
    thread = driver.stream
    for choice in choices:
        ready = [(d, t) for d in run.drivers for t in run.runnable(d)]
        awake = [d for d in run.drivers if d.alive and not d.paused]
        asleep = [d for d in run.drivers if d.alive and d.paused]
        if (driver, thread) not in ready:
            if not ready:
                if choice == 0:
                    continue
                if asleep and choice % 2:
                    run.wake(asleep[choice // 2 % len(asleep)])
                elif run.world.available < MAX_ROWS and choice % 3 == 0:
                    run.world.available += ROWS_PER_EPOCH
                elif len(awake) < MAX_AWAKE and len(run.drivers) < MAX_DRIVERS:
                    driver = run.start()
                    thread = driver.stream
                continue
            driver, thread = ready[choice % len(ready)]
        if choice < 100:
            run.step(driver, thread)
        elif choice < 130:
            driver, thread = ready[choice % len(ready)]
            run.step(driver, thread)
        elif choice < 178:  # to a point, and then on with it, or off to another driver
            point = POINTS[choice % 16]
            run.advance_to(driver, point, prefer=thread.name)
            if choice < 162:
                run.pause(driver)
                if choice < 154 and len(run.drivers) < MAX_DRIVERS:
                    driver = run.start()
                    thread = driver.stream
            elif choice < 168:
                run.crash(driver)
        elif choice < 184:
            run.crash(driver)
        elif choice < 192:
            run.pause(driver)
        elif choice < 216:
            if asleep:
                driver = asleep[choice % len(asleep)]
                run.wake(driver)
                thread = driver.stream
        elif choice < 221:
            if len(awake) < MAX_AWAKE and len(run.drivers) < MAX_DRIVERS:
                driver = run.start()
                thread = driver.stream
        elif choice < 230:
            driver.reply = ("repeat", "lost", "late")[choice % 3]
            run.note(driver, f"reply {driver.reply}")
        elif choice < 235:
            driver.fail_task = True
            run.note(driver, "a task will fail")
        elif choice < 240:
            driver.stop()
            run.note(driver, "is asked to stop")
        elif choice < 246:
            run.world.available = min(run.world.available + ROWS_PER_EPOCH, MAX_ROWS)
        elif choice < 251:
            driver.sweep()
            run.note(driver, "sweeps")
        elif run.setup.restores and choice < 254:
            if len(awake) < MAX_AWAKE and len(run.drivers) < MAX_DRIVERS:
                driver = run.restore()
                thread = driver.stream
        elif run.setup.losses and choice == 253:
            if len(awake) < MAX_AWAKE and len(run.drivers) < MAX_DRIVERS:
                driver = run.accept_losses()
                thread = driver.stream
        elif run.setup.losses and run.setup.spool and choice == 252:
            run.world.damaged = not run.world.damaged
            run.note(driver, f"the spools are {'gone' if run.world.damaged else 'back'}")
        elif (run.setup.spool or run.setup.losses) and choice < 254:
            if lost := run.world.expire(choice):
                run.note(driver, f"{lost.id} of epoch {lost.epoch} times out")
        elif run.world.late:
            run.note(run.world.late[0][0], f"{run.world.late[0][1]} arrives")
            run.world.land_late_call()
