"""How: handwritten statistics with round figures, for rates worked out in one's head."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seamark.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    SubtaskCheckpointStatistics,
    TaskCheckpointStatistics,
)
from seamark.model.rates import OFFSETS_BEHIND, Rates, busy_ms, lag, rates, records_in, records_out

DONE = CheckpointStatus.COMPLETED


def source(uid: str, rows: int, **metrics: int) -> TaskCheckpointStatistics:
    return TaskCheckpointStatistics(uid, "source", uid, DONE, rows=rows, metrics=metrics)


def operator(uid: str, **metrics: int) -> TaskCheckpointStatistics:
    return TaskCheckpointStatistics(
        uid, "operator", uid, DONE, rows=3, num_subtasks=8, metrics=metrics
    )


def sink(uid: str, rows: int, written_ms: int = 0, commit_ms: int = -1) -> TaskCheckpointStatistics:
    """For two tasks from 10 ms to 110 ms after the trigger."""
    parts = [
        SubtaskCheckpointStatistics(
            index, end_to_end_duration=110, start_delay=10, sync_duration=written_ms
        )
        for index in range(2)
    ]
    return TaskCheckpointStatistics(
        uid, "sink", uid, DONE, async_duration=commit_ms, rows=rows, num_subtasks=2, subtasks=parts
    )


def checkpoint(id_: int, *tasks: TaskCheckpointStatistics, at_ms: int = 0) -> CheckpointStatistics:
    durations = {"latestOffset": 5, "getBatch": 1}
    return CheckpointStatistics(
        id_, DONE, at_ms or id_ * 1000, tasks=tasks, spark_durations=durations
    )


def test_rows_and_lag_are_summed_over_sources_and_sinks() -> None:
    behind = source("b", 7, **{OFFSETS_BEHIND: 20})
    both = checkpoint(1, source("a", 5), behind, sink("x", 4), sink("y", 3))
    assert (records_in(both), records_out(both), lag(both)) == (12, 7, 20)


def test_what_is_not_known_is_none_and_not_nought() -> None:
    nothing = checkpoint(1)
    assert (records_in(nothing), records_out(nothing), lag(nothing)) == (None, None, None)
    assert lag(checkpoint(1, source("a", 5))) is None
    caught_up = checkpoint(1, source("a", 5, **{OFFSETS_BEHIND: 0}))
    assert lag(caught_up) == 0


def test_a_rate_counts_each_checkpoint_up_to_the_next_trigger() -> None:
    history = [checkpoint(n, source("a", 100), sink("x", 50, 20, 10)) for n in range(1, 5)]
    found = rates(history, "a", now_ms=4500, slots=4)
    assert found.records_per_second == pytest.approx(100)
    # 6 ms of planning, and of 100 ms in each of two tasks the 80 that are not the sink's
    assert found.busy_share == pytest.approx(0.086)
    assert rates(history, "x", 4500, 4).busy_share == pytest.approx(0.030)


def test_rates_fall_when_no_checkpoint_comes_any_more() -> None:
    history = [checkpoint(n, source("a", 100)) for n in range(1, 5)]
    assert rates(history, "a", now_ms=41_000, slots=4).records_per_second == pytest.approx(10)


def test_old_checkpoints_count_only_while_there_are_less_than_ten() -> None:
    slow = [checkpoint(n, source("a", 0), at_ms=n * 60_000) for n in range(1, 12)]
    fast = [checkpoint(n, source("a", 100), at_ms=11 * 60_000 + n * 1000) for n in range(1, 11)]
    now = 11 * 60_000 + 10_500
    assert rates([*slow, *fast], "a", now, 4).records_per_second == pytest.approx(90)
    # the eleventh slow one is within the minute
    assert rates(slow[:2], "a", 121_000, 4) == Rates(0.0, None)
    assert rates(slow[:1], "a", 61_000, 4) == Rates()


def test_a_checkpoint_without_the_parts_figures_takes_its_time_with_it() -> None:
    known = [checkpoint(n, source("a", 100)) for n in range(1, 5)]
    known[1] = replace(known[1], tasks=())
    assert rates(known, "a", 4500, 4).records_per_second == pytest.approx(100)


def test_parallel_work_is_divided_by_the_tasks_that_run_at_once() -> None:
    times = {"allUpdatesTimeMs": 60, "allRemovalsTimeMs": 10, "commitTimeMs": 10}
    one = checkpoint(1, source("a", 1), operator("count", **times), sink("x", 1, 30, 10))
    assert busy_ms(one, "count", slots=4) == 20
    assert busy_ms(one, "count", slots=16) == 10
    assert busy_ms(one, "x", slots=1) == 70
    assert busy_ms(one, "x", slots=4) == 40


def test_the_reading_of_a_source_is_not_measured_behind_a_shuffle_or_beside_another() -> None:
    alone = checkpoint(1, source("a", 1), sink("x", 1, 30))
    assert busy_ms(alone, "a", slots=4) == 76
    assert busy_ms(checkpoint(1, source("a", 1), operator("c"), sink("x", 1)), "a", 4) is None
    assert busy_ms(checkpoint(1, source("a", 1), source("b", 1), sink("x", 1)), "a", 4) is None
    assert busy_ms(checkpoint(1, source("a", 1)), "a", 4) is None, "before the pre-commit"
    assert busy_ms(alone, "nobody", 4) is None
