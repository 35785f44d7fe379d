"""How: savepoints are told to the recorder of a real coordinator on a real directory, between its
epochs (Spark is played by `decide`); the history is read while they are written, and when the
driver is gone."""

from __future__ import annotations

import pytest

from seamark.checkpoint import statistics_store
from seamark.checkpoint.statistics import SavepointEnd
from seamark.model.checkpoint_series import series
from seamark.model.checkpoint_statistics import CheckpointStatus, TaskCheckpointStatistics
from tests.unit.checkpoint.test_coordinator import World, until
from tests.unit.checkpoint.test_statistics import finished, run, stored, world

__all__ = ["world"]

OPERATOR = TaskCheckpointStatistics(
    "digits", "operator", "stateStoreSave", CheckpointStatus.COMPLETED, state_size=90, rows=10,
    num_subtasks=3,
)  # fmt: skip


def asked_after(world: World, epoch: int) -> float:
    """A moment between the triggers of this epoch and of the next."""
    (one,) = (c for c in world.drivers[-1].statistics.read().history if c.id == epoch)
    return (one.trigger_timestamp + 1) / 1e3


def test_a_savepoint_stands_beside_its_epoch_and_later_epochs_above_it(world: World) -> None:
    driver = world.driver()
    run(world, driver, 0, 1)
    key = driver.statistics.savepoint_begun(1, "CANONICAL", asked_after(world, 1))
    before = driver.statistics.version
    shown = driver.statistics.read()
    assert [(c.id, c.is_savepoint, c.status.value) for c in shown.history] == [
        (1, True, "IN_PROGRESS"), (1, False, "COMPLETED"), (0, False, "COMPLETED"),
    ]  # fmt: skip
    assert (shown.counts.in_progress, shown.counts.total) == (1, 3)
    run(world, driver, 2)
    until(lambda: len(list((world.directory / "statistics").glob("*"))) == 3)
    end = SavepointEnd(1.5, "file:///savepoints/savepoint-1", 120, [OPERATOR])
    driver.statistics.savepoint_ended(key, end)
    assert driver.statistics.version != before
    failed = driver.statistics.savepoint_begun(1, "NATIVE", asked_after(world, 2))
    driver.statistics.savepoint_ended(failed, SavepointEnd(0.2, failure="the disk is full"))
    finished(world, driver)

    after = stored(world)
    assert [(c.id, c.is_savepoint, c.status.value) for c in after.history] == [
        (1, True, "FAILED"),
        (2, False, "COMPLETED"),
        (1, True, "COMPLETED"),
        (1, False, "COMPLETED"),
        (0, False, "COMPLETED"),
    ]
    assert after.counts.to_json() == {
        "restored": 0, "total": 5, "in_progress": 0, "completed": 4, "failed": 1
    }  # fmt: skip
    whole = after.latest_savepoint
    assert whole is after.history[2]
    shown_savepoint = whole.to_json(details=True)
    assert shown_savepoint["checkpoint_type"] == "SAVEPOINT"
    assert shown_savepoint["savepointFormat"] == "CANONICAL"
    assert shown_savepoint["external_path"] == "file:///savepoints/savepoint-1"
    assert shown_savepoint["discarded"] is False
    assert (shown_savepoint["state_size"], shown_savepoint["end_to_end_duration"]) == (120, 1500)
    assert shown_savepoint["tasks"]["digits"]["rows"] == 10
    assert after.latest_failed is after.history[0]
    # Requests for checkpoints are not told of savepoints.
    assert after.latest_completed is after.history[1]
    assert after.find(1) is after.history[3]
    assert series(after.history)["id"] == [0, 1, 2]
    assert after.summary["end_to_end_duration"].max < 1500


def test_the_next_driver_goes_on_counting_and_old_savepoints_are_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_store, "SAVEPOINTS_KEPT", 2)
    driver = world.driver()
    run(world, driver, 0, 1)
    until(lambda: len(list((world.directory / "statistics").glob("*"))) == 2)
    for number in range(3):  # of an epoch that is not the last one, so not the last file by name
        key = driver.statistics.savepoint_begun(0, "CANONICAL", number)
        driver.statistics.savepoint_ended(key, SavepointEnd(0.1, f"file:///{number}", 1))
    finished(world, driver)
    names = {path.name for path in (world.directory / "statistics").glob("*savepoint*")}
    assert names == {"1.0.savepoint-1.json", "1.0.savepoint-2.json"}
    assert stored(world).counts.completed == 5

    second = world.driver()
    run(world, second, 2)
    finished(world, second)
    assert stored(world).counts.completed == 6
