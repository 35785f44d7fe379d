"""The transactions of a savepoint taken over by a restore; on real local directories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from seamark.checkpoint.inspection import committables_of, inspect_records
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.files.local import LocalDirectory
from seamark.model import failpoints
from seamark.protocol import procedures
from seamark.protocol.states import Seal
from seamark.savepoints.record import SavepointRecord, Sink, read_savepoint, write_savepoint
from seamark.savepoints.restore.checkpoint import find_waiting, read_waiting
from seamark.savepoints.restore.target import take_over
from seamark.savepoints.take.uncommitted import (
    by_epoch,
    merged,
    problems,
    uncommitted,
    unfit,
)
from tests.unit.savepoints.test_record import a_savepoint

NO_SPARK: Any = None
"""Local directories need none."""


def a_job(directory: Path, job_id: str = "a" * 32) -> CheckpointStore:
    store = CheckpointStore(LocalDirectory(directory), LocalDirectory(directory / "spark"))
    store.create_identity(JobIdentity(job_id, "l" * 32, "clicks", 0, 1.5))
    return store


def a_savepoint_of(directory: Path) -> SavepointRecord:
    return replace(
        a_savepoint(LocalDirectory(directory.parent / "savepoint")),
        sinks=(Sink("to-kafka", "KafkaSink", 30), Sink("files", "FileSink")),
        job_directory=directory.as_uri(),
    )


PARTS = {"to-kafka": SinkEpoch(30, (b"\x00one", b"two"))}


def test_what_the_first_job_has_committed_since_is_not_asked_for_again(tmp_path: Path) -> None:
    store = a_job(tmp_path / "job")
    savepoint = a_savepoint_of(tmp_path / "job")
    store.write_prepared(7, 1, PARTS, None)
    store.seal(7, 1, Seal.COMMIT)
    assert uncommitted(NO_SPARK, savepoint) == {7: PARTS}
    store.write_committed(7, 1)
    assert uncommitted(NO_SPARK, savepoint) == {}


def test_what_is_deleted_was_committed(tmp_path: Path) -> None:
    store = a_job(tmp_path / "job")
    savepoint = a_savepoint_of(tmp_path / "job")
    store.spark_files.create("commits/7", b"v1\n{}")
    assert uncommitted(NO_SPARK, savepoint) == {7: PARTS}
    store.spark_files.create("commits/99", b"v1\n{}")
    assert uncommitted(NO_SPARK, savepoint) == {}


def test_without_the_first_job_everything_is_committed_again(tmp_path: Path) -> None:
    assert uncommitted(NO_SPARK, a_savepoint_of(tmp_path / "job")) == {7: PARTS}
    another = a_job(tmp_path / "job", "b" * 32)  # that has the directory now
    another.spark_files.create("commits/99", b"v1\n{}")
    assert uncommitted(NO_SPARK, a_savepoint_of(tmp_path / "job")) == {7: PARTS}


def test_epochs_that_wait_together_stay_apart(tmp_path: Path) -> None:
    store = a_job(tmp_path / "job")
    waiting = {
        6: {"to-kafka": SinkEpoch(5, (b"six",)), "files": SinkEpoch(0, ())},
        5: {"to-kafka": SinkEpoch(7, (b"five", b"too")), "files": SinkEpoch(9, (b"file",))},
        7: PARTS,
    }
    committables, rows, earlier = merged(waiting, 7)
    assert committables["to-kafka"] == (b"five", b"too", b"six", b"\x00one", b"two")
    assert rows == {"to-kafka": 42, "files": 9}
    sinks = (Sink("to-kafka", "KafkaSink", 42), Sink("files", "FileSink", 9))
    savepoint = replace(
        a_savepoint_of(tmp_path / "job"), committables=committables, earlier=earlier, sinks=sinks
    )
    files = LocalDirectory(tmp_path / "written")
    write_savepoint(files, savepoint)
    read = read_savepoint(files)
    expected = {
        5: waiting[5], 6: {"to-kafka": waiting[6]["to-kafka"]}, 7: PARTS,
    }  # fmt: skip
    assert by_epoch(read) == uncommitted(NO_SPARK, read) == expected
    for epoch in (5, 6):
        store.write_prepared(epoch, 1, waiting[epoch], None)
    store.seal(5, 1, Seal.COMMIT)
    store.write_committed(5, 1)
    assert list(uncommitted(NO_SPARK, read)) == [6, 7]
    assert committables_of((by_epoch(read)).values()) == {"to-kafka": 5, "files": 1}


def test_the_restored_job_holds_them_as_an_attempt_of_its_own(tmp_path: Path) -> None:
    target = a_job(tmp_path / "second")
    for _ in range(2):  # as after a crash
        take_over(target, 7, lambda: PARTS)
    assert target.read_prepared(7, 0) == PARTS
    record = target.epoch(7)
    assert record.prepared == {0} and not record.seals and record.committed is None


def test_only_the_sink_that_made_them_can_commit_them(tmp_path: Path) -> None:
    savepoint = a_savepoint_of(tmp_path / "job")
    assert unfit(savepoint, {"to-kafka": "KafkaSink"}) == []
    assert unfit(savepoint, {"files": "FileSink"}) == ["to-kafka"]
    (problem,) = problems(savepoint, {"to-kafka": "PostgresSink"})
    assert "2 transactions" in problem and "PostgresSink" in problem


def test_what_a_superseding_restore_has_left_is_still_to_commit(tmp_path: Path) -> None:
    """`-n` without the sink: a later restore of the savepoint, with the sink, commits it."""
    store = a_job(tmp_path / "job")
    both = {**PARTS, "files": SinkEpoch(9, (b"file",))}
    committables, _, _ = merged({7: both}, 7)
    sinks = (Sink("to-kafka", "KafkaSink", 30), Sink("files", "FileSink", 9))
    savepoint = a_savepoint_of(tmp_path / "job")
    savepoint = replace(savepoint, committables=committables, sinks=sinks)
    failpoints.drive(procedures.take_over(store))
    store.write_prepared(7, 1, both, None)
    store.seal(7, 1, Seal.COMMIT)
    store.leaves = {"to-kafka": 2}
    store.write_committed(7, 1)
    assert uncommitted(NO_SPARK, savepoint) == {7: PARTS}
    failpoints.drive(procedures.supersede(1, {"lineage": 2}, store))
    assert uncommitted(NO_SPARK, savepoint) == {7: PARTS}
    # Of a retained checkpoint as well.
    assert find_waiting(store, inspect_records(store, 7)) == [(7, 1)]
    assert read_waiting(store, 7, 1) == PARTS


def test_an_emptied_superseded_lineage_had_committed_all_that_it_decided(tmp_path: Path) -> None:
    store = a_job(tmp_path / "job")
    savepoint = a_savepoint_of(tmp_path / "job")
    failpoints.drive(procedures.take_over(store))
    assert uncommitted(NO_SPARK, savepoint) == {7: PARTS}
    failpoints.drive(procedures.supersede(1, {"lineage": 2}, store))
    assert uncommitted(NO_SPARK, savepoint) == {}
