"""Channel state in the store: its record, and how long its files stay; on local directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.checkpoint.channel_state import ChannelState, Segment, Stage
from seamark.checkpoint.garbage import Garbage
from seamark.checkpoint.sink_epoch import PreparedSinks, SinkEpoch
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.contracts.spool import SpoolFile
from seamark.files.local import LocalDirectory
from seamark.protocol.states import Seal


def a_store(directory: Path) -> CheckpointStore:
    store = CheckpointStore(LocalDirectory(directory), LocalDirectory(directory / "spark"))
    store.open("job")
    return store


def state(*epochs: int) -> ChannelState:
    """Rows written to files in these epochs, a stage for each."""
    stages = (Stage(("out",), ("id",), ((segment(e),),), ("out",) if e % 2 else ()) for e in epochs)
    return ChannelState(tuple(stages))


def segment(epoch: int) -> Segment:
    path = f"{epoch}/g1-e{epoch}-p0-a9-{'0' * 32}.arrow"
    return Segment(SpoolFile("/store/channel-state", path, 10, 500, 77))


def prepared(
    store: CheckpointStore,
    epoch: int,
    generation: int,
    *epochs: int,
    garbage: Garbage | None = None,
) -> None:
    parts = PreparedSinks({"out": SinkEpoch(3, (b"one",))})
    parts.channel_state = state(*epochs)
    for of in epochs:
        if not store.files.exists(segment(of).file.path):
            store.files.create(f"channel-state/{of}/{generation}-{epoch}", b"rows")
    if garbage is not None:
        garbage.stored(epoch, parts.channel_state)
    store.write_prepared(epoch, generation, parts, None)


def test_an_attempts_rows_come_back_with_its_transactions(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    prepared(store, 0, 1, 0)
    store.seal(0, 1, Seal.ABORT)
    prepared(store, 0, 2)
    assert store.read_prepared(0, 1) == {"out": SinkEpoch(3, (b"one",))}
    assert store.read_prepared(0, 1).channel_state == state(0)
    assert store.channel_state(0) == state(), "the first attempt was aborted"
    store.write_committed(0, 2)
    assert store.channel_state(0) == state()
    prepared(store, 1, 2, 1)
    assert store.channel_state(1) == state(1), "decided, not committed yet"
    assert store.channel_state(-1) == store.channel_state(99) == state()


def test_event_times_come_back_without_rows(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    parts = PreparedSinks()
    parts.channel_state = ChannelState(event_times=(1_700_000_000_000, None))
    store.write_prepared(0, 1, parts, None)
    assert store.channel_state(0) == parts.channel_state


def test_a_restored_jobs_rows_of_before_its_first_epoch_stay(tmp_path: Path) -> None:
    store = CheckpointStore(LocalDirectory(tmp_path), LocalDirectory(tmp_path / "spark"))
    store.create_identity(JobIdentity("j", "l", "job", first_epoch=7, created_at=0.0))
    store.open("job")
    garbage = Garbage(store)
    for epoch in (7, 8, 9, 10):
        prepared(store, epoch, 1, *([4] if epoch < 9 else []), garbage=garbage)
        store.write_committed(epoch, 1)
        garbage.forget_channel_state(epoch, 2)
        assert store.files.list("channel-state") == (["4"] if epoch < 10 else [])


def test_an_epoch_without_rows_left_has_the_record_of_before(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    prepared(store, 0, 1)
    assert b"channel_state" not in store.files.read("epochs/0/prepared.1.json")


@pytest.mark.parametrize("restarts", [False, True])
def test_files_stay_until_no_retained_epoch_needs_them(tmp_path: Path, restarts: bool) -> None:
    """Epochs 0 and 1 leave rows, and epoch 4 writes the last of them. Three checkpoints stay."""
    store = a_store(tmp_path)
    garbage = Garbage(store)
    left = {0: [0], 1: [0, 1], 2: [0, 1], 3: [1], 4: [], 5: [5], 6: []}
    there = {}
    for epoch, epochs in left.items():
        prepared(store, epoch, 1, *epochs, garbage=garbage)
        store.write_committed(epoch, 1)
        garbage.forget_channel_state(epoch, 3)
        there[epoch] = sorted(map(int, store.files.list("channel-state")))
        if restarts:
            store = a_store(tmp_path)
            garbage = Garbage(store)
    assert there == {0: [0], 1: [0, 1], 2: [0, 1], 3: [0, 1], 4: [0, 1], 5: [1, 5], 6: [5]}


def test_epochs_that_leave_no_rows_leave_nothing_in_memory(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    garbage = Garbage(store)
    for epoch in range(20):
        prepared(store, epoch, 1, garbage=garbage)
        store.write_committed(epoch, 1)
        garbage.forget_channel_state(epoch, 3)
    assert sorted(garbage._first_needed) == [17, 18, 19]
