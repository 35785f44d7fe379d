"""The tables of `seamark checkpoints`."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from seamark.cli.terminal import ms, size, stdout, time_of
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus, Figures
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.stats_summary import StatsSummary

_WIDE = 130
"""Terminal columns wide enough for the whole table."""
SHOWN = 20
"""Rows of history in the table; --json has all."""


def show_all(statistics: CheckpointingStatistics) -> None:
    """Print the counts, the newest checkpoints of the history, and the summary."""
    console = stdout()
    counts = statistics.counts
    checkpoints = "checkpoint" if counts.total == 1 else "checkpoints"
    console.print(
        f"{counts.total} {checkpoints}: {counts.completed} completed, {counts.failed} failed, "
        f"{counts.in_progress} in progress; {counts.restored} restored"
    )
    if statistics.latest_restored is not None:
        restored = statistics.latest_restored
        console.print(f"last restored: {restored.id}, {_time(restored.restore_timestamp)}")
    wide = console.width >= _WIDE
    more = ("acked", "start delay", "alignment", "checkpointed", "processed", "persisted")
    history = _table(
        "id", "status", "triggered", "duration", "sync", "async", "full size", *more * wide
    )
    for one in statistics.history[:SHOWN]:
        row = (
            str(one.id),
            _status(one),
            _time(one.trigger_timestamp),
            *map(ms, (one.end_to_end_duration, one.sync_duration, one.async_duration)),
            size(one.state_size),
            f"{one.num_acknowledged_subtasks}/{one.num_subtasks}",
            *map(ms, (one.start_delay, one.alignment_duration)),
            *map(size, (one.checkpointed_size, one.processed_data, one.persisted_data)),
        )
        history.add_row(*row[: len(history.columns)])
    console.print(history)
    if not wide:
        console.print(f"A wider terminal shows more: {', '.join(more)}", soft_wrap=True)
    if len(statistics.history) > SHOWN:
        console.print(f"… and {len(statistics.history) - SHOWN} older ones: --json shows all")
    for one in statistics.history[:SHOWN]:
        what = f"savepoint of {one.id}" if one.is_savepoint else str(one.id)
        if one.failure_message:
            console.print(f"{what} failed: {one.failure_message}", markup=False)
        elif one.is_savepoint:
            console.print(f"{what}: {one.external_path}", markup=False, soft_wrap=True)
    if statistics.latest_completed is None:
        return
    percentiles = ("min", "avg", "max", "p50", "p90", "p95", "p99", "p99.9")
    summary = _table("of the completed", *percentiles[: None if wide else 6])
    for name, values in statistics.summary.items():
        row = (name.replace("_", " "), *_summary(name, values))
        summary.add_row(*row[: len(summary.columns)])
    console.print(summary)


def show_one(one: CheckpointStatistics) -> None:
    """Print one checkpoint, its operators and their subtasks."""
    console = stdout()
    console.print(
        f"checkpoint {one.id}: {one.status.value}, triggered {_time(one.trigger_timestamp)}, "
        f"{ms(one.end_to_end_duration)}, {size(one.checkpointed_size)} of "
        f"{size(one.state_size)}; {one.external_path}",
        markup=False,
        soft_wrap=True,
    )
    if one.failure_message:
        console.print(f"failed: {one.failure_message}", markup=False)
    wide = console.width >= _WIDE
    more = ("start delay", "alignment", "checkpointed", "processed", "persisted", "skew", "")
    operators = _table(
        "uid", "subtask", "acked", "rows", "duration", "sync", "async", "full size", *more * wide
    )

    def add(
        part: Figures, names: Sequence[str], delays: Sequence[str], what: Sequence[str]
    ) -> None:
        row = (
            *names,
            str(part.rows),
            *map(ms, (part.end_to_end_duration, part.sync_duration, part.async_duration)),
            size(part.state_size),
            *delays,
            *map(size, (part.checkpointed_size, part.processed_data, part.persisted_data)),
            *what,
        )
        operators.add_row(*map(Text, row[: len(operators.columns)]))

    for task in one.tasks:
        acked = f"{task.num_acknowledged_subtasks}/{task.num_subtasks}"
        skew = "" if task.skew is None else f"{task.skew:.1f}"
        what = " ".join((task.name, *(["(unaligned)"] if task.unaligned else [])))
        add(task, (task.uid, "all", acked), ("", ms(task.alignment_duration)), (skew, what))
        for part in task.subtasks:
            delays = (ms(part.start_delay), ms(part.alignment_duration))
            add(part, ("", str(part.index), ""), delays, ("", "unaligned" * part.unaligned))
    console.print(operators)
    if not wide:
        console.print(f"A wider terminal shows more: {', '.join(more[:-1])}", soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _status(one: CheckpointStatistics) -> str:
    """Return SAVEPOINT for a whole savepoint, otherwise the status: it has its checkpoint's id."""
    completed = one.status is CheckpointStatus.COMPLETED
    return "SAVEPOINT" if one.is_savepoint and completed else one.status.value


def _summary(name: str, values: StatsSummary) -> Sequence[str]:
    unit = size if name.endswith(("_size", "_data")) else ms
    shown = (values.min, values.avg, values.max)
    percentiles = (values.p50, values.p90, values.p95, values.p99, values.p999)
    return [unit(value) for value in (*shown, *percentiles)]


def _time(timestamp_ms: int) -> str:
    return time_of(timestamp_ms / 1e3)
