"""How: a real coordinator on a real directory goes through epochs (Spark is played by `decide`);
its reports of them are read while it runs, after it, and after damage to its files."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from seamark.checkpoint import statistics_recorder, statistics_store
from seamark.checkpoint.channel_state import ChannelState, Segment, Stage
from seamark.checkpoint.checkpointed_job import QueryRun
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.envelope import seal_envelope
from seamark.checkpoint.statistics import EpochFigures, OperatorFigures
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.contracts.spool import SpoolFile
from seamark.files.local import LocalDirectory
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.errors import CheckpointError
from seamark.model.records import read_as, record_of
from tests.unit.checkpoint.test_coordinator import World, until


class Measured(QueryRun):
    def __init__(self, measure: Callable[[Sequence[int]], Mapping[int, EpochFigures]]) -> None:
        self.measure = measure  # type: ignore[method-assign]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    for driver in world.drivers:
        driver.epochs.failure = driver.failure or RuntimeError("the test has ended")
        with pytest.raises(Exception):  # noqa: B017 - whatever it was
            driver.finish()


def finished(world: World, driver: Coordinator) -> None:
    driver.finish()
    world.drivers.remove(driver)


def run(world: World, driver: Coordinator, *epochs: int) -> None:
    for epoch in epochs:
        world.epoch(driver, epoch)
        world.decide(epoch)
        until(lambda: driver.last_committed == epoch)  # noqa: B023


def stored(world: World) -> CheckpointingStatistics:
    return StatisticsStore(LocalDirectory(world.directory)).read()


def test_each_epoch_is_shown_while_it_runs_and_kept_when_it_has_ended(world: World) -> None:
    driver = world.driver()
    run(world, driver, 0, 1)
    driver.begin_epoch(2)
    shown = driver.statistics.read()
    assert [(c.id, c.status.value) for c in shown.history] == [
        (2, "IN_PROGRESS"), (1, "COMPLETED"), (0, "COMPLETED"),
    ]  # fmt: skip
    assert shown.counts.to_json() == {
        "restored": 0, "total": 3, "in_progress": 1, "completed": 2, "failed": 0,
    }  # fmt: skip
    until(lambda: len(list((world.directory / "statistics").glob("*"))) == 2)
    finished(world, driver)
    after = stored(world)
    assert [(c.id, c.status.value) for c in after.history] == [
        (2, "FAILED"), (1, "COMPLETED"), (0, "COMPLETED"),
    ]  # fmt: skip
    assert after.history[0].failure_message == "the job was stopped"
    assert after.latest_completed == after.history[1]


def test_a_failed_epoch_has_its_reason_and_its_id_again_when_it_succeeds(world: World) -> None:
    driver = world.driver()
    run(world, driver, 0)
    driver.begin_epoch(1)
    driver.fail(CheckpointError("timeout: not decided within 2 s"))
    driver.fail(CheckpointError("said twice, counted once"))
    with pytest.raises(CheckpointError):
        finished(world, driver)
    again = world.driver()
    run(world, again, 1, 2)
    finished(world, again)
    shown = stored(world)
    assert [(c.id, c.status.value) for c in shown.history] == [
        (2, "COMPLETED"), (1, "COMPLETED"), (1, "FAILED"), (0, "COMPLETED"),
    ]  # fmt: skip
    assert shown.latest_failed is not None
    assert shown.latest_failed.failure_message == "timeout: not decided within 2 s"
    assert shown.latest_failed.failure_timestamp >= shown.latest_failed.trigger_timestamp
    assert shown.counts.failed == 1
    assert (shown.counts.restored, shown.counts.completed) == (1, 3)
    assert shown.latest_restored is not None
    assert shown.latest_restored.id == 0


def test_figures_of_tasks_spark_and_storage_come_together(world: World) -> None:
    wanted = EpochFigures(
        record_bytes=1000,
        spark_durations={"addBatch": 70},
        operators=(
            OperatorFigures("clicks", "source", "Kafka topics clicks", rows=30),
            OperatorFigures(
                "per-minute", "operator", "stateStoreSave", 7, {0: (10, 100), 1: (5, 50)}, {"m": 1}
            ),
        ),
    )
    driver = world.driver(Measured(lambda epochs: dict.fromkeys(epochs, wanted)))
    driver.begin_epoch(0)
    now = time.time()
    time.sleep(0.2)
    part = SinkReport(20, (b"committable",), data_bytes=2000, write_s=0.06, flush_s=0.02)
    world.sinks["orders"].load = lambda data: world.sinks["orders"].open["x"]  # type: ignore[method-assign]
    world.sinks["orders"].flush("x", 1)
    tasks = [
        TaskReport(1, 0, now + 0.03, now + 0.05, {}),  # a task without rows
        TaskReport(0, 0, now + 0.01, now + 0.15, {"orders": part}),
        TaskReport(2, 0, now - 7200.0, now + 7200.0, {}),  # its clock is two hours wrong
    ]
    world.plan(0)
    driver.store_epoch(0, tasks, retried=False)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    finished(world, driver)

    (shown,) = stored(world).history
    assert shown.checkpointed_size == 1015
    assert shown.state_size == 1150
    assert shown.processed_data == 2000
    assert shown.persisted_data == 0
    assert shown.rows == 20
    assert (shown.num_subtasks, shown.num_acknowledged_subtasks) == (6, 6)
    assert 200 <= shown.sync_duration <= shown.end_to_end_duration
    assert shown.latest_ack_timestamp == shown.trigger_timestamp + shown.sync_duration
    assert 0 <= shown.async_duration < shown.end_to_end_duration
    assert [t.uid for t in shown.tasks] == ["clicks", "per-minute", "orders"]
    orders = shown.tasks[2]
    assert [s.rows for s in orders.subtasks] == [20, 0, 0]
    assert orders.subtasks[0].sync_duration == 80
    assert orders.subtasks[0].checkpointed_size == len(b"committable")
    assert 5 <= orders.subtasks[0].start_delay <= 40
    assert orders.subtasks[2].start_delay == 0, "a wrong clock shows no more than what passed"
    assert orders.subtasks[2].end_to_end_duration == shown.sync_duration
    assert orders.subtasks[1].alignment_duration == shown.alignment_duration >= 100
    page = json.loads(json.dumps(shown.to_json(details=True)))
    assert page["tasks"]["per-minute"]["subtasks"][1]["state_size"] == 50
    assert page["tasks"]["per-minute"]["metrics"] == {"m": 1}


def test_rows_left_for_later_epochs_are_persisted_data(world: World) -> None:
    path = f"0/g1-e0-p0-a9-{'0' * 32}.arrow"
    lane = (Segment(SpoolFile("/s", path, 10, 500, 77), skip=4),)
    state = ChannelState((Stage(("orders",), ("id",), (lane,)),))
    driver = world.driver()
    driver.begin_epoch(0)
    now = time.time()
    tasks = [TaskReport(0, 0, now, now, {}, lane), TaskReport(1, 0, now, now, {})]
    world.plan(0)
    driver.store_epoch(0, tasks, state, retried=False)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    assert driver.channel_state == state
    finished(world, driver)
    (shown,) = stored(world).history
    assert (shown.unaligned, shown.persisted_data) == (True, 300)
    assert shown.state_size >= 300
    (orders,) = shown.tasks
    assert [s.unaligned for s in orders.subtasks] == [True, False]
    assert [s.persisted_data for s in orders.subtasks] == [300, 0]
    page = shown.to_json()
    assert page["unaligned_checkpoint"] is True
    assert page["alignment"]["persisted"] == 300


def test_a_damaged_file_is_skipped_and_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    driver = world.driver()
    run(world, driver, 0, 1, 2, 3)
    finished(world, driver)
    directory = world.directory / "statistics"
    (directory / "1.0.0.json").write_bytes(b"")
    flipped = bytearray((directory / "1.1.0.json").read_bytes())
    flipped[100] ^= 1
    (directory / "1.1.0.json").write_bytes(flipped)
    (directory / "1.2.0.json").unlink()
    (directory / "notes.txt").write_text("of somebody else")
    with caplog.at_level(logging.WARNING):
        shown = stored(world)
    assert [c.id for c in shown.history] == [3]
    assert shown.counts.completed == 4, "the counts outlive the files"
    assert "statistics/1.0.0.json" in caplog.text
    assert "statistics/1.1.0.json" in caplog.text
    (directory / "1.3.0.json").write_bytes(b"{}")
    again = world.driver()
    run(world, again, 4)
    finished(world, again)
    assert [c.id for c in stored(world).history] == [4]


def test_a_storage_that_refuses_statistics_does_not_stop_the_job(world: World) -> None:
    (world.directory / "statistics").write_text("a file where the directory should be")
    driver = world.driver()
    run(world, driver, 0, 1)
    finished(world, driver)
    assert world.sinks["orders"].visible == ["0.1", "1.1"]


def test_a_measure_that_fails_or_hangs_costs_figures_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.checkpoint.statistics_recorder.LAST_ROUND_S", 0.2)

    def measure(epochs: Sequence[int]) -> dict[int, EpochFigures]:
        if 0 in epochs:
            raise OSError("storage is away")
        time.sleep(3600)
        return {}

    driver = world.driver(Measured(measure))
    run(world, driver, 0)
    until(lambda: bool(stored(world).history))
    run(world, driver, 1, 2)
    assert [c.id for c in driver.statistics.read().history] == [2, 1, 0]
    finished(world, driver)
    assert [c.id for c in stored(world).history] == [0]


def test_only_the_last_ones_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_store, "CHECKPOINTS_KEPT", 3)
    driver = world.driver()
    run(world, driver, *range(6))
    finished(world, driver)
    names = sorted(path.name for path in (world.directory / "statistics").iterdir())
    assert names == ["1.3.0.json", "1.4.0.json", "1.5.0.json"]
    shown = stored(world)
    assert [c.id for c in shown.history] == [5, 4, 3]
    assert shown.counts.total == 6
    assert shown.summary["end_to_end_duration"].max > 0


def test_a_checkpoint_whose_records_are_deleted_is_shown_as_discarded(world: World) -> None:
    driver = world.driver()
    run(world, driver, 0, 1, 2)
    finished(world, driver)
    LocalDirectory(world.directory).delete("epochs/0")
    LocalDirectory(world.directory).delete("spark/commits/1")
    assert [c.discarded for c in stored(world).history] == [False, True, True]


def test_the_checkpoint_that_a_job_was_restored_from_is_shown(world: World) -> None:
    path = "hdfs://namenode/checkpoints/clicks/epochs/5"
    identity = {
        "job_id": "b" * 32, "lineage_id": "c" * 32, "name": "job", "first_epoch": 6,
        "created_at": 0.0, "restored_from": {"path": path, "job_id": "a" * 32, "epoch": 5},
    }  # fmt: skip
    (world.directory / "job.json").write_bytes(seal_envelope("job", identity))
    world.decide(5)
    driver = world.driver()
    restored = driver.statistics.read().latest_restored
    assert restored is not None
    assert (restored.id, restored.external_path) == (5, path)
    run(world, driver, 6)
    finished(world, driver)
    run(world, world.driver(), 7)
    again = world.drivers[-1].statistics.read()
    assert again.counts.restored == 2
    assert again.latest_restored is not None
    assert again.latest_restored.external_path == f"file://{world.directory}/epochs/6"


def test_epochs_that_end_too_fast_do_not_pile_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_recorder, "MOST_WAITING", 3)
    driver = world.driver()
    with driver.statistics._files:  # the storage takes no record
        run(world, driver, *range(8))
        until(lambda: [one.epoch for one in driver.statistics.unrecorded()] == [5, 6, 7])
    finished(world, driver)
    assert {5, 6, 7} <= {c.id for c in stored(world).history}


def test_a_record_of_statistics_is_read_as_it_was_written() -> None:
    wanted = CheckpointStatistics(3, CheckpointStatus.FAILED, 17, failure_message="x")
    assert read_as(CheckpointStatistics, record_of(wanted)) == wanted
