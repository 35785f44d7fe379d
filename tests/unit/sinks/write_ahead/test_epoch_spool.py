"""Where a restored job finds the files of the first job's epoch. How: on directories of real
files, without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import seamark as sm
from seamark.checkpoint.envelope import seal_envelope
from seamark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from seamark.sinks.write_ahead.epoch_spool import SpooledRows

SENT: list[str] = []


class Sink(sm.WriteAheadSink):
    """Notes the sent rows."""

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


def spooled_by(job: Path) -> list[SpooledRows]:
    uri = (job / "wal/out").as_uri()
    writer = Sink().create_writer(WriterContext("j", "out", 1, 5, 0, 0, 4, spool_uri=uri))
    writer.write(pa.record_batch({"id": [1, 2]}))
    return list(writer.prepare_commit())


def commit(heir: Path, files: list[SpooledRows]) -> list[CommitOutcome]:
    context = SinkContext("h", "heir", "out", 1, 1.0, spool_uri=(heir / "wal/out").as_uri())
    assert Sink().find_damage(files, context) == []
    return list(Sink().create_committer(context).commit(files))


def test_the_first_job_s_own_spool_go_before_a_copy(tmp_path: Path, first: Path) -> None:
    files = spooled_by(first)
    shutil.copytree(first / "wal", tmp_path / "heir/wal")
    shutil.copytree(first / "wal", tmp_path / "other/wal")
    assert commit(tmp_path / "heir", files) == [CommitOutcome.COMMITTED]
    assert commit(tmp_path / "other", files) == [CommitOutcome.ALREADY_COMMITTED]
    assert SENT == ["j-out-5"]


@pytest.mark.parametrize(
    ("epoch", "job_id", "outcome"),
    [
        (5, "j", CommitOutcome.ALREADY_COMMITTED),  # its own record
        (9, "j", CommitOutcome.ALREADY_COMMITTED),  # epoch 5's is pruned: epochs go in order
        (4, "j", CommitOutcome.COMMITTED),
        (9, "another", CommitOutcome.COMMITTED),  # a new job where the first one was
    ],
)
def test_a_first_job_that_has_committed_and_deleted_its_spool(
    tmp_path: Path, first: Path, epoch: int, job_id: str, outcome: CommitOutcome
) -> None:
    files = spooled_by(first)
    (first / "wal").rename(tmp_path / "wal")
    (tmp_path / "heir").mkdir()
    (tmp_path / "wal").rename(tmp_path / "heir/wal")
    (first / "job.json").write_bytes(seal_envelope("job", {"job_id": job_id}))
    (first / f"epochs/{epoch}").mkdir(parents=True)
    (first / f"epochs/{epoch}/committed.json").write_text("{}")
    assert commit(tmp_path / "heir", files) == [outcome]
    assert (["j-out-5"] if outcome is CommitOutcome.COMMITTED else []) == SENT


def test_the_first_job_s_directory_is_gone(tmp_path: Path, first: Path) -> None:
    files = spooled_by(first)
    first.rename(tmp_path / "heir")
    assert commit(tmp_path / "heir", files) == [CommitOutcome.COMMITTED]
    assert commit(tmp_path / "heir", files) == [CommitOutcome.ALREADY_COMMITTED]
    assert SENT == ["j-out-5"]


@pytest.mark.parametrize("committed", [True, False])
def test_nothing_is_left_of_the_buffers_but_perhaps_the_first_job_s_word(
    tmp_path: Path, first: Path, committed: bool
) -> None:
    """The heir has no copy: it was restored from a retained checkpoint, or a copy was lost too."""
    files = spooled_by(first)
    heir = (tmp_path / "heir/wal/out").as_uri()
    if committed:
        (first / "epochs/5").mkdir(parents=True)
        (first / "epochs/5/committed.json").write_text("{}")
        shutil.rmtree(first / "wal")
    else:
        shutil.rmtree(first)
    committer = Sink().create_committer(SinkContext("h", "heir", "out", 1, 1.0, spool_uri=heir))
    expected = CommitOutcome.ALREADY_COMMITTED if committed else CommitOutcome.UNKNOWN
    assert [list(committer.commit(files)) for _ in range(2)] == [[expected]] * 2
    # The job's own directory proves more: what is not there was aborted, and never sent.
    if committed:
        (first / "epochs/5/committed.json").unlink()
        own = SinkContext("j", "first", "out", 1, 1.0, spool_uri=(first / "wal/out").as_uri())
        assert list(Sink().create_committer(own).commit(files)) == [CommitOutcome.LOST]
    assert SENT == []
