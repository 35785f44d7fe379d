"""A machine whose threads, clock and luck belong to a schedule.

Each thread is a greenlet; one runs at a time. `step` stands at every moment that the outside could
see (a call, a lock): it goes on at once, unless the schedule has an event for this very step. A
thread that waits gives way to the next one that can run; time passes only when none can. So a run
is a function of its schedule.

`threads.py` gives the coordinator's modules this machine in place of `threading`, `time`, `queue`.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

T = TypeVar("T")
START_S = 1000.0
TICK_S = 1e-6
"""The shortest wait: a clock that stands still would let a loop spin for ever."""
MAX_STEPS = 60_000


@dataclass(frozen=True)
class Event:
    """Something that happens at step `at` of the run; `choice` picks among the possibilities."""

    at: int
    kind: str
    choice: int = 0

    def __str__(self) -> str:
        return f"{self.kind}@{self.at}:{self.choice}"


FAULTS = ("refused", "reply lost", "slow", "slow reply", "late", "repeated")
"""Events for the next call to the outside: it fails before its effect, or after it; it takes long
before its effect, or after it; it is given up and takes effect some day, even after its process has
died; its reply is lost and its client repeats it, if the call is of that kind."""
SHORT_S, LONG_JUMP = 0.2, 56
"""A switch may let a pause below SHORT_S pass; a longer one only if its choice is LONG_JUMP."""
SLOW_S = (0.01, 1.0, 20.0, 100.0, 700.0)


class Thread:
    """One thread of a process. Waiting, it can go on when `ready()` is true or `wake_at` comes."""

    def __init__(
        self, process: Process, name: str, body: Callable[[], None], hub: greenlet
    ) -> None:
        self.process = process
        self.name = name
        self.ready: Callable[[], object] | None = None
        self.wake_at = 0.0
        self.greenlet = greenlet(body, parent=hub)

    def can_run(self, now: float) -> bool:
        return now >= self.wake_at or bool(self.ready is not None and self.ready())

    def __str__(self) -> str:
        return f"{self.process.name} {self.name}"


class Process:
    """Threads that die together and sleep together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.threads: list[Thread] = []
        self.alive = True
        self.paused = False
        self.uncaught: BaseException | None = None
        self.idle_calls: list[Any] = []
        self.sends: dict[Any, Any] = {}

    @property
    def awake(self) -> bool:
        return self.alive and not self.paused


class EndlessError(AssertionError):
    """The run takes more steps than any healthy one."""


class Machine:
    """See the module's docstring. `happens` is called with an event that is no fault."""

    def __init__(self, events: Sequence[Event], happens: Callable[[Event], None]) -> None:
        self.now = START_S
        self.steps = 0
        self.processes: list[Process] = []
        self.late: list[Callable[[], Any]] = []
        self.trace: list[str] | None = None
        self.calls: list[tuple[int, str]] | None = None
        """The step and the name of each call so far, if a list is given."""
        self.current: Thread | None = None
        self.disk: Any = None
        self.world: Any = None
        self._events = list(reversed(events))
        self._next_at: float = self._events[-1].at if self._events else math.inf
        self._happens = happens
        self._fault: Event | None = None
        self._traps: dict[str, Event] = {}
        self._forced: int | None = None
        self._hub = getcurrent()
        self.halted = False
        """Whether the run is judged already."""

    # --- called by threads

    def step(self, name: str) -> None:
        """Let the outside see this moment: an event may happen here."""
        thread = self.current
        if thread is None:
            return
        if not thread.process.alive:
            raise GreenletExit
        self.steps += 1
        if self.trace is not None:
            self.trace.append(f"{self.steps:5} {self.now - START_S:9.3f} {thread}: {name}")
        if self.steps >= self._next_at:
            self._event()
        elif self.steps > MAX_STEPS:
            self.halted = True
            raise EndlessError(f"{self.steps} steps, now at {thread}: {name}")

    def reached(self, point: str) -> None:
        """Let the outside see a named point of the protocol; `trap` may wait there."""
        self.step(f"failpoint {point}")
        if (event := self._traps.pop(point, None)) is not None:
            self._happens(event)

    def trap(self, point: str, event: Event) -> None:
        """Let `event` happen when the next thread reaches this point."""
        self._traps[point] = event

    def call(
        self, name: str, effect: Callable[[], T], *, changes: bool = False, repeats: bool = False
    ) -> T:
        """Make a call to the outside: its effect happens at one moment, the reply comes later.

        `repeats`: its client repeats it after a lost reply. Raises what `effect` raises, and
        OSError if the schedule says so.
        """
        self.step(name)
        if self.calls is not None:
            self.calls.append((self.steps, name))
        fault = self._fault
        if fault is None:
            answer = effect()
            self.step(name + ": reply")
            if self._fault is None:
                return answer
            fault, self._fault = self._fault, None
            if fault.kind == "slow reply":
                self.sleep(SLOW_S[fault.choice % len(SLOW_S)])
                return answer
            if fault.kind == "repeated" and repeats:
                return effect()
            raise OSError(errno.EIO, f"the reply to {name} was lost")
        self._fault = None
        self._note(f"{fault.kind}: {name}")
        if fault.kind == "late" and changes:
            self.late.append(effect)
            raise OSError(errno.ETIMEDOUT, f"{name} was given up, and may still arrive")
        if fault.kind == "refused" or fault.kind == "late":
            raise OSError(errno.EIO, f"{name} was refused")
        if fault.kind == "slow":
            self.sleep(SLOW_S[fault.choice % len(SLOW_S)])
        answer = effect()
        if fault.kind == "slow reply":
            self.sleep(SLOW_S[fault.choice % len(SLOW_S)])
        elif fault.kind == "repeated" and repeats:
            answer = effect()
        elif fault.kind in ("reply lost", "repeated"):
            raise OSError(errno.EIO, f"the reply to {name} was lost")
        return answer

    def block(self, ready: Callable[[], object] | None, timeout_s: float | None = None) -> bool:
        """Wait until `ready()`, or for `timeout_s`; return whether it is ready."""
        thread = self.current
        assert thread is not None
        if not thread.process.alive:
            raise GreenletExit
        if ready is not None and ready():
            return True
        thread.ready = ready
        thread.wake_at = math.inf if timeout_s is None else self.now + max(timeout_s, TICK_S)
        self._give_way()
        return bool(ready is not None and ready())

    def sleep(self, seconds: float) -> None:
        self.block(None, seconds)

    def spawn(self, process: Process, name: str, body: Callable[[], None]) -> Thread:
        """Start a thread of `process`."""

        def run() -> None:
            try:
                body()
            except GreenletExit:
                pass
            except BaseException as error:
                process.uncaught = process.uncaught or error
                self.halted = True
            finally:
                thread.ready, thread.wake_at = None, math.inf
                process.threads.remove(thread)

        thread = Thread(process, name, run, self._hub)
        process.threads.append(thread)
        if process not in self.processes:
            self.processes.append(process)
        return thread

    def crash(self, process: Process) -> None:
        """kill -9: none of its threads takes another step."""
        process.alive = False
        if self.current is not None and self.current.process is process:
            self._give_way()

    def pause(self, process: Process) -> None:
        """The process sleeps from here until somebody sets `paused` to False."""
        process.paused = True
        if self.current is not None and self.current.process is process:
            self._yield()

    def switch(self, choice: int) -> None:
        """Give way to another thread of any process that can run, or to the next alarm clock."""
        self._forced = choice
        self._yield()

    def fail_next_call(self, event: Event) -> None:
        self._fault = event

    def _yield(self) -> None:
        """Give way, and be ready at once."""
        if self.current is not None:
            self.current.ready, self.current.wake_at = None, self.now
            self._give_way()

    def _give_way(self) -> None:
        thread = self.current
        self._hub.switch()
        self.current = thread
        assert thread is not None
        if not thread.process.alive:
            raise GreenletExit

    def _event(self) -> None:
        event = self._events.pop()
        self._next_at = self._events[-1].at if self._events else math.inf
        if event.kind in FAULTS:
            self._fault = event
        else:
            self._happens(event)

    def _note(self, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.steps:5} {self.now - START_S:9.3f} {self.current}: ** {what}")

    # --- called by the run

    @property
    def events_left(self) -> bool:
        return bool(self._events)

    def drop_events(self) -> None:
        """No more luck, good or bad."""
        self._events.clear()
        self._traps.clear()
        self._next_at = math.inf
        self._fault = None

    def run(self, over: Callable[[], bool], within_s: float = math.inf) -> bool:
        """Run threads until `over()`, asked whenever a thread gives way. Return False if nothing
        can run any more, or `within_s` seconds have passed."""
        deadline = self.now + within_s
        last: Thread | None = None
        while not self.halted and not over():
            thread = self._pick(last)
            if thread is None or self.now > deadline:
                return over()
            thread.ready, thread.wake_at = None, self.now
            self.current = last = thread
            try:
                thread.greenlet.switch()
            finally:
                self.current = None
            if not thread.process.alive:
                self.bury(thread.process)
            elif not thread.process.threads:
                thread.process.alive = False
        return True

    def bury(self, process: Process) -> None:
        """Unwind the threads of a dead process: each call that they make on the way fails."""
        process.alive = False
        for thread in list(process.threads):
            for _ in range(100):
                if thread.greenlet.dead:
                    break
                self.current = thread
                thread.greenlet.throw(GreenletExit)
            self.current = None
            if thread in process.threads:
                process.threads.remove(thread)

    def _pick(self, last: Thread | None) -> Thread | None:
        """Return the thread to run next, and let time pass to its alarm clock if none can run."""
        now, forced = self.now, self._forced
        if forced is None and last is not None and last.process.awake and last.can_run(now):
            return last
        self._forced = None
        can_run: list[Thread] = []
        first: Thread | None = None
        first_at = math.inf
        for process in self.processes:
            if not process.alive or process.paused:
                continue
            for thread in process.threads:  # `can_run`, without the calls: most of a run is here
                wake_at, ready = thread.wake_at, thread.ready
                if now >= wake_at or (ready is not None and ready()):
                    if forced is None:
                        return thread
                    can_run.append(thread)
                elif wake_at < first_at:
                    first, first_at = thread, wake_at
        if forced is not None:
            if last in can_run and len(can_run) > 1:
                can_run.remove(last)
            if first is not None and (forced >= LONG_JUMP or first_at - now < SHORT_S):
                can_run.append(first)
        if forced is None or not can_run:
            if first is not None:
                self.now = first_at
            return first
        chosen = can_run[forced % len(can_run)]
        self.now = max(now, chosen.wake_at) if chosen is first else now
        return chosen
