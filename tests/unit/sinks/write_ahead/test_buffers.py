"""Where a restored job finds the buffers of the first job's epoch. How: on directories of real
files, without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import seamark as sm
from seamark.checkpoint.envelope import seal_envelope
from seamark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from seamark.sinks.write_ahead.committable import BufferedRows

SENT: list[str] = []


class Sink(sm.WriteAheadSink):
    """Notes what it is sent."""

    def describe(self) -> str:
        return "a list"

    def send(self, batches: object, token: object) -> None:
        SENT.append(str(token))


@pytest.fixture
def first(tmp_path: Path) -> Path:
    SENT.clear()
    directory = tmp_path / "first"
    directory.mkdir()
    (directory / "job.json").write_bytes(seal_envelope("job", {"job_id": "j"}))
    return directory


def buffers_of(job: Path) -> list[BufferedRows]:
    uri = (job / "wal/out").as_uri()
    writer = Sink().create_writer(WriterContext("j", "out", 1, 5, 0, 0, 4, buffer_uri=uri))
    writer.write(pa.record_batch({"id": [1, 2]}))
    return list(writer.prepare_commit())


def commit(heir: Path, buffers: list[BufferedRows]) -> list[CommitOutcome]:
    context = SinkContext("h", "heir", "out", 1, 1.0, buffer_uri=(heir / "wal/out").as_uri())
    assert Sink().find_damage(buffers, context) == []
    return list(Sink().create_committer(context).commit(buffers))


def test_the_first_job_s_own_buffers_go_before_a_copy(tmp_path: Path, first: Path) -> None:
    buffers = buffers_of(first)
    shutil.copytree(first / "wal", tmp_path / "heir/wal")
    shutil.copytree(first / "wal", tmp_path / "other/wal")
    assert commit(tmp_path / "heir", buffers) == [CommitOutcome.COMMITTED]
    assert commit(tmp_path / "other", buffers) == [CommitOutcome.ALREADY_COMMITTED]
    assert SENT == ["j-out-5"]


@pytest.mark.parametrize(
    ("epoch", "job_id", "outcome"),
    [
        (5, "j", CommitOutcome.ALREADY_COMMITTED),  # its own record
        (9, "j", CommitOutcome.ALREADY_COMMITTED),  # that of 5 is pruned: epochs go in order
        (4, "j", CommitOutcome.COMMITTED),
        (9, "another", CommitOutcome.COMMITTED),  # a new job where the first one was
    ],
)
def test_a_first_job_that_has_committed_and_deleted_its_buffers(
    tmp_path: Path, first: Path, epoch: int, job_id: str, outcome: CommitOutcome
) -> None:
    buffers = buffers_of(first)
    (first / "wal").rename(tmp_path / "wal")
    (tmp_path / "heir").mkdir()
    (tmp_path / "wal").rename(tmp_path / "heir/wal")
    (first / "job.json").write_bytes(seal_envelope("job", {"job_id": job_id}))
    (first / f"epochs/{epoch}").mkdir(parents=True)
    (first / f"epochs/{epoch}/committed.json").write_text("{}")
    assert commit(tmp_path / "heir", buffers) == [outcome]
    assert (["j-out-5"] if outcome is CommitOutcome.COMMITTED else []) == SENT


def test_the_first_job_s_directory_is_gone(tmp_path: Path, first: Path) -> None:
    buffers = buffers_of(first)
    first.rename(tmp_path / "heir")
    assert commit(tmp_path / "heir", buffers) == [CommitOutcome.COMMITTED]
    assert commit(tmp_path / "heir", buffers) == [CommitOutcome.ALREADY_COMMITTED]
    assert SENT == ["j-out-5"]


@pytest.mark.parametrize("committed", [True, False])
def test_nothing_is_left_of_the_buffers_but_perhaps_the_first_job_s_word(
    tmp_path: Path, first: Path, committed: bool
) -> None:
    """The heir has no copy: it was restored from a retained checkpoint, or a copy was lost too."""
    buffers = buffers_of(first)
    heir = (tmp_path / "heir/wal/out").as_uri()
    if committed:
        (first / "epochs/5").mkdir(parents=True)
        (first / "epochs/5/committed.json").write_text("{}")
        shutil.rmtree(first / "wal")
    else:
        shutil.rmtree(first)
    committer = Sink().create_committer(SinkContext("h", "heir", "out", 1, 1.0, buffer_uri=heir))
    expected = CommitOutcome.ALREADY_COMMITTED if committed else CommitOutcome.UNKNOWN
    assert [list(committer.commit(buffers)) for _ in range(2)] == [[expected]] * 2
    # The job's own directory proves more: what is not there was aborted, and never sent.
    if committed:
        (first / "epochs/5/committed.json").unlink()
        own = SinkContext("j", "first", "out", 1, 1.0, buffer_uri=(first / "wal/out").as_uri())
        assert list(Sink().create_committer(own).commit(buffers)) == [CommitOutcome.LOST]
    assert SENT == []
