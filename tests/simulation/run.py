"""One schedule: a world, its drivers, the events that befall them, and the judgement.

Whatever has happened, the drivers that are awake must then settle all input or end for a reason
that the protocol allows; an undisturbed driver must bring every row to every sink and stop
cleanly; and after all sleepers have woken up and run to their end, one more driver must find all as
it should be. Readers are watched all the time (`tests/model/world.py`).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seamark.model.errors import SeamarkError
from seamark.protocol.points import Point
from seamark.protocol.write_again import RewritePoint
from tests.model.driver import Protocol
from tests.model.world import ROWS_PER_EPOCH, Violation, World

from . import threads
from .driver import Driver, Restorer, config
from .machine import FAULTS, MAX_STEPS, Event, Machine, Process
from .reality import SPOOLED, TWO_PHASE, UPSERT, WRITE_AHEAD, Reality, Surroundings

POINTS = (
    *(point.value for point in Point if point is not Point.SUPERSEDED),
    *(point.value for point in RewritePoint),
    "rows-sent",
)
MAX_AWAKE, MAX_DRIVERS, MAX_ROWS = 3, 7, 6 * ROWS_PER_EPOCH
PATIENCE_S = 5000.0
"""For everything to settle once no more events come, on the machine's clock."""
SLEEPERS_S = 150.0
"""For a driver that woke up last to end, or to do all that it will ever do."""


@dataclass(frozen=True)
class Schedule:
    """All of a run's luck."""

    setup: Surroundings
    events: tuple[Event, ...]
    survivors: bool = True
    """Whether drivers that are awake at the end of the events are left to settle, not killed."""
    twins: bool = False
    """Whether two drivers start at once."""

    @property
    def simulation(self) -> type[Simulation]:
        """What plays it."""
        return Simulation

    def __str__(self) -> str:
        how = "two drivers start at once, " * self.twins + (
            "those awake in the end settle"
            if self.survivors
            else "those awake in the end are killed"
        )
        return f"{self.setup}\n{how}\n" + "\n".join(f"  {event}" for event in self.events)


def drawn(luck: random.Random, kinds: Mapping[str, float]) -> list[Event]:
    """Draw events of these kinds, each as frequent as it says."""
    gap = luck.choice((5, 15, 40))
    at, events = 0, []
    for kind in luck.choices(list(kinds), list(kinds.values()), k=luck.choice((10, 25, 50))):
        at += 1 + int(luck.expovariate(1 / gap))
        events.append(Event(at, kind, luck.randrange(60)))
    return events


def with_some(luck: random.Random, events: list[Event], kind: str, choices: int) -> list[Event]:
    """Draw a few events of one more kind, anywhere among these."""
    last, count = events[-1].at, luck.choice((1, 1, 2, 3))
    more = [Event(1 + luck.randrange(last), kind, luck.randrange(choices)) for _ in range(count)]
    return sorted([*events, *more], key=lambda event: event.at)


def schedule_of(seed: int) -> Schedule:
    """Return a seed's schedule: the frequency of each kind of event is drawn first, then events."""
    luck = random.Random(seed)
    at_most_once = luck.random() < 0.1
    spooled = not at_most_once and luck.random() < 0.25
    ways = [TWO_PHASE, TWO_PHASE, UPSERT, *([SPOOLED] * 3 if spooled else [])]
    if not at_most_once:
        ways.append(WRITE_AHEAD)
    setup = Surroundings(
        ways=tuple(luck.choice(ways) for _ in range(luck.choice((1, 2, 2, 3)))),
        tasks=luck.choice((1, 1, 2)),
        max_concurrent=luck.choice((1, 1, 2)),
        forgetful=luck.random() < 0.5,
        first_epoch=luck.choice((0, 0, 2)),
        at_most_once=at_most_once,
        uneven=luck.random() < 0.3,
        spool=spooled,
        deadlines=luck.random() < 0.2,
        restarts=luck.choice((0, 0, 2)),
        min_pause_s=luck.choice((0.0, 0.0, 0.0, 2.0)),
        timeout_s=luck.choice((600.0, 600.0, 30.0)),
    )
    kinds = {
        "switch": 20 * luck.random(),
        "crash": 3 * luck.random(),
        "pause": 3 * luck.random(),
        "crash at": 3 * luck.random(),
        "pause at": 5 * luck.random(),
        "wake": 4 * luck.random(),
        "start": luck.random(),
        "stop": luck.random(),
        "input": 2 * luck.random(),
        "task": luck.random(),
        "time-out": 2 * luck.random() * spooled,
        "land": luck.random(),
        **{kind: luck.random() * (luck.random() < 0.5) for kind in FAULTS},
    }
    events = drawn(luck, kinds)
    survivors, twins = luck.random() < 0.5, luck.random() < 0.15
    if not (at_most_once or spooled) and luck.random() < 0.3:
        events = with_some(luck, events, "restore", 60)
    return Schedule(setup, tuple(events), survivors, twins)


@dataclass
class Outcome:
    """What a run came to."""

    steps: int = 0
    drivers: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)


class Simulation:
    """One run of a schedule."""

    points = POINTS

    def __init__(self, schedule: Schedule, protocol: Protocol, *, traced: bool = False) -> None:
        self.schedule = schedule
        self.machine = Machine(schedule.events, self._happens)
        if traced:
            self.machine.trace = []
        self._first = self._made_world()
        self.drivers: list[Any] = []
        self._protocol = protocol
        self._config = config(schedule.setup)

    def _made_world(self) -> Any:
        return Reality(self.schedule.setup, self.machine)

    @property
    def world(self) -> World:
        """The lineage that goes on under the job's name."""
        return self._first.current()

    # --- events

    def _happens(self, event: Event) -> None:
        machine, choice = self.machine, event.choice
        thread = machine.current
        assert thread is not None
        driver = self._driver_of(thread.process)
        self._note(f"{event.kind} ({thread})")
        awake = [d for d in self.drivers if d.awake]
        asleep = [p for p in machine.processes if p.alive and p.paused]
        match event.kind:
            case "switch":
                machine.switch(choice)
            case "crash":
                self._crash(thread.process, choice)
            case "pause":
                if choice % 2:
                    self._start()
                self._pause(thread.process, choice)
            case "wake" if asleep:
                self._wake(asleep[choice % len(asleep)])
                machine.switch(choice)
            case "start" if len(awake) < MAX_AWAKE:
                self._start()
                machine.switch(choice)
            case "crash at" | "pause at":
                kind = event.kind.removesuffix(" at")
                point = self.points[choice % len(self.points)]
                machine.trap(point, Event(event.at, kind, choice))
            case "restore" if len(awake) < MAX_AWAKE:
                self._start(Restorer)
                machine.switch(choice)
            case "stop":
                driver.stop()  # type: ignore[attr-defined]
            case "input":
                self.world.available = min(self.world.available + ROWS_PER_EPOCH, MAX_ROWS)
            case "task":
                driver.fail_task = True  # type: ignore[attr-defined]
            case "time-out":
                self.world.expire(choice)
            case "land":
                self._land()

    def _note(self, what: str) -> None:
        if self.machine.trace is not None:
            self.machine.trace.append(f"      ** {what}")

    def _driver_of(self, process: Process) -> Process:
        return process

    def _crash(self, process: Process, choice: int) -> None:
        self.machine.crash(process)

    def _pause(self, process: Process, choice: int) -> None:
        self.machine.pause(process)

    def _wake(self, process: Process) -> None:
        process.paused = False

    def _land(self) -> None:
        """Let the oldest late call take effect; nobody hears an error any more."""
        if self.machine.late:
            with contextlib.suppress(SeamarkError, OSError):
                self.machine.late.pop(0)()

    def _start(self, kind: type[Driver] = Driver) -> Driver | None:
        return self._begin(kind) if len(self.drivers) < MAX_DRIVERS else None

    def _begin(self, kind: type[Driver] = Driver) -> Driver:
        driver = kind(f"d{len(self.drivers)}", self._first, self._config, self._protocol)
        self.drivers.append(driver)
        return driver

    # --- the run

    def play(self) -> None:
        """Raise Violation if a promise is broken."""
        self._start()
        if self.schedule.twins:
            self._start()
        while self.machine.events_left:
            done = self.machine.run(lambda: not self.machine.events_left, PATIENCE_S)
            self._judge()
            if not done:
                asleep = [p for p in self.machine.processes if p.alive and p.paused]
                awake = [d for d in self.drivers if d.awake]
                if awake:
                    break
                if asleep and len(self.drivers) % 2:
                    self._wake(asleep[0])
                elif self._start() is None:
                    break
        self.machine.drop_events()
        self._judge()
        self._finale()

    def _judge(self) -> None:
        if self._first.violations:
            raise self._first.violations[0]
        if self.machine.steps > MAX_STEPS:
            raise Violation(f"the run does not come to rest in {MAX_STEPS} steps")
        for process in self.machine.processes:
            if (error := process.uncaught) is not None:
                raise Violation(f"{process.name}: {type(error).__name__}: {error}") from error

    def _finale(self) -> None:
        awake = [d for d in self.drivers if d.awake and not isinstance(d, Restorer)]
        awake = [d for d in awake if d.world is self.world]
        if self.schedule.survivors and awake:
            newest = max(awake, key=lambda d: d.generation)
            if self._settle(newest):
                self._settled(newest)
        self._crash_awake()
        self._final_driver()
        sleepers = [p for p in self.machine.processes if p.alive]
        if sleepers or self.machine.late:
            for process in sleepers:
                self._wake(process)
                self.machine.run(lambda process=process: not process.alive, SLEEPERS_S)  # type: ignore[misc]
                self._judge()
                self._crash_awake()
            while self.machine.late:
                self._land()
            self._judge()
            self._final_driver()

    def _settled(self, driver: Driver) -> None:
        """Judge what a driver that has settled all input has left."""

    def _settle(self, driver: Driver) -> bool:
        """Let the driver settle all input, or end; return whether it has settled."""
        self.machine.run(lambda: driver.settled or not driver.alive, PATIENCE_S)
        self._judge()
        if driver.alive and not driver.settled:
            rows = self.world.available
            raise Violation(
                f"{driver.name} makes no progress: {rows} rows are there, {driver.told}"
            )
        return driver.alive

    def _crash_awake(self) -> None:
        for process in self.machine.processes:
            if process.awake:
                self.machine.bury(process)

    def _final_driver(self) -> None:
        self.world.available += ROWS_PER_EPOCH
        while True:
            driver = self._begin()
            if self._settle(driver):
                break
            if not self.world.repair():
                raise Violation(
                    f"{driver.name}, undisturbed, stopped: {driver.stopped_by!r}"
                ) from driver.stopped_by
        self.world.check_rows()
        driver.stop()
        self.machine.run(lambda: not driver.alive, PATIENCE_S)
        self._judge()
        if driver.alive or driver.stopped_by:
            raise Violation(f"{driver.name} does not stop cleanly: {driver.stopped_by!r}")
        assert isinstance(self.world, Reality)
        if left := self.world.left_open(driver.generation):
            raise Violation(f"transactions left open: {left}")

    def end(self) -> None:
        """Unwind what is left."""
        for process in self.machine.processes:
            self.machine.bury(process)

    @property
    def outcome(self) -> Outcome:
        ends: dict[str, int] = {}
        for driver in self.drivers:
            if driver.stopped_by is not None:
                name = type(driver.stopped_by).__name__
                ends[name] = ends.get(name, 0) + 1
        return Outcome(self.machine.steps, len(self.drivers), ends, self.machine.trace or [])


RIGHT = Protocol()


def play(schedule: Schedule, protocol: Protocol = RIGHT, *, traced: bool = False) -> Outcome:
    """Run one schedule and judge it; raises Violation. `threads.installed` must be in force."""
    simulation = schedule.simulation(schedule, protocol, traced=traced)
    with threads.on(simulation.machine):
        try:
            simulation.play()
        except Violation as violation:
            violation.trace = simulation.outcome.trace  # type: ignore[attr-defined]
            raise
        finally:
            simulation.end()
    return simulation.outcome
