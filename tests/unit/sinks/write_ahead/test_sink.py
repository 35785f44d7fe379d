"""How: real files in a directory, and senders directed by a test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark import EpochToken, SendRefusedError, WriteAheadSink
from seamark.contracts.sink import AbortOutcome, CommitOutcome, SinkContext, WriterContext
from seamark.model.errors import (
    CommitFailedError,
    ConfigurationError,
    CorruptRecordError,
    WriteRefusedError,
)
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Column
from seamark.sinks.write_ahead.epoch_spool import EpochSpool, SpooledRows
from seamark.verify.conformance.steps import answered

COMMITTED, LOST, RETRY = CommitOutcome.COMMITTED, CommitOutcome.LOST, CommitOutcome.RETRY


@dataclass(frozen=True)
class Told(WriteAheadSink):
    """Calls the next of `steps`, if there is one, after it has read everything."""

    steps: list[Callable[[], None]] = field(default_factory=list)
    got: list[tuple[str, list[int]]] = field(default_factory=list)
    send_timeout: Any = "10s"
    idempotent: bool = False

    def describe(self) -> str:
        return "told"

    def send(self, batches: Iterator[pa.RecordBatch], token: EpochToken) -> None:
        rows = [n for batch in batches for n in batch["n"].to_pylist()]
        self.got.append((str(token), rows))
        if self.steps:
            self.steps.pop(0)()


def fails(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


@dataclass
class Job:
    directory: Path
    sink: Told
    job_id: str = "c0ffee"

    def __post_init__(self) -> None:
        self.directory.mkdir(exist_ok=True)
        self.spool_uri = (self.directory / "wal/out").as_uri()
        self.committer = self.sink.create_committer(self.context())
        self.committer.preflight()

    def context(self) -> SinkContext:
        return SinkContext(self.job_id, "j", "out", 1, 1.0, spool_uri=self.spool_uri)

    def write(self, numbers: list[int], epoch: int = 0, partition: int = 0) -> SpooledRows:
        at = WriterContext(
            self.job_id, "out", 1, epoch, partition, 0, epoch - 1, spool_uri=self.spool_uri
        )
        writer = self.sink.create_writer(at)
        writer.write(pa.record_batch({"n": pa.array(numbers, pa.int64())}))
        (committable,) = writer.prepare_commit()
        return self.sink.load(self.sink.dump(committable))

    def file(self, file: SpooledRows) -> Path:
        (path,) = (self.directory / "wal/out").glob(f"{file.handle}*")
        return path


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "job", Told())


def test_an_epoch_is_sent_once_with_all_tasks_rows_and_its_token(job: Job) -> None:
    second, first = job.write([3, 4], epoch=7, partition=1), job.write([1, 2], epoch=7)
    assert list(job.committer.commit([second, first])) == [COMMITTED] * 2
    assert list(job.committer.commit([first, second])) == [CommitOutcome.ALREADY_COMMITTED] * 2
    assert job.sink.got == [("c0ffee-out-7", [1, 2, 3, 4])]


def test_what_passes_is_tried_again_with_the_same_token(job: Job) -> None:
    job.sink.steps.extend([fails(OSError("away")), fails(KeyError("odd"))])
    file = job.write([1])
    for error in ("OSError: away", "KeyError: 'odd'"):
        with pytest.raises(ConnectionError, match=f"epoch 0 could not be sent: {error}"):
            job.committer.commit([file])
    assert job.committer.commit([file]) == [COMMITTED]
    assert job.sink.got == [("c0ffee-out-0", [1])] * 3


def test_what_does_not_pass_stops_the_job_and_keeps_the_rows(job: Job) -> None:
    class Rude(Exception):  # noqa: N818 - as a client library may name it
        pass

    object.__setattr__(job.sink, "permanent_errors", (Rude,))
    job.sink.steps.extend(
        [fails(Rude("no such table")), fails(SendRefusedError("too many columns"))]
    )
    file = job.write([1])
    place = r"\(in step, /.*test_sink\.py, line \d+\)"
    refused = rf"'out': told refuses .* epoch 0: Rude: no such table {place}"
    with pytest.raises(SendRefusedError, match=refused):
        job.committer.commit([file])
    with pytest.raises(SendRefusedError, match=r"too many columns.*They stay in .*wal/out/0"):
        job.committer.commit([file])
    assert list(job.committer.commit([file])) == [COMMITTED]
    assert job.sink.got == [("c0ffee-out-0", [1])] * 3


async def _later() -> None: ...


@pytest.mark.parametrize(
    ("make", "kind"), [(_later, "coroutine"), (lambda: (n for n in [1]), "generator")]
)
def test_a_send_that_returns_its_work_undone_stops_the_job(
    job: Job, make: Callable[[], Any], kind: str
) -> None:
    """A plain function may call an async one: nothing would be sent, and recorded as sent."""
    undone = make()
    object.__setattr__(job.sink, "send", lambda batches, token: undone)
    file = job.write([1])
    with pytest.raises(SendRefusedError, match=f"send has returned a {kind}, which nobody runs"):
        job.committer.commit([file])
    undone.close()
    assert not list((job.directory / "wal/out").rglob("*.sent"))


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_what_is_no_exception_is_never_tried_again(job: Job, error: BaseException) -> None:
    """`sys.exit` in a function may come after the function has written."""
    job.sink.steps.append(fails(error))
    file = job.write([1])
    with pytest.raises(SendRefusedError, match=f"epoch 0: {type(error).__name__}") as raised:
        job.committer.commit([file])
    assert raised.value.__cause__ is error
    assert len(job.sink.got) == 1


def test_a_send_that_hangs_fails_the_job(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", Told(send_timeout="100ms"))
    release = threading.Event()
    job.sink.steps.append(lambda: release.wait() and None)
    file = job.write([1])
    with pytest.raises(CommitFailedError, match=r"within 0\.1 s \(send_timeout\)"):
        job.committer.commit([file])
    release.set()


class HeldSend(Job):
    """A job whose first send of an epoch outlives its time, until `release`."""

    def __init__(self, directory: Path, end: Callable[[], None] = lambda: None) -> None:
        super().__init__(directory, Told(send_timeout="50ms"))
        self.release = threading.Event()

        def hold() -> None:
            self.release.wait()
            end()

        self.sink.steps.append(hold)
        self.sent = self.write([1])
        with pytest.raises(CommitFailedError, match="send has not returned"):
            self.committer.commit([self.sent])
        self.next_start = self.sink.create_committer(self.context())
        with pytest.raises(CommitFailedError, match="send has not returned"):
            self.next_start.commit([self.sent])
        object.__setattr__(self.sink, "send_timeout", "10s")


def test_a_send_that_outlives_its_run_is_not_made_again(tmp_path: Path) -> None:
    """The next start in the same program waits for it."""
    job = HeldSend(tmp_path / "job")
    threading.Timer(0.3, job.release.set).start()
    assert list(job.next_start.commit([job.sent])) == [COMMITTED]
    assert job.sink.got == [("c0ffee-out-0", [1])]
    assert list(job.committer.commit([job.sent])) == [CommitOutcome.ALREADY_COMMITTED]


def test_a_send_that_fails_after_its_run_is_made_again(tmp_path: Path) -> None:
    job = HeldSend(tmp_path / "job", fails(OSError("away")))
    job.release.set()
    while answered(job.next_start.commit, [job.sent], RETRY) == [RETRY]:
        time.sleep(0.01)
    assert len(job.sink.got) == 2


def test_a_refusal_after_the_run_does_not_end_the_next_one(tmp_path: Path) -> None:
    """The target may be mended since."""
    job = HeldSend(tmp_path / "job", fails(SendRefusedError("no such table")))
    job.release.set()
    for thread in threading.enumerate():
        if thread.name == "seamark-send":
            thread.join(10)
    assert list(job.next_start.commit([job.sent])) == [COMMITTED]
    assert len(job.sink.got) == 2


def test_another_attempts_rows_wait_for_a_send_that_outlives_its_run(tmp_path: Path) -> None:
    """Rows sent before the decision: an epoch that is repeated has others, and the same token."""
    job = HeldSend(tmp_path / "job")
    again = job.write([2])
    with pytest.raises(ConnectionError, match="an earlier send of epoch 0 still runs"):
        job.next_start.commit([again])
    job.release.set()
    while answered(job.next_start.commit, [again], RETRY) == [RETRY]:
        time.sleep(0.01)
    assert [rows for _, rows in job.sink.got] == [[1], [2]]


def test_rows_that_were_sent_are_not_sent_again_because_the_record_failed(job: Job) -> None:
    file = job.write([1])
    files = job.directory / "wal/out"

    def fill_the_disk() -> None:
        (files / "0").rename(files / "gone")
        (files / "0").write_text("a file where the directory was")

    job.sink.steps.append(fill_the_disk)
    assert answered(job.committer.commit, [file], RETRY) == [RETRY]
    (files / "0").unlink()
    (files / "gone").rename(files / "0")
    assert list(job.committer.commit([file])) == [COMMITTED]
    assert len(job.sink.got) == 1


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "delete"])
def test_a_damaged_file_is_named_and_nothing_of_its_epoch_is_sent(
    job: Job, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = job.write([1], epoch=3), job.write([2], epoch=3, partition=1)
    path = job.file(bad)
    data = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "flip":
            path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        case "empty":
            path.write_bytes(b"")
        case "delete":
            path.unlink()
    (found,) = job.sink.find_damage([good, bad], job.context())
    assert found.startswith(f"{job.directory}/wal/out/{bad.handle}: ")
    assert list(job.committer.commit([good, bad])) == [LOST, LOST]
    assert bad.handle in caplog.text
    assert job.sink.got == []
    path.write_bytes(data)  # out of a backup
    assert job.sink.find_damage([good, bad], job.context()) == []
    assert list(job.committer.commit([good, bad])) == [COMMITTED] * 2
    assert job.sink.find_damage([good, bad], job.context()) == []


def test_what_was_sent_needs_no_file(job: Job) -> None:
    file = job.write([1])
    job.committer.commit([file])
    job.file(file).unlink()
    assert job.sink.find_damage([file], job.context()) == []
    assert list(job.committer.commit([file])) == [CommitOutcome.ALREADY_COMMITTED]


def test_another_driver_may_send_the_epoch_at_the_same_moment(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = job.write([1, 2], epoch=3), job.sink.create_committer(job.context())
    look = EpochSpool.problem

    def too_late(epoch: EpochSpool, rows: SpooledRows) -> str:  # it has been listed
        monkeypatch.setattr(EpochSpool, "problem", look)
        assert list(other.commit([file])) == [COMMITTED]
        return look(epoch, rows)

    monkeypatch.setattr(EpochSpool, "problem", too_late)
    assert list(job.committer.commit([file])) == [RETRY]
    assert list(job.committer.commit([file])) == [CommitOutcome.ALREADY_COMMITTED]
    assert [rows for _, rows in job.sink.got] == [[1, 2]]


def test_a_torn_record_proves_nothing(job: Job) -> None:
    file = job.write([1])
    job.committer.commit([file])
    (record,) = (job.directory / "wal/out/0").glob("*.sent")
    record.write_bytes(record.read_bytes()[:-3])
    assert list(job.committer.commit([file])) == [COMMITTED]
    assert len(job.sink.got) == 2


def test_a_restored_job_sends_the_first_jobs_epoch_with_its_token(tmp_path: Path) -> None:
    """The first job died after its decision; its files lie in its own directory."""
    first = Job(tmp_path / "first", Told())
    file = first.write([1, 2])
    restored = Job(tmp_path / "second", Told(), job_id="beef")
    assert list(restored.committer.list_lingering()) == []
    assert list(restored.committer.commit([file])) == [COMMITTED]
    assert restored.sink.got == [("c0ffee-out-0", [1, 2])]
    assert list(first.committer.commit([file])) == [CommitOutcome.ALREADY_COMMITTED]
    assert first.sink.got == []


def test_a_checkpoint_that_was_moved_has_its_spool_with_it(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", Told())
    file = job.write([1])
    (tmp_path / "job").rename(tmp_path / "moved")
    moved = Job(tmp_path / "moved", job.sink)
    assert list(moved.committer.commit([file])) == [COMMITTED]
    assert job.sink.got == [("c0ffee-out-0", [1])]


def test_an_aborted_file_is_gone(job: Job) -> None:
    file = job.write([1])
    (found,) = job.committer.list_lingering()
    assert (found.committable.handle, found.generation) == (file.handle, 1)
    assert list(job.committer.abort([found.committable])) == [AbortOutcome.ABORTED]
    assert list((job.directory / "wal/out/0").iterdir()) == []


def test_an_executor_that_does_not_share_the_storage_is_told(tmp_path: Path) -> None:
    at = WriterContext("j", "out", 1, 0, 0, 0, -1, spool_uri=f"file://{tmp_path}/no/wal/out")
    with pytest.raises(WriteRefusedError, match="that the driver and all executors share"):
        Told().create_writer(at).write(pa.record_batch({"n": [1]}))


def test_way_and_columns() -> None:
    assert Told().way is SinkWay.WRITE_AHEAD_LOG
    assert Told(idempotent=True).way is SinkWay.WRITE_AHEAD_LOG_WITH_TOKEN
    assert Told().select_expressions((Column("a b", "bigint"),)) == ["`a b`"]
    with pytest.raises(ConfigurationError, match="told: column 'v' has type variant"):
        Told().select_expressions((Column("v", "variant"),))
    with pytest.raises(ConfigurationError, match="told: send_timeout: 'soon' is not a duration"):
        Told(send_timeout="soon").check_transaction_scope(SinkContext("j", "j", "out", 1, 1.0))


def test_a_committable_must_name_a_spool_file(job: Job) -> None:
    good = job.write([1])
    for handle in ("../../job.json", "0/x.arrow", good.handle.replace("0/", "1/")):
        altered = SpooledRows(**vars(good))
        object.__setattr__(altered, "handle", handle)
        with pytest.raises(CorruptRecordError, match="not the handle of a spool file"):
            job.sink.load(job.sink.dump(altered))


def test_options_of_a_spark_format_are_sparks() -> None:
    """Spark leaves None out; as text it would be written for null."""
    given = {"nullValue": None, "header": True, "maxRecordsPerFile": 5}
    sink: Any = WriteAheadSink.spark_format("csv", given)
    assert sink.options == {"header": "true", "maxRecordsPerFile": "5"}
