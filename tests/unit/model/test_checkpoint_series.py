"""How: columns are made of a handwritten history."""

from __future__ import annotations

from seamark.model.checkpoint_series import LONGEST, series
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus


def checkpoint(id_: int, **figures: int) -> CheckpointStatistics:
    return CheckpointStatistics(id_, CheckpointStatus.COMPLETED, 1000 + id_, **figures)


def test_columns_are_oldest_first_and_what_is_unknown_is_none() -> None:
    done = checkpoint(7, end_to_end_duration=100, sync_duration=60, async_duration=30, state_size=5)
    running = CheckpointStatistics(8, CheckpointStatus.IN_PROGRESS, 1008)
    columns = series([running, done])
    assert columns["id"] == [7, 8]
    assert columns["trigger_timestamp"] == [1007, 1008]
    assert columns["status"] == ["COMPLETED", "IN_PROGRESS"]
    assert columns["end_to_end_duration"] == [100, None]
    assert columns["state_size"] == [5, 0]
    parts = ("read_and_process", "pre_commit", "decision", "commit")
    assert [columns[part] for part in parts] == [[60, None], [0, None], [10, None], [30, None]]
    assert columns["records_in"] == columns["lag"] == [None, None]


def test_only_those_since_a_trigger_and_at_most_the_newest() -> None:
    history = [checkpoint(id_) for id_ in reversed(range(LONGEST + 5))]
    assert series(history, since=1000 + LONGEST)["id"] == list(range(LONGEST, LONGEST + 5))
    assert series(history)["id"] == list(range(5, LONGEST + 5))
    empty = series([], since=3)
    assert set(map(tuple, empty.values())) == {()}
    assert len(empty) == 15
