"""One continuous run of one app: rows keep coming while its driver is killed and started again.

A scenario owns its topics, its storage and its drivers' logs, below one directory. Use it as a
context manager: whatever happens, nothing of it is left running.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from seamark.verify import jobs
from tests.chaos import checker, workload
from tests.chaos.driver import REPOSITORY, Driver, wait_until
from tests.chaos.history import Pair, window_counts
from tests.chaos.outputs import FilesOutput, Output, SQLiteOutput
from tests.class_archive import JAVA_OPTIONS

HERE = Path(__file__).resolve().parent

RATE = 150.0
"""Rows a second. The input goes on while drivers come up: with more rows, the backlog of a slow
machine grows with every driver."""


class Scenario:
    """Common parts of all apps; `PassthroughScenario` and the others add their reads and checks."""

    program: str
    job: str
    launcher: Sequence[str] = (sys.executable,)

    def __init__(self, directory: Path, options: Mapping[str, Any], send: Any, rate: float) -> None:
        self.directory = directory
        self.storage = directory / "storage"
        self.job_directory = self.storage / self.job
        self.options = {"storage": str(self.storage), "interval": "200ms", **options}
        self.feeder = workload.Feeder(send, rate)
        self.environment: dict[str, str] = {}
        self.drivers: list[Driver] = []
        self._numbers = itertools.count(1)

    def __enter__(self) -> Any:
        self.feeder.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for driver in self.drivers:
            driver.kill_tree()
        self.feeder.abandon()

    def start(self, failpoint: str | None = None, **options: Any) -> Driver:
        """Start a driver; `options` add to the app's own."""
        log = self.directory / f"driver-{next(self._numbers):02}.log"
        everything = {**self.options, **options}
        program = HERE / self.program
        driver = Driver(program, everything, log, failpoint, self.environment, self.launcher)
        self.drivers.append(driver)
        return driver

    def die_at(self, failpoint: str, timeout_s: float = 240.0, **options: Any) -> Driver:
        """Start a driver; it must die, by its own SIGKILL, at `failpoint`."""
        driver = self.start(failpoint, **options)
        driver.die(timeout_s)
        return driver

    def die_at_each(
        self, failpoints: Sequence[str], then: str | None = None, timeout_s: float = 240.0
    ) -> Driver:
        """Start a driver for each failpoint, to die there; then start one for `then` and return it.
        Each comes up while the one before still lives, and is held before `job.run`."""
        driver, gate = self.held(failpoints[0])
        for following in [*failpoints[1:], then]:
            gate.touch()
            coming, gate = self.held(following)
            driver.die(timeout_s)
            driver = coming
        gate.touch()
        return driver

    def held(self, failpoint: str | None = None, **options: Any) -> tuple[Driver, Path]:
        """Start a driver; it waits before `job.run` for the returned path: Python and Spark take
        seconds to come up."""
        gate = self.directory / f"gate-{len(self.drivers)}"
        return self.start(failpoint, gate=str(gate), **options), gate

    def txn(self, verb: str, *options: str, code: int = 0) -> Any:
        """Run `seamark txn` with the app, as an operator does after its driver has died. Return its
        JSON, or what it says instead of it; AssertionError unless it ends with `code`."""
        command = [sys.executable, "-m", "seamark.cli.main", "txn", verb, *options, "--json"]
        done = subprocess.run(
            [*command, str(HERE / self.program), json.dumps(self.options)],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
                "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
                **self.environment,
            },
            cwd=self.directory,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr[-3000:])
        return json.loads(done.stdout) if code == 0 else done.stderr

    def drain(self, driver: Driver, timeout_s: float = 120.0) -> None:
        """End the input and wait until `driver` has made everything of it visible."""
        self.feeder.close()
        expected = self.expected()

        def drained() -> bool:
            if driver.returncode is not None:
                raise AssertionError(f"{driver} ended: {driver.returncode}\n{driver.tail()}")
            return self.visible() >= expected

        try:
            wait_until("the job has caught up", drained, timeout_s, pause_s=0.2)
        except AssertionError as error:
            raise AssertionError(
                f"{error}: {self.visible()} of {expected}\n{driver.tail()}"
            ) from None

    def require_settled(self) -> None:
        """Assert that all decisions of the last driver are committed, and nothing else is open."""
        for epoch in self.epochs_in("spark/commits") & self.epochs_in("epochs"):
            record = self.job_directory / "epochs" / str(epoch) / "committed.json"
            assert record.exists(), f"epoch {epoch} is decided and not committed"

    def outlive(self, driver: Driver, timeout_s: float = 60.0) -> Driver:
        """After a sink's server was killed and is back: return the driver at work: the next one,
        where the job gave up."""
        before = len(driver.epochs())
        wait_until(
            "the job commits again, or gives up",
            lambda: len(driver.epochs()) > before + 1 or driver.returncode is not None,
            timeout_s,
        )
        if driver.returncode is None:
            return driver
        assert driver.returncode > 0, driver.tail()  # a task met the dead server in each try
        driver.kill_tree()
        return self.start()

    def finish(self, driver: Driver, timeout_s: float = 120.0) -> None:
        """Drain, stop `driver` as an operator does, and judge everything."""
        self.drain(driver, timeout_s)
        driver.stop()
        checker.require_none(self.check())

    def epochs_in(self, log: str) -> set[int]:
        """Return the epochs in a directory of the job: ``epochs``, ``spark/commits``, …"""
        directory = self.job_directory / log
        if not directory.is_dir():
            return set()
        return {int(path.name) for path in directory.iterdir() if path.name.isdigit()}

    # --- of each app

    def expected(self) -> int:
        """How many rows the last sink shows in the end."""
        raise NotImplementedError

    def visible(self) -> int:
        """How many rows the last sink shows now."""
        raise NotImplementedError

    def check(self) -> list[checker.Anomaly]:
        """Judge the sinks' content, after the end of the last driver."""
        raise NotImplementedError


class KafkaScenario(Scenario):
    """Common parts of the apps from Kafka to Kafka."""

    def __init__(
        self,
        directory: Path,
        servers: str,
        *,
        rate: float = RATE,
        **options: Any,
    ) -> None:
        name = f"{self.job}-{uuid.uuid4().hex[:8]}"
        self.servers = servers
        self.input, self.output, self.prefix = f"{name}-in", f"{name}-out", name
        workload.create_topics(servers, self.input, self.output)
        super().__init__(
            directory,
            {
                "servers": servers,
                "input": self.input,
                "output": self.output,
                "prefix": self.prefix,
                "timeout": "4min",
                "transaction_timeout": "5min",
                **options,
            },
            workload.kafka_sender(servers, self.input),
            rate,
        )
        self.reader = workload.LiveReader(servers, self.output)

    def __enter__(self) -> Any:
        self.reader.start()
        return super().__enter__()

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)
        self.reader.close()

    def require_settled(self) -> None:
        super().require_settled()
        assert self.open_transactions() == []

    def open_transactions(self) -> list[str]:
        """Return the job's open transactions."""
        return workload.open_transactions(self.servers, self.prefix)


class PassthroughScenario(KafkaScenario):
    """Kafka to Kafka: every row once, a key's rows in order."""

    program = "app_passthrough.py"
    job = "passthrough"
    _looked_at = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._shown: set[tuple[str, str]] = set()

    def expected(self) -> int:
        return len(self.feeder.rows)

    def visible(self) -> int:
        # At-least-once, a doubled row must not stand for a row that is still to come.
        for row in self.reader.rows[self._looked_at :]:
            self._shown.add((row.key, row.value))
            self._looked_at += 1
        return len(self._shown)

    def drain(self, driver: Driver, timeout_s: float = 120.0) -> None:
        """A reader's own fetch of a partition may stand still for good after its broker was killed:
        then a new one has to see all, to each partition's end, where no open transaction is."""
        try:
            super().drain(driver, timeout_s)
        except AssertionError as error:
            final = workload.read_topic(self.servers, self.output)
            if len({(row.key, row.value) for row in final}) < self.expected():
                raise
            print(f"a new reader sees all; the one beside the job does not: {error}")

    def check(self) -> list[checker.Anomaly]:
        final = workload.read_topic(self.servers, self.output)
        return checker.check_log(self.output, self.feeder.rows, final, list(self.reader.rows))


class WindowsScenario(KafkaScenario):
    """Kafka to counts in Kafka and SQLite, and the rows in SQLite."""

    program = str(Path(jobs.__file__).with_name("windows.py"))
    job = "windows"

    def __init__(self, directory: Path, servers: str, **options: Any) -> None:
        self.database = directory / "sink.db"
        super().__init__(directory, servers, database=str(self.database), **options)

    def counts(self) -> list[Pair]:
        """Return the counts of the input."""
        return window_counts(self.feeder.counted, workload.WINDOW_MS)

    def expected(self) -> int:
        return len(self.counts()) + len(self.feeder.rows)

    def visible(self) -> int:
        windows, events = (workload.count_table(self.database, t) for t in ("windows", "events"))
        return min(len(self.reader.rows), windows) + events

    def check(self) -> list[checker.Anomaly]:
        final = workload.read_topic(self.servers, self.output)
        in_kafka = [Pair(s.key, s.value) for s in final]
        in_sqlite = self._table("windows")
        events = [Pair(*row) for row in self.feeder.rows]
        return [
            *checker.check_rows("Kafka counts", self.counts(), in_kafka),
            *checker.check_rows("SQLite counts", self.counts(), in_sqlite),
            *checker.check_rows("SQLite events", events, self._table("events")),
            *checker.check_same({"Kafka counts": in_kafka, "SQLite counts": in_sqlite}),
            *checker.check_shown("Kafka counts", final, list(self.reader.rows)),
        ]

    def _table(self, name: str) -> list[Pair]:
        return workload.read_table(self.database, name)


class SinksScenario(Scenario):
    """Files, or a topic of `servers`, into any sinks: the rows, or counts of them. Sinks with the
    same frame must agree."""

    program = "app_sinks.py"
    job = "sinks"

    def __init__(
        self,
        directory: Path,
        outputs: Sequence[Output],
        *,
        rate: float = RATE,
        servers: str | None = None,
        **options: Any,
    ) -> None:
        self.outputs = outputs
        if servers is None:
            incoming = str(directory / "incoming")
            send = workload.file_sender(Path(incoming))
        else:
            incoming = f"in-{uuid.uuid4().hex[:8]}"
            workload.create_topics(servers, incoming)
            send = workload.kafka_sender(servers, incoming)
            options["servers"] = servers
        sinks = [
            {
                "uid": o.uid,
                "frame": o.frame,
                "maker": o.maker,
                "arguments": o.arguments,
                "dead_letters": o.dead_letters,
            }
            for o in outputs
        ]
        super().__init__(
            directory,
            {"input": incoming, "sinks": sinks, **options},
            send,
            rate,
        )

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)
        for output in self.outputs:
            output.close()

    def require_settled(self) -> None:
        super().require_settled()
        last = max(self.epochs_in("epochs"))
        kept = {int(path.name) for path in (self.job_directory / "wal").glob("*/*")}
        assert all(epoch > last - 2 for epoch in kept), "rows of committed epochs are still kept"
        left = {output.uid: found for output in self.outputs if (found := output.left_open())}
        assert not left, f"left open: {left}"

    def expected(self) -> int:
        rows = self._rows()
        return sum(len(rows[output.frame]) for output in self.outputs)

    def visible(self) -> int:
        return sum(output.count() for output in self.outputs)

    def check(self) -> list[checker.Anomaly]:
        found = []
        for frame, expected in self._rows().items():
            outputs = [output for output in self.outputs if output.frame == frame]
            for output in outputs:
                found += output.check(expected)
            if len(outputs) > 1:
                found += checker.check_same({output.uid: output.rows() for output in outputs})
        return found

    def _rows(self) -> dict[str, list[Pair]]:
        """Return the final rows of each frame."""
        return {
            "rows": [Pair(*row) for row in self.feeder.rows],
            "counts": window_counts(self.feeder.counted, workload.WINDOW_MS),
        }


class EmbeddedScenario(SinksScenario):
    """Counts in SQLite and Parquet: no server at all."""

    def __init__(self, directory: Path, **options: Any) -> None:
        outputs = [SQLiteOutput(directory, "counts"), FilesOutput(directory, "counts")]
        super().__init__(directory, outputs, **options)
