"""The job of a verification: its drivers, one after the other, and what must not happen to it.

`nemesis.py` does it harm; `trial.py` feeds it and watches its sinks.
"""

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from seamark.files.deadline import Deadline
from seamark.verify.driver import DriverProcess
from seamark.verify.epochs import EpochWatch
from seamark.verify.outcome import Event, Outcome

START_S = 600.0
"""How long the job may take to commit its first epoch."""
UNPROVED, UNPROVED_S = "its outcome cannot be proved", 30.0
"""A driver's word, and how long it may then wait for proof: nobody else ends transactions."""
VOID = "DecisionVoidError"
"""What a driver may end with, if the next one takes the decision back."""
FATAL = (
    "LostTransactionError", "DecisionMissingError", "CheckpointError", "CorruptRecordError",
    "committed already, and not by a driver of this job",
)  # fmt: skip
"""Forbidden to a job here: nobody has deleted a file, stayed away for long, or ended transactions.
"""


class OverError(Exception):
    """The run is over: the first finding has ended it."""


def fatal_in(driver: DriverProcess) -> list[str]:
    """Return what is forbidden and stands in the driver's output."""
    return [name for name in FATAL if name in driver.text()]


class FaultyJob:
    """The job that the harm is done to; its drivers' logs go into `logs`. Every method may raise
    OverError, as `check` does. `stop_at_first`: the first finding ends the run."""

    driver: DriverProcess

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        logs: Path,
        watch: EpochWatch,
        outcome: Outcome,
        say: Callable[[str], None],
        *,
        stop_at_first: bool,
    ) -> None:
        self._command, self._environment, self._logs = command, environment, logs
        self._watch, self._outcome, self._say = watch, outcome, say
        self._stop_at_first = stop_at_first
        self._numbers = itertools.count(1)
        self._void = False
        self.patience_s = START_S
        """How long it may take to commit an epoch, and a superseded or stopped driver to end."""
        self.over = threading.Event()
        """Set when the first finding has ended the run."""

    def start(
        self, failpoint: str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the next driver; it becomes `driver`."""
        self.check()
        log = self._logs / f"driver-{next(self._numbers):03}.log"
        settings = {**self._environment, **(environment or {})}
        self.driver = DriverProcess(self._command, log, failpoint, settings)
        self._outcome.counts["driver starts"] += 1

    def stop(self, patience_s: float) -> None:
        """Ask the driver to end: it must end well, within the patience."""
        driver = self.driver
        if driver.returncode is None:
            driver.send(signal.SIGTERM)
            with contextlib.suppress(AssertionError):  # said below: it has not ended
                driver.wait(patience_s)
        if driver.returncode != 0:
            self.fail(f"{driver} ended with {driver.returncode} after SIGTERM\n{driver.tail(15)}")
        driver.kill_tree()

    def aim(self, seconds: float) -> None:
        """Return the given seconds after the plan of the next epoch."""
        self.check()
        known = self._watch.planned()
        Deadline(5).wait_for(lambda: self._watch.planned() > known, 0.01)
        time.sleep(seconds)

    def recovered(self, timeout_s: float) -> bool:
        """Wait until the driver has committed an epoch that began after this call; False if it
        ended, or the time is over."""
        begun_s, deadline = time.time(), time.monotonic() + timeout_s
        unproved = time.monotonic() + UNPROVED_S
        while self.driver.returncode is None and time.monotonic() < deadline:
            self.check()
            newest = self._watch.newest
            if newest is not None and newest.planned_s > begun_s:
                self._void = False
                return True
            if time.monotonic() > unproved and UNPROVED in self.driver.text():
                self.fail(f"{self.driver}: {UNPROVED}\n{self.driver.tail(15)}")
                unproved = deadline
            time.sleep(0.05)
        return False

    def epochs_done(self) -> int:
        """Return how many epochs have been committed."""
        return len(self._watch.epochs)

    def ended(self) -> None:
        """Note that the driver has ended by itself, and end what it has left. It may give up, if
        the next driver goes on."""
        driver = self.driver
        driver.kill_tree()
        self._outcome.counts[f"drivers that ended with {driver.returncode}"] += 1
        now = time.time()
        self._outcome.events.append(
            Event("driver", f"{driver} ended with {driver.returncode}", now, now)
        )
        for name in fatal_in(driver):
            self.fail(f"{driver}: {name}\n{driver.tail(15)}")
        before, self._void = self._void, VOID in driver.text()
        if before and self._void:
            self.fail(f"{driver}: {VOID}, once more\n{driver.tail(15)}")

    def check(self) -> None:
        """Raise OverError if the run is over."""
        if self.over.is_set():
            raise OverError

    def fail(self, text: str) -> None:
        """Note something that must not happen."""
        self._outcome.failures.append(text)
        self.found()
        self._say(f"FAILED: {text}")

    def found(self) -> None:
        """Note the time of a finding, and end the run if it is to end with the first one."""
        self._outcome.first_s = self._outcome.first_s or time.time()
        if self._stop_at_first:
            self.over.set()
