"""The tables of `tidemark checkpoints`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tidemark.cli.terminal import ms, size, stdout, time_of
from tidemark.model.checkpoint_statistics import CheckpointStatistics
from tidemark.model.checkpointing_statistics import CheckpointingStatistics
from tidemark.model.stats_summary import StatsSummary

SHOWN = 20
"""Rows of history in the table; --json has all."""


def show_all(found: CheckpointingStatistics) -> None:
    """Print counts, the newest of the history and the summary."""
    console = stdout()
    counts = found.counts
    checkpoints = "checkpoint" if counts.total == 1 else "checkpoints"
    console.print(
        f"{counts.total} {checkpoints}: {counts.completed} completed, {counts.failed} failed, "
        f"{counts.in_progress} in progress; {counts.restored} restored"
    )
    if found.latest_restored is not None:
        restored = found.latest_restored
        console.print(f"last restored: {restored.id}, {_time(restored.restore_timestamp)}")
    history = _table(
        "id", "status", "triggered", "acked", "duration", "start delay", "alignment", "sync",
        "async", "checkpointed", "full size", "processed", "persisted",
    )  # fmt: skip
    for one in found.history[:SHOWN]:
        history.add_row(
            str(one.id),
            one.status.value,
            _time(one.trigger_timestamp),
            f"{one.num_acknowledged_subtasks}/{one.num_subtasks}",
            *map(ms, (one.end_to_end_duration, one.start_delay, one.alignment_duration)),
            *map(ms, (one.sync_duration, one.async_duration)),
            *map(size, (one.checkpointed_size, one.state_size)),
            *map(size, (one.processed_data, one.persisted_data)),
        )
    console.print(history)
    if len(found.history) > SHOWN:
        console.print(f"… and {len(found.history) - SHOWN} older ones: --json shows all")
    for one in found.history[:SHOWN]:
        if one.failure_message:
            console.print(f"{one.id} failed: {one.failure_message}", markup=False)
    if found.latest_completed is None:
        return
    summary = _table("of the completed", "min", "avg", "max", "p50", "p90", "p95", "p99", "p99.9")
    for name, values in found.summary.items():
        summary.add_row(name.replace("_", " "), *_summary(name, values))
    console.print(summary)


def show_one(one: CheckpointStatistics) -> None:
    """Print one checkpoint, its operators and their subtasks."""
    console = stdout()
    console.print(
        f"checkpoint {one.id}: {one.status.value}, triggered {_time(one.trigger_timestamp)}, "
        f"{ms(one.end_to_end_duration)}, {size(one.checkpointed_size)} of "
        f"{size(one.state_size)}; {one.external_path}",
        markup=False,
    )
    if one.failure_message:
        console.print(f"failed: {one.failure_message}", markup=False)
    operators = _table(
        "uid", "subtask", "", "acked", "duration", "start delay", "alignment", "sync", "async",
        "checkpointed", "full size", "processed", "rows",
    )  # fmt: skip
    for task in one.tasks:
        operators.add_row(
            task.uid,
            "all",
            task.name,
            f"{task.num_acknowledged_subtasks}/{task.num_subtasks}",
            ms(task.end_to_end_duration),
            "",
            "",
            *map(ms, (task.sync_duration, task.async_duration)),
            *map(size, (task.checkpointed_size, task.state_size, task.processed_data)),
            str(task.rows),
        )
        for part in task.subtasks:
            operators.add_row(
                "",
                str(part.index),
                "",
                "",
                *map(ms, (part.end_to_end_duration, part.start_delay, part.alignment_duration)),
                *map(ms, (part.sync_duration, part.async_duration)),
                *map(size, (part.checkpointed_size, part.state_size, part.processed_data)),
                str(part.rows),
            )
    console.print(operators)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _summary(name: str, values: StatsSummary) -> Sequence[str]:
    unit = size if name.endswith(("_size", "_data")) else ms
    shown = (values.min, values.avg, values.max)
    percentiles = (values.p50, values.p90, values.p95, values.p99, values.p999)
    return [unit(value) for value in (*shown, *percentiles)]


def _time(timestamp_ms: int) -> str:
    return time_of(timestamp_ms / 1e3)
