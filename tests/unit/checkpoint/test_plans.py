"""A plan, Spark's ``offsets/<n>``, that a fenced driver deletes late or that was made twice.

How: the store on a real local directory; Spark's logs are written by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore
from seamark.files.local import LocalDirectory
from seamark.model.errors import DecisionVoidError, RecordNotStoredError
from seamark.protocol import procedures

PLAN = 'v1\n{"batchWatermarkMs":0}\n{"clicks":{"0":12}}'
LONGER = PLAN.replace("12", "15")


class NoSinks:
    uids: tuple[str, ...] = ()

    def abort_lingering(self, uid: str, below_generation: int) -> None:
        raise AssertionError("there are no sinks")


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    made = CheckpointStore(LocalDirectory(tmp_path), LocalDirectory(tmp_path / "spark"))
    made.open("job")
    list(procedures.take_over(made))
    return made


def plan(store: CheckpointStore, epoch: int, text: str = PLAN) -> None:
    store.spark_files.create(f"offsets/{epoch}", text.encode())


def run_epoch(store: CheckpointStore, epoch: int) -> None:
    plan(store, epoch)
    list(procedures.store_attempt(epoch, 1, {"out": SinkEpoch(1, (b"handle",))}, store))
    store.spark_files.create(f"commits/{epoch}", b"v1\n{}")
    list(procedures.commit_attempt(epoch, 1, store, NoSinks()))  # type: ignore[arg-type]


def next_driver(store: CheckpointStore) -> int:
    """Take over and recover; return the generation."""
    generation = max(store.generations()) + 1
    list(procedures.take_over(store))
    list(procedures.recover(generation, store, NoSinks()))  # type: ignore[arg-type]
    return generation


def test_the_plans_of_the_last_two_decided_epochs_are_put_back(store: CheckpointStore) -> None:
    for epoch in range(3):
        run_epoch(store, epoch)
        store.void_offsets(epoch)
    next_driver(store)
    found = [store.is_planned(epoch) for epoch in range(3)]
    assert found == [False, True, True]
    assert store.read_plan(2) == store.read_plan(1) == PLAN


def test_an_attempt_whose_plan_is_gone_is_not_stored(store: CheckpointStore) -> None:
    plan(store, 0)
    store.void_offsets(0)
    with pytest.raises(RecordNotStoredError, match=r"offsets/0: .* the file is\s+gone"):
        list(procedures.store_attempt(0, 1, {}, store))
    assert store.epochs() == []


@pytest.mark.parametrize("planned", [PLAN, LONGER, None], ids=["the same", "other", "none"])
def test_a_start_goes_by_the_claimed_plan(store: CheckpointStore, planned: str | None) -> None:
    plan(store, 0)
    assert procedures.claim_epoch(0, 1, store)
    store.void_offsets(0)
    if planned is not None:
        plan(store, 0, planned)
    generation = next_driver(store)
    assert store.read_plan(0) == PLAN
    assert not procedures.claim_epoch(0, generation, store)


def test_a_driver_with_another_plan_than_the_claimed_one_stops(store: CheckpointStore) -> None:
    plan(store, 0)
    assert procedures.claim_epoch(0, 1, store)
    generation = next_driver(store)
    store.void_offsets(0)  # a fenced driver's call, which has slept since
    plan(store, 0, LONGER)
    with pytest.raises(DecisionVoidError, match="epoch 0 was claimed by an earlier run"):
        procedures.claim_epoch(0, generation, store)
    assert next_driver(store) == generation + 1
    assert store.read_plan(0) == PLAN


def test_a_claim_of_an_older_version_has_no_plan(store: CheckpointStore) -> None:
    plan(store, 0)
    assert store.claim_epoch(0, 1, None)
    assert not procedures.claim_epoch(0, next_driver(store), store)
