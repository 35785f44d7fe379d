"""The chain of lineages of a job, told by the leases on a local disk; and what hands do to it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seamark.checkpoint.lineages import job_directory, lineage_directory, lineages_of
from seamark.checkpoint.store import CheckpointStore
from seamark.files.deadline import open_local
from seamark.files.local import LocalDirectory
from seamark.model import failpoints
from seamark.model.errors import (
    CheckpointError,
    CorruptRecordError,
    FencedError,
    RecordNotStoredError,
)
from seamark.protocol.procedures import supersede, take_over
from tests.unit.checkpoint.faulty_files import FaultyFiles, Plan


def lineage(job: Path, number: int) -> CheckpointStore:
    """A lineage with an identity and one driver."""
    files = open_local(job / lineage_directory(number))
    store = CheckpointStore(files, open_local(job / lineage_directory(number) / "spark"))
    store.open("job")
    failpoints.drive(take_over(store))
    return store


def chain(job: Path) -> list[int]:
    return lineages_of(open_local(job))


def ended(job: Path, number: int, by: int) -> CheckpointStore:
    """A lineage that is superseded."""
    store = lineage(job, number)
    failpoints.drive(supersede(1, {"lineage": by}, store))
    return store


def test_the_last_leases_are_the_way_to_the_current_lineage(tmp_path: Path) -> None:
    assert chain(tmp_path) == [1]
    lineage(tmp_path, 2)  # of a restore that was cut off
    first = ended(tmp_path, 1, 3)
    assert chain(tmp_path) == [1, 3], "whole or not, its directory is the last lease's to name"
    ended(tmp_path, 3, 11)
    lineage(tmp_path, 11)
    assert chain(tmp_path) == [1, 3, 11]
    with pytest.raises(FencedError, match="generation 2 was the last one here"):
        failpoints.drive(take_over(first))
    assert first.generations() == [1, 2]
    assert job_directory("s3a://b/store/job/lineages/11") == "s3a://b/store/job"
    assert job_directory("file:/store/lineages") == "file:/store/lineages"


def test_of_two_only_one_takes_the_generation_after(tmp_path: Path) -> None:
    store = lineage(tmp_path, 1)
    assert failpoints.drive(take_over(store)) == 2
    with pytest.raises(FencedError, match="claimed by another driver"):
        failpoints.drive(supersede(1, {"lineage": 2}, store))
    store.forget_generations([1])
    assert failpoints.drive(take_over(store)) == 3
    store.forget_generations([2])  # settled: the number is free again
    with pytest.raises(FencedError, match="superseded by generation 3"):
        failpoints.drive(supersede(1, {"lineage": 2}, store))
    assert chain(tmp_path) == [1]
    assert failpoints.drive(take_over(store)) == 4


def test_a_superseded_lineage_may_be_emptied_but_not_taken_out_of_the_chain(
    tmp_path: Path,
) -> None:
    for number in (1, 2):
        store = ended(tmp_path, number, number + 1)
        store.write_prepared(0, 1, {}, None)
    lineage(tmp_path, 3)
    for emptied in (tmp_path, tmp_path / "lineages/2"):
        shutil.rmtree(emptied / "epochs")
    assert chain(tmp_path) == [1, 2, 3]
    shutil.rmtree(tmp_path / "lineages/3")  # as DELETE_ON_CANCELLATION does
    assert chain(tmp_path) == [1, 2, 3]
    lineage(tmp_path, 3)
    shutil.rmtree(tmp_path / "lineages/2")
    with pytest.raises(CheckpointError, match=r"lineages/2 is gone, .* later lineage lineages/3"):
        chain(tmp_path)


def test_a_damaged_lease_hides_no_lineage(tmp_path: Path) -> None:
    ended(tmp_path, 1, 2)
    (tmp_path / "lease/2.json").write_bytes(b"{")
    assert chain(tmp_path) == [1], "nothing is there to go on instead"
    lineage(tmp_path, 2)
    with pytest.raises(CorruptRecordError, match=r"lease/2.json.* goes on .*\(lineages/2\)"):
        chain(tmp_path)


def test_a_storage_that_refuses_a_look_is_named(tmp_path: Path) -> None:
    ended(tmp_path, 1, 2)
    lineage(tmp_path, 2)
    calm = Plan()
    lineages_of(FaultyFiles(LocalDirectory(tmp_path), calm))
    assert len(calm.calls) >= 4
    for text in calm.calls:
        files = FaultyFiles(LocalDirectory(tmp_path), Plan((text, 0)))
        with pytest.raises(RecordNotStoredError, match=r"checkpoint storage .* cannot be .* check"):
            lineages_of(files)


def test_the_only_later_lineage_deleted_by_a_cancellation_begins_anew(tmp_path: Path) -> None:
    ended(tmp_path, 1, 2)
    lineage(tmp_path, 2)
    shutil.rmtree(tmp_path / "lineages/2")
    assert chain(tmp_path) == [1, 2], "the last lease still says that lineage 1 is over"
    shutil.rmtree(tmp_path / "lineages")
    assert chain(tmp_path) == [1, 2]
    lineage(tmp_path, 2)
    assert chain(tmp_path) == [1, 2]
