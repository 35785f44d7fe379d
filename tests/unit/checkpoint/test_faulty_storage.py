"""The law of a storage that fails: the job goes on, or ends with an error that names the storage;
in both cases the next start ends with every decided epoch's rows visible exactly once.

How: a real coordinator on a real directory under real threads, whose calls are first counted in a
run without faults; then each call fails once in each way. The run takes over from a driver that was
killed with one epoch decided and not committed, and one stored and not decided; it settles both,
commits three epochs, writes a page of the ledger, and deletes old records, rows and channel state.
"""

from __future__ import annotations

import logging
import random
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint import storage_check
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.ledger import read_ledger
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore
from seamark.files import deadline
from seamark.files.deadline import with_deadlines
from seamark.files.local import LocalDirectory
from seamark.model.errors import SeamarkError

from .faulty_files import Call, FaultyFiles, Plan, Way
from .memory_sink import MemorySink
from .test_coordinator import World

FIRST, LAST = 9, 11
"""The epochs of the run with a fault; epoch 8 is its predecessor's, decided."""
UPKEEP = re.compile(
    r"(delete (?!preflight|spark)|(create|list|read|exists) (ledger|statistics|losses|wal|channel))"
)
"""Calls that serve people, and the disk's room."""


class FaultyWorld(World):
    """The world of the coordinator's tests, on a storage with a plan."""

    faults: Plan

    def job(self, **settings: Any) -> CheckpointedJob:
        plan, spark = self.faults, self.directory / "spark"
        files: Any = FaultyFiles(LocalDirectory(self.directory), plan)
        logs: Any = FaultyFiles(LocalDirectory(spark), plan, "spark/")
        store = CheckpointStore(with_deadlines(files), with_deadlines(logs))
        job = super().job(**settings)
        return CheckpointedJob(job.name, job.sinks, store, job.checkpoint)

    def live(self, first: int, last: int) -> BaseException | None:
        """Run a driver that decides these epochs and stops; return the error of its run."""
        driver = Coordinator(self.job(num_retained=1))
        try:
            driver.start()
        except Exception as error:
            return error
        self.drivers.append(driver)
        try:
            for epoch in range(first, last + 1):
                self.plan(epoch)
                with driver.guarded():
                    driver.begin_epoch(epoch)
                    tasks = self.flush(driver, epoch)
                    driver.store_epoch(epoch, tasks, retried=epoch == last)
                self.decide(epoch)
                while driver.last_committed < epoch and driver.failure is None:
                    time.sleep(0.002)
        except Exception:
            assert driver.failure is not None
        try:
            driver.finish()
        except Exception as error:
            return error
        return None


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MemorySink]:
    """The directory and the sink that the killed driver has left."""
    sink = MemorySink()
    world = FaultyWorld(tmp_path_factory.mktemp("begun") / "job", orders=sink)
    world.faults = Plan()
    assert world.live(0, FIRST - 2) is None
    killed = Coordinator(world.job(num_retained=1))
    killed.start()
    killed.epochs.failure = RuntimeError("as if killed")
    for epoch in (FIRST - 1, FIRST):
        world.plan(epoch)
        parts = {"orders": SinkEpoch(10, (sink.flush(f"{epoch}.2", 2),))}
        killed._store.write_prepared(epoch, 2, parts, "v1\n{}")
    world.decide(FIRST - 1)
    for left in ("channel-state/2/rows", "wal/orders/3/rows"):
        path = world.directory / left
        path.parent.mkdir(parents=True)
        path.write_bytes(b"rows")
    return world.directory, sink


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def world_after(begun: tuple[Path, MemorySink], directory: Path, faults: Plan) -> FaultyWorld:
    shutil.copytree(begun[0], directory)
    sink = MemorySink(open=dict(begun[1].open), visible=list(begun[1].visible))
    world = FaultyWorld(directory, orders=sink)
    world.faults = faults
    return world


@pytest.fixture(scope="module")
def calls(begun: tuple[Path, MemorySink], tmp_path_factory: pytest.TempPathFactory) -> list[Call]:
    """The calls of a run without a fault; of many with one text the first two and the last."""
    world = world_after(begun, tmp_path_factory.mktemp("calls") / "job", Plan())
    assert world.live(FIRST, LAST) is None
    return [
        (text, number)
        for text, count in sorted(world.faults.calls.items())
        for number in sorted({0, min(1, count - 1), count - 1})
    ]


def judge(world: FaultyWorld, error: BaseException | None) -> None:
    """Judge the run with faults, and end with drivers that have none."""
    directory, plan = world.directory, world.faults
    if error is not None:
        assert isinstance(error, SeamarkError), repr(error)
        assert str(directory) in str(error) and "\n" not in str(error)
    if plan.way is not Way.LAST:
        plan.land()
    world.faults = Plan()
    for _ in range(2):
        next_ = 1 + max(int(p.name) for p in (directory / "spark/commits").iterdir())
        assert world.live(next_, next_) is None
        plan.land()
    sink = world.sinks["orders"]
    assert sorted(int(handle.partition(".")[0]) for handle in sink.visible) == [*range(next_ + 1)]
    assert not sink.open
    ledger = read_ledger(world.job().store)[0]
    assert [entry.epoch for entry in ledger] == [*range(next_ + 1)]


def fails(begun: tuple[Path, MemorySink], directory: Path, call: Call, way: Way) -> str:
    """Return what is wrong after this call has failed in this way; "" if nothing is."""
    world = world_after(begun, directory, Plan(call, way))
    try:
        error = world.live(FIRST, LAST)
        if world.faults.met:  # else it is a poll more or less
            assert error is None or not UPKEEP.match(call[0]), error
            judge(world, error)
    except AssertionError as wrong:
        return f"{call}, {way.name}: {wrong}"
    return ""


def can_fail(call: Call, way: Way) -> bool:
    if way is Way.REPEATED:
        return call[0].startswith("create")
    return way in (Way.REFUSED, Way.HANGS) or call[0].startswith(("create", "delete"))


def test_a_few_calls_fail(
    begun: tuple[Path, MemorySink], calls: list[Call], tmp_path: Path
) -> None:
    ways = [way for way in Way if way is not Way.HANGS]
    cases = [(call, way) for call in calls for way in ways if can_fail(call, way)]
    for number, (call, way) in enumerate(random.Random(7).sample(cases, 30)):
        assert fails(begun, tmp_path / str(number), call, way) == ""


@pytest.mark.full
@pytest.mark.parametrize("way", Way)
def test_every_call_fails_once(
    begun: tuple[Path, MemorySink],
    calls: list[Call],
    tmp_path: Path,
    way: Way,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs = way is Way.HANGS
    if hangs:
        for name in ("CALL_S", "LONG_CALL_S", "CALL_AGAIN_S"):
            monkeypatch.setattr(deadline, name, 3.0)
        monkeypatch.setattr(storage_check, "DEADLINE_S", 3.0)
    chosen = [call for call in calls if can_fail(call, way)]
    with ThreadPoolExecutor(16 if hangs else 8) as pool:
        wrong = pool.map(
            lambda case: fails(begun, tmp_path / str(case[0]), case[1], way), enumerate(chosen)
        )
    assert [line for line in wrong if line] == []
    assert len(chosen) > 15


@pytest.mark.parametrize("seed", range(20))
def test_calls_fail_at_random(begun: tuple[Path, MemorySink], tmp_path: Path, seed: int) -> None:
    world = world_after(begun, tmp_path / "job", Plan(luck=random.Random(seed)))
    error, epoch = None, FIRST
    for _ in range(6):
        error = world.live(epoch, epoch + 1)
        epoch = 1 + max(int(p.name) for p in (world.directory / "spark/commits").iterdir())
    assert world.faults.met
    judge(world, error)
