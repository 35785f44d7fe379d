"""How: the store on a real directory, every file operation counted. On an object store each of them
takes tens of milliseconds, so neither an epoch nor a recovery may need more of them as epochs pass.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint.envelope import create_record
from seamark.checkpoint.garbage import LEAST_RECORDS, Garbage
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore
from seamark.files.local import LocalDirectory
from seamark.model.errors import CorruptRecordError, RecordNotStoredError
from seamark.protocol import procedures
from seamark.protocol.ports import EpochRecord
from seamark.protocol.states import Seal


class CountingFiles:
    """Real files; `calls` counts the operations by name."""

    def __init__(self, files: LocalDirectory) -> None:
        self._files = files
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._files, name)
        if not callable(operation):
            return operation

        def counted(*arguments: Any) -> Any:
            self.calls[name] += 1
            return operation(*arguments)

        return counted


class NoSinks:
    uids: tuple[str, ...] = ()


def opened(directory: Path) -> tuple[CheckpointStore, CountingFiles]:
    files = CountingFiles(LocalDirectory(directory))
    store = CheckpointStore(files, CountingFiles(LocalDirectory(directory / "spark")))
    store.open("job")
    files.calls.clear()
    return store, files


def run_epoch(store: CheckpointStore, directory: Path, epoch: int, garbage: Garbage) -> None:
    """All calls of one epoch to the records; Spark's plan and decision are written by hand."""
    (directory / "spark/offsets").mkdir(parents=True, exist_ok=True)
    (directory / f"spark/offsets/{epoch}").write_text("v1\n{}")
    list(procedures.store_attempt(epoch, 1, {"sink": SinkEpoch(1, (b"handle",))}, store))
    (directory / "spark/commits").mkdir(exist_ok=True)
    (directory / f"spark/commits/{epoch}").write_text("v1\n{}")
    list(procedures.commit_attempt(epoch, 1, store, NoSinks()))  # type: ignore[arg-type]
    garbage.prune(epoch, retained=LEAST_RECORDS)


def test_an_epoch_makes_three_records_and_lists_only_the_leases(tmp_path: Path) -> None:
    store, files = opened(tmp_path)
    garbage = Garbage(store)
    store.claim_generation(1)
    for epoch in range(LEAST_RECORDS + 3):
        files.calls.clear()
        run_epoch(store, tmp_path, epoch, garbage)
    assert files.calls == {"list": 1, "create": 3, "delete": 1}
    assert sorted(store.epochs()) == list(range(3, LEAST_RECORDS + 3))


def test_epochs_of_earlier_drivers_are_pruned_too(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    garbage = Garbage(store)
    store.claim_generation(1)
    for epoch in range(5):
        run_epoch(store, tmp_path, epoch, garbage)
    successor, _ = opened(tmp_path)
    Garbage(successor).prune(LEAST_RECORDS + 2, retained=LEAST_RECORDS)
    assert sorted(successor.epochs()) == [3, 4]


def test_a_recovery_reads_the_newest_epochs_only(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    garbage = Garbage(store)
    store.claim_generation(1)
    for epoch in range(60):
        run_epoch(store, tmp_path, epoch, garbage)
    successor, files = opened(tmp_path)
    successor.claim_generation(2)
    files.calls.clear()
    assert exhaust(procedures.recover(2, successor, NoSinks())) == 59
    assert sum(files.calls.values()) < 20, files.calls


def test_an_epoch_without_a_record_is_empty(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    assert store.epoch(7) == EpochRecord()
    store.seal(7, 1, Seal.ABORT)
    assert store.epoch(7) == EpochRecord(seals={1: Seal.ABORT})


def exhaust(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_job_json_may_lack_what_serves_only_people(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path)
    needed = {"job_id": "a" * 32, "lineage_id": "b" * 32, "name": "job", "first_epoch": 3}
    create_record(files, "job", "job.json", {**needed, "of_a_newer_release": {"x": 1}})
    identity = CheckpointStore(files, files).open("job")
    assert (identity.job_id, identity.first_epoch) == ("a" * 32, 3)
    assert (identity.restored_from, identity.spark_directory) == (None, "spark")
    damaged = LocalDirectory(tmp_path / "damaged")
    create_record(damaged, "job", "job.json", {"job_id": "a" * 32, "name": "job"})
    with pytest.raises(CorruptRecordError, match=r"job\.json"):
        CheckpointStore(damaged, damaged).open("job")


def test_a_directory_that_cannot_be_deleted_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = opened(tmp_path)
    garbage = Garbage(store)
    store.claim_generation(1)
    for epoch in range(LEAST_RECORDS):
        run_epoch(store, tmp_path, epoch, garbage)
    delete = store.delete

    def refuse(path: str) -> None:
        if path == "epochs/1":
            raise RecordNotStoredError("Directory not empty")
        delete(path)

    monkeypatch.setattr(store, "delete", refuse)
    refused = 0
    for epoch in range(LEAST_RECORDS, 3 * LEAST_RECORDS):
        try:
            run_epoch(store, tmp_path, epoch, garbage)
        except RecordNotStoredError:
            refused += 1
    assert refused == 2  # its turn comes again when all others have had theirs
    assert sorted(store.epochs()) == [1, *range(2 * LEAST_RECORDS, 3 * LEAST_RECORDS)]
    monkeypatch.undo()
    for epoch in range(3 * LEAST_RECORDS, 5 * LEAST_RECORDS):
        run_epoch(store, tmp_path, epoch, garbage)
    assert sorted(store.epochs()) == [*range(4 * LEAST_RECORDS, 5 * LEAST_RECORDS)]
