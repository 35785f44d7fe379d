"""What the tasks of an epoch returned, and what it adds up to for each sink.

`runtime/pre_commit.py` makes the reports; `checkpoint/statistics.py` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamark.checkpoint.store import SinkEpoch


@dataclass(frozen=True)
class SinkReport:
    """What one task wrote to one sink: rows, their bytes in Arrow, seconds in `write` and in
    `prepare_commit`, and the dumped committables."""

    rows: int
    committables: tuple[bytes, ...]
    data_bytes: int = 0
    write_s: float = 0.0
    flush_s: float = 0.0


@dataclass(frozen=True)
class TaskReport:
    """One task: the winning attempt of one partition. Times are seconds since 1970 by the clock of
    the machine it ran on, for people only; `sinks` has those that got rows."""

    partition: int
    attempt: int
    started_at: float
    ended_at: float
    sinks: Mapping[str, SinkReport]


def sink_epochs(tasks: Sequence[TaskReport]) -> dict[str, SinkEpoch]:
    """Add up the tasks of an epoch, by sink uid."""
    rows: dict[str, int] = {}
    committables: dict[str, list[bytes]] = {}
    for task in tasks:
        for uid, part in task.sinks.items():
            rows[uid] = rows.get(uid, 0) + part.rows
            committables.setdefault(uid, []).extend(part.committables)
    return {uid: SinkEpoch(rows[uid], tuple(committables[uid])) for uid in rows}
