"""One verification: a job under faults, fed by a generator and watched by concurrent readers.

Three things run beside each other: the generator, the readers (one or more threads a sink) and the
watch over the checkpoint. Each tells the checker of a stream, under one lock. The main thread does
the harm.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seamark.files.deadline import Deadline
from seamark.model.errors import PreflightError
from seamark.verify.checker import Checker
from seamark.verify.driver import DriverProcess
from seamark.verify.epochs import EpochWatch
from seamark.verify.faulty_job import FaultyJob, OverError
from seamark.verify.generator import KEYS, ROW_MS, WINDOW_MS, Generator, TopicProducer
from seamark.verify.history import UNKNOWN, Anomaly, Growing, Read
from seamark.verify.nemesis import DIED_AT, Nemesis
from seamark.verify.outcome import Event, Outcome
from seamark.verify.plan import Step
from seamark.verify.readers import WatchedSink
from seamark.verify.systems import Systems

ROWS, COUNTS = "rows", "counts"
"""The streams of rows: the produced rows themselves, and their counts by key and window."""
BACK_S, SLOWER = 240.0, 6
"""How long the job may take to commit an epoch after a fault, unless its first one took more than a
SLOWER-th of that: a slow machine is no fault of the job."""
DRAIN_S, FINAL_S = 300.0, 180.0
"""How long the last rows may take to be visible, and the last read of a sink."""
TRIES = 4
"""Drivers in a row that may end without an epoch."""
TELL_S = 10.0


@dataclass(frozen=True)
class Workload:
    """What is verified: how a driver is started, fed and read.

    directory: the job's own, below its storage. row: the key and value of a row's number. whole: a
    row of each sink is a source row, in the epoch of its source offset. ordered: sinks keep the
    order of each key.
    """

    name: str
    command: Sequence[str]
    directory: Path
    servers: str
    topic: str
    row: Callable[[int], tuple[str, str]]
    sinks: Sequence[WatchedSink]
    failpoints: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True
    ordered: bool = True
    rate: float = 300.0


class Trial:
    """Runs one workload under the steps of a plan. `say` gets lines of progress. `stop_at_first`:
    the first anomaly or failure ends the run."""

    def __init__(
        self,
        workload: Workload,
        systems: Systems,
        outcome: Outcome,
        say: Callable[[str], None],
        *,
        stop_at_first: bool = False,
    ) -> None:
        self._workload = workload
        self._outcome = outcome
        self._say = say
        self._watch = EpochWatch(workload.directory)
        self._job = FaultyJob(
            workload.command,
            workload.environment,
            systems.storage.parent,
            self._watch,
            outcome,
            say,
            stop_at_first=stop_at_first,
        )
        self._nemesis = Nemesis(systems, self._job)
        self._lock = threading.RLock()
        self._checkers = {
            stream: Checker(ordered=workload.ordered and stream == ROWS)
            for stream in dict.fromkeys([ROWS, *(sink.stream for sink in workload.sinks)])
        }
        self._places = Growing(UNKNOWN), Growing(UNKNOWN)
        self._placed = self._committed = 0
        self._producer = TopicProducer(workload.servers, workload.topic)
        self._generator = Generator(self._produce, workload.rate)
        self._over = threading.Event()

    def run(self, steps: Iterator[Step], minutes: float) -> None:
        """Do harm for `minutes`, then drain, stop and judge. The outcome has what was found. The
        rows of a job that does not come back are not judged in the end: it has failed."""
        watching = threading.Thread(target=self._look, name="watch", daemon=True)
        self._generator.start()
        watching.start()
        for sink in self._workload.sinks:
            sink.follow(self._take)
        try:
            self._job.start()
            begun = time.monotonic()
            back = self._come_back("start")
            self._job.patience_s = max(BACK_S, SLOWER * (time.monotonic() - begun))
            if back and self._harm(steps, Deadline(minutes * 60)):
                self._generator.close()
                self._drain()
                self._job.stop(120)
                self._over.set()
                watching.join()
                self._judge()
        except OverError:
            self._say("ended by the first finding")
        finally:
            self._over.set()
            self._generator.abandon()
            for sink in self._workload.sinks:
                sink.close()
            for driver in list(DriverProcess.living):
                driver.kill_tree()
            self._outcome.anomalies = {s: c.anomalies for s, c in self._checkers.items()}
            self._outcome.epochs = [self._watch.epochs[n] for n in sorted(self._watch.epochs)]
            self._outcome.counts["rows"] = self._generator.count
            self._outcome.ended_s = time.time()

    # --- the harm

    def _harm(self, steps: Iterator[Step], deadline: Deadline) -> bool:
        """Do steps until the deadline; False if the job does not come back. Raises OverError."""
        for step in steps:
            if step.pause_s > deadline.left_s():
                break
            self._job.over.wait(step.pause_s)
            self._job.check()
            self._say(f"fault {step.number}: {step}")
            begun_s, detail = time.time(), "not done"
            try:
                detail = self._nemesis.do(step)
            except (AssertionError, PreflightError) as error:
                self._job.fail(f"fault {step.number}, {step}: {error}")
                for other in DriverProcess.living - {self._job.driver}:
                    other.kill_tree()
            finally:
                self._outcome.events.append(Event("fault", str(step), begun_s, time.time(), detail))
                self._outcome.counts[f"fault: {step.fault}"] += 1
                self._outcome.counts["deaths at failpoints"] += detail.count(DIED_AT)
                self._say(f"fault {step.number}: {detail}")
            if not self._come_back(str(step)):
                return False
        self._job.check()
        return True

    def _come_back(self, after: str) -> bool:
        """Wait until the job commits epochs again, with a new driver where the last one ended."""
        begun_s = time.time()
        for _ in range(TRIES):
            if self._job.recovered(self._job.patience_s):
                self._outcome.events.append(
                    Event("recovery", f"after {after}", begun_s, time.time())
                )
                return True
            if self._job.driver.returncode is None:
                waited = f"no epoch for {self._job.patience_s:.0f} s after {after}"
                self._job.fail(f"{waited}: {self._job.driver.tail(15)}")
                return False
            self._job.ended()
            self._job.start()
        self._job.fail(f"{TRIES} drivers in a row ended after {after}: {self._job.driver.tail(15)}")
        return False

    # --- rows go in and come out

    def _produce(self, first: int, end: int) -> None:
        if COUNTS in self._checkers:
            with self._lock:
                counts = self._checkers[COUNTS]
                windows = (end * ROW_MS // WINDOW_MS + 1) * KEYS
                counts.produced(np.arange(counts.count, windows) % KEYS)
        self._send(first, [self._workload.row(number) for number in range(first, end)])

    def _send(self, first: int, rows: Sequence[tuple[str, str]]) -> None:
        numbers = np.arange(first, first + len(rows))
        with self._lock:
            self._checkers[ROWS].produced(numbers % KEYS)
            for column in self._places:
                column.grow(first + len(rows))
        places = self._producer.send(rows)
        with self._lock:
            for column, values in zip(self._places, places, strict=True):
                column.values[numbers] = values
            self._checkers[ROWS].acknowledge(numbers)

    def _take(self, stream: str, read: Read) -> None:
        with self._lock:
            self._outcome.counts["reads"] += 1
            self._report(self._checkers[stream].read(read))

    def _look(self) -> None:
        """Watch the checkpoint, and tell the progress."""
        said = time.monotonic()
        while not self._over.wait(0.1):
            self._learn()
            if time.monotonic() > said + TELL_S:
                said = time.monotonic()
                with self._lock:
                    self._report(self._checkers[ROWS].undecided())
                    anomalies = sum(len(c.anomalies) for c in self._checkers.values())
                self._say(
                    f"{time.time() - self._outcome.begun_s:.0f} s: {self._generator.count:,} rows, "
                    f"{len(self._watch.epochs)} epochs, {self._outcome.counts['reads']:,} reads, "
                    f"{anomalies or 'no'} anomalies"
                )

    def _learn(self) -> None:
        new = self._watch.look()
        if not new or not self._workload.whole:
            return
        with self._lock:
            checker = self._checkers[ROWS]
            for epoch in new:
                checker.decided(epoch.number, epoch.decided_s)
            partitions, offsets = (column.values[self._placed :] for column in self._places)
            topic = self._workload.topic
            epochs = self._watch.epochs_of(topic, partitions, offsets)
            epochs[offsets == UNKNOWN] = UNKNOWN
            checker.place(self._placed + np.arange(len(epochs)), epochs)
            self._placed += _first(epochs == UNKNOWN)
            # Epochs are committed in order: a committed one proves all before it, missed or not.
            partitions, offsets = (column.values[self._committed :] for column in self._places)
            before = EpochWatch.is_before(new[-1], topic, partitions, offsets)
            checker.committed(self._committed + np.flatnonzero(before), new[-1].committed_s)
            self._committed += _first(~before)

    def _report(self, anomalies: Sequence[Anomaly]) -> None:
        for anomaly in anomalies:
            self._say(str(anomaly))
            self._job.found()

    # --- the end

    def _drain(self) -> None:
        """Wait until every row is visible, or nothing more comes."""
        if COUNTS in self._checkers:
            self._close_windows()
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and not self._job.over.is_set():
            if self._job.driver.returncode is not None:
                self._job.ended()
                self._job.start()
            with self._lock:
                if all(c.complete([s.name for s in self._workload.sinks if s.stream == stream])
                       for stream, c in self._checkers.items()):  # fmt: skip
                    return
            time.sleep(0.5)
        self._say("not everything was visible in the end")

    def _close_windows(self) -> None:
        """One more row, far ahead: the watermark passes every window. Then all counts are known."""
        count = self._generator.count
        key, value = self._workload.row(count)
        ahead = value.rpartition(",")[0] + f",{count * ROW_MS + 10 * WINDOW_MS}"
        self._send(count, [(key, ahead)])
        with self._lock:
            counts, rows = self._checkers[COUNTS], np.arange(count)
            windows = rows * ROW_MS // WINDOW_MS * KEYS + rows % KEYS
            times = np.bincount(windows, minlength=counts.count)
            expected = np.flatnonzero(times)
            counts.acknowledge(expected, times[expected])

    def _judge(self) -> None:
        self._learn()
        for sink in self._workload.sinks:
            sink.close()
            for error in sink.failed():
                self._job.fail(f"{sink.name}: a reader has failed: {error!r}")
        for stream, checker in self._checkers.items():
            finals = {}
            for sink in self._workload.sinks:
                if sink.stream == stream:
                    try:
                        finals[sink.name] = sink.final(FINAL_S)
                    except AssertionError as error:
                        self._job.fail(str(error))
            with self._lock:
                self._report(checker.finish(finals))


def _first(where: NDArray[np.bool_]) -> int:
    """Return the first place that is true; the length without one."""
    return int(np.append(where, True).argmax())
