"""The ledger: every committed epoch's sums stay readable after its records are deleted.

How: the store and `LedgerWriter` on real local directories, as the commit thread calls them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import seamark as sm
from seamark.checkpoint import ledger, sink_epoch
from seamark.checkpoint.garbage import LEAST_RECORDS, Garbage
from seamark.checkpoint.ledger import LedgerWriter, read_ledger
from seamark.checkpoint.row_hash import RowSums, row_hashes, sums
from seamark.checkpoint.sink_epoch import SinkEpoch, Tally, TaskLedger
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.contracts.read_back import Targets
from seamark.files.local import LocalDirectory
from seamark.model.errors import RecordNotStoredError
from seamark.model.records import read_as


def a_store(directory: Path) -> CheckpointStore:
    store = CheckpointStore(LocalDirectory(directory), LocalDirectory(directory / "spark"))
    store.create_identity(JobIdentity("a" * 32, "l" * 32, "clicks", 0, 1.5))
    store.open("clicks")
    return store


def part(epoch: int) -> SinkEpoch:
    sums_ = RowSums(epoch + 1, 3 * epoch, 5 * epoch)
    return SinkEpoch(epoch + 1, (b"handle",), (TaskLedger(0, 1, {"t/0": sums_}),))


def commit(store: CheckpointStore, writer: LedgerWriter | None, epoch: int) -> None:
    store.write_prepared(epoch, 1, {"out": part(epoch)}, None)
    if not store.spark_files.exists(f"offsets/{epoch}"):
        store.spark_files.create(f"offsets/{epoch}", b'v1\n{}\n{"t":{"0":%d}}' % epoch)
    store.write_committed(epoch, 1)
    if writer is not None:
        writer.committed(epoch, 1, {"out": part(epoch)})
        Garbage(store).prune(epoch, 1)


def test_each_epoch_is_in_the_ledger_after_its_records_are_deleted(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    writer = LedgerWriter(store)
    for epoch in range(35):
        commit(store, writer, epoch)
        found = read_ledger(store)[0]
        assert [entry.epoch for entry in found] == list(range(epoch + 1))
        assert [dict(entry.sinks) for entry in found] == [
            {"out": part(n)} for n in range(epoch + 1)
        ]
    assert len(store.epochs()) == LEAST_RECORDS
    assert [entry.sinks["out"].ledger for entry in found] == [part(n).ledger for n in range(35)]
    assert [entry.sources for entry in found] == [[{"t": {"0": n}}] for n in range(35)]
    total = read_ledger(store)[1].of("out")
    assert (total.since, total.sums) == (0, RowSums(630, 3 * 595, 5 * 595))
    assert read_ledger(store)[1].of("other").sums == RowSums()


def test_a_driver_that_died_before_a_page_leaves_no_gap(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    first = LedgerWriter(store)
    for epoch in range(8):
        commit(store, first, epoch)
    for epoch in range(8, 14):  # committed by recovery, which writes no page
        commit(store, None, epoch)
    second = LedgerWriter(store)
    second.catch_up(13)
    Garbage(store).prune(13, 1)
    for epoch in range(14, 30):
        commit(store, second, epoch)
    assert [entry.epoch for entry in read_ledger(store)[0]] == list(range(30))
    assert read_ledger(store)[1].of("out").sums.rows == sum(range(1, 31))


def test_old_pages_live_on_in_the_totals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "KEPT_EPOCHS", 20)
    store = a_store(tmp_path)
    writer = LedgerWriter(store)
    for epoch in range(60):
        commit(store, writer, epoch)
    assert [entry.epoch for entry in read_ledger(store)[0]] == list(range(40, 60))
    assert read_ledger(store)[1].of("out").sums.rows == sum(range(1, 61))


def test_an_attempt_without_a_ledger_is_read_and_starts_the_totals_anew(tmp_path: Path) -> None:
    assert read_as(SinkEpoch, {"rows": 3, "committables": []}).sums is None
    store = a_store(tmp_path)
    commit(store, None, 0)
    store.write_prepared(1, 1, {"out": SinkEpoch(7, (b"handle",))}, None)
    store.write_committed(1, 1)
    commit(store, None, 2)
    assert [entry.sinks["out"].sums for entry in read_ledger(store)[0]][1] is None
    total = read_ledger(store)[1].of("out")
    assert (total.since, total.sums.rows) == (2, 3)


@pytest.mark.parametrize("page", [9, 19])
def test_a_damaged_page_stops_no_driver_and_is_named(
    tmp_path: Path, page: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = a_store(tmp_path)
    writer = LedgerWriter(store)
    for epoch in range(24):
        commit(store, writer, epoch)
    path = tmp_path / f"ledger/{page}.json"
    path.write_bytes(path.read_bytes().replace(b'"rows":7', b'"rows":8').replace(b'"rows":17', b""))
    successor = LedgerWriter(store)
    successor.catch_up(23)
    for epoch in range(24, 45):
        commit(store, successor, epoch)
    ledger = read_ledger(store)
    assert (f"ledger/{page}.json" in caplog.text) == (page == 19)  # the newest one is needed
    damaged = [*range(page - 9, page + 1)]
    assert [entry.epoch for entry in ledger.entries] == sorted({*range(45)} - {*damaged})
    assert [*ledger.unreadable] == damaged
    assert all(f"ledger/{page}.json: the" in why for why in ledger.unreadable.values())
    total = ledger.totals.of("out")
    since = 20 if page == 19 else 0
    assert (total.since, total.sums.rows) == (since, sum(range(since + 1, 46)))


def test_a_damaged_record_of_an_older_epoch_stops_no_driver(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    for epoch in range(12):
        commit(store, None, epoch)
    (tmp_path / "epochs/4/prepared.1.json").write_bytes(b"{")
    (tmp_path / "epochs/5/committed.json").write_bytes(b"")
    assert [*read_ledger(store).unreadable] == [4, 5]
    writer = LedgerWriter(store)
    writer.catch_up(11)
    Garbage(store).prune(11, 1)
    ledger = read_ledger(store)
    assert [entry.epoch for entry in ledger.entries] == [0, 1, 2, 3, *range(6, 12)]
    assert ledger.totals.of("out").since == 6  # no sum is over a gap
    assert ledger.totals.of("out").sums.rows == sum(range(7, 13))


def test_a_page_that_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    writer = LedgerWriter(store)
    for epoch in range(9):
        commit(store, writer, epoch)
    (tmp_path / "ledger").write_bytes(b"")  # nobody can write below a file, root included
    commit(store, None, 9)
    for _ in range(2):
        with pytest.raises(RecordNotStoredError, match=r"ledger/9\.json cannot be written"):
            writer.committed(9, 1, {"out": part(9)})
    (tmp_path / "ledger").unlink()
    commit(store, writer, 10)
    ledger = read_ledger(store)
    assert [entry.epoch for entry in ledger.entries] == [*range(11)]
    assert ledger.totals.of("out").sums.rows == sum(range(1, 12))


def test_while_no_page_can_be_written_no_more_than_a_page_is_in_memory(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    writer = LedgerWriter(store)
    (tmp_path / "ledger").write_bytes(b"a file where the directory is to be")
    for epoch in range(35):
        commit(store, None, epoch)
        with contextlib.suppress(RecordNotStoredError):
            writer.committed(epoch, 1, {"out": part(epoch)})
    assert len(writer._noted) <= ledger.PAGE_EPOCHS
    (tmp_path / "ledger").unlink()
    commit(store, writer, 35)
    assert [entry.epoch for entry in read_ledger(store)[0]] == list(range(36))


# --- the tally of a task


def rows(start: int, end: int) -> pa.RecordBatch:
    return pa.record_batch({"key": [b"%d" % i for i in range(start, end)], "n": range(start, end)})


@pytest.mark.parametrize("size", [1, 7, 255, 256, 1000])
def test_batches_of_any_size_have_the_same_sums(size: int) -> None:
    tally = Tally(None)
    for start in range(0, 5000, size):
        tally.add(rows(start, min(start + size, 5000)))
    tally.add(rows(0, 0))
    assert tally.close() == {"": sums(row_hashes(rows(0, 5000)))}


class _ThreePartitions:
    """A writer that sends number n to partition n % 3."""

    def __init__(self) -> None:
        self.numbers = np.zeros(0, np.int64)

    def last_targets(self) -> Targets:
        order = np.argsort(self.numbers % 3, kind="stable")
        counts = np.bincount(self.numbers % 3, minlength=3).tolist()
        ends = np.cumsum(counts).tolist()
        groups = [
            (f"t/{p}", end - count, end)
            for p, (count, end) in enumerate(zip(counts, ends, strict=True))
            if count
        ]
        return Targets(order, groups)

    def as_found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["key"])


@pytest.mark.parametrize("size", [1, 2, 300])
def test_each_target_has_sums_of_its_own(size: int) -> None:
    writer = _ThreePartitions()
    tally = Tally(writer)
    for start in range(0, 900, size):
        batch = rows(start, start + size)
        writer.numbers = batch.column("n").to_numpy()
        tally.add(batch)
    hashes = row_hashes(rows(0, 900).select(["key"]))
    assert tally.close() == {f"t/{p}": sums(hashes[p::3]) for p in range(3)}
    assert sink_epoch._SMALL_ROWS < 300


@pytest.mark.parametrize("cut", ["whole batches", "slices"])
def test_rows_of_any_size_are_held_up_to_a_bound_in_bytes(cut: str) -> None:
    tally, text, hashes = Tally(object()), "x" * 2**20, []
    before, most = pa.total_allocated_bytes(), 0
    for number in range(40):
        batch = pa.record_batch({"n": [number] * 10, "text": [text] * 10})
        batch = batch if cut == "whole batches" else batch.slice(3, 1)  # keeps all ten in memory
        hashes.append(row_hashes(batch))
        tally.add(batch)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 100 * 2**20
    assert tally.close() == {"": sums(np.concatenate(hashes))}


@pytest.mark.parametrize(("task", "most"), [(0, 100_000), (9, 100_000), (99, 10_000), (999, 1000)])
def test_the_later_a_task_the_fewer_keys_it_sends_to_the_driver(task: int, most: int) -> None:
    """Spark refuses the results of an epoch's tasks above `spark.driver.maxResultSize`: 1 GB."""
    tally = Tally(None, sm.SQLiteSink("/tmp/out.db", "out", keys=["n"]), task)
    tally.add(rows(0, most))
    assert len(tally.keys() or b"") == 16 * most
    tally.add(rows(0, 256))
    assert tally.keys() is None
