"""A job without Spark, its sink with a spool: real coordinator, directory and sink; the decision is
a file written by `run_epoch`. ``python -m tests.integration.spool_kit`` recovers one."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from seamark.api.config import CheckpointConfig
from seamark.checkpoint import spool
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.store import CheckpointStore
from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.contracts.sink import TwoPhaseCommitSink, WriterContext
from seamark.files.local import LocalDirectory
from seamark.model import failpoints

UID = "out"


class SpooledJob:
    """One job's directory and its sink."""

    def __init__(self, directory: Path, sink: TwoPhaseCommitSink[Any]) -> None:
        self.directory = directory
        self.sink = sink

    def driver(self) -> Coordinator:
        """Start a driver; it settles the transactions of earlier ones."""
        store = CheckpointStore(
            LocalDirectory(self.directory), LocalDirectory(self.directory / "spark")
        )
        job = CheckpointedJob("job", {UID: self.sink}, store, CheckpointConfig(interval=1))
        driver = Coordinator(job)
        driver.start()
        return driver

    def run_epoch(self, epoch: int, parts: Sequence[pa.RecordBatch]) -> list[Any]:
        """Let a driver flush and store an epoch and die, and Spark plan and decide it; return the
        sink's own committables."""
        self._log("offsets", epoch)
        driver = self.driver()
        assert driver.identity is not None
        driver.begin_epoch(epoch)
        reports, committables = [], []
        for partition, batch in enumerate(parts):
            at = WriterContext(
                driver.identity.job_id, UID, driver.generation, epoch, partition, 0, epoch - 1,
                spool_uri=driver._store.spool_uri(UID),
            )  # fmt: skip
            writer = spool.keeping(self.sink, self.sink.create_writer(at), at)
            writer.write(batch)
            (spooled,) = writer.prepare_commit()
            committables.append(spooled.committable)
            dumped = spool.dump(self.sink, spooled)
            part = SinkReport(batch.num_rows, (dumped,))
            reports.append(TaskReport(partition, 0, time.time(), time.time(), {UID: part}))
        driver.store_epoch(epoch, reports, retried=False)
        driver.fail(RuntimeError("as if killed"))
        self._log("commits", epoch)
        return committables

    def _log(self, name: str, epoch: int) -> None:
        log = self.directory / "spark" / name
        log.mkdir(parents=True, exist_ok=True)
        (log / str(epoch)).write_text("v1\n{}")

    def recover(self, failpoint: str = "") -> int:
        """Let a driver in a process of its own settle everything; return its exit status."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.integration.spool_kit"],
            input=pickle.dumps((self.directory, self.sink)),
            env={**os.environ, failpoints.VARIABLE: failpoint},
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
        return done.returncode

    def rewrites(self, epoch: int) -> list[Path]:
        """Return the records of rewrites, oldest first."""
        found = (self.directory / f"rewritten/{UID}/{epoch}").glob("*.json")
        return sorted(found, key=lambda path: int(path.name.split(".")[-2]))


def lost_and_written_again(
    job: SpooledJob,
    batch: Callable[[range], pa.RecordBatch],
    visible: Callable[[], list[int]],
    open_transactions: Callable[[], int],
    roll_back: Callable[[Any], None],
) -> None:
    """Roll one of two decided transactions back, and then its first rewrite, as an operator does;
    kill drivers at each point of writing the rows again; judge a reader's view."""
    lost, _ = job.run_epoch(0, [batch(range(10)), batch(range(10, 20))])
    roll_back(lost)
    assert visible() == []
    assert job.recover("rewrite-prepared") == -signal.SIGKILL
    assert job.rewrites(0) == []
    assert job.recover("rewrite-recorded") == -signal.SIGKILL
    (record,) = job.rewrites(0)
    roll_back(recorded(job, record))
    assert job.recover("rewrite-recorded") == -signal.SIGKILL
    assert len(job.rewrites(0)) == 2, "a rewrite that is lost itself has a successor"
    assert job.recover("rewrite-committed") == -signal.SIGKILL
    assert job.recover() == 0
    assert sorted(visible()) == list(range(20))
    assert open_transactions() == 0
    assert (job.directory / "epochs/0/committed.json").exists()
    assert not (job.directory / f"wal/{UID}/0").exists()
    assert job.recover() == 0
    assert sorted(visible()) == list(range(20))


def recorded(job: SpooledJob, record: Path) -> Any:
    """Return the sink's committable named by a rewrite's record."""

    body = json.loads(record.read_bytes())["body"]
    return job.sink.load(base64.b64decode(body["committable"]))


def main() -> None:
    job = SpooledJob(*pickle.load(sys.stdin.buffer))
    job.driver().finish()


if __name__ == "__main__":
    main()
