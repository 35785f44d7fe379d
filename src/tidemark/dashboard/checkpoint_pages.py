"""A part of a job's checkpoint history, and its figures over time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tidemark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from tidemark.model.checkpointing_statistics import CheckpointingStatistics
from tidemark.model.phases import phases
from tidemark.model.rates import lag, records_in, records_out
from tidemark.model.stats_summary import UNKNOWN


def checkpoints_page(
    found: CheckpointingStatistics,
    limit: int,
    before: int | None,
    status: CheckpointStatus | None,
) -> dict[str, Any]:
    """Return Flink's ``/jobs/:id/checkpoints`` with the newest `limit` checkpoints of the history
    that were triggered before `before` (ms since 1970) and have this status; None is all.
    `matching` (Tidemark's) is how many have this status."""
    matching = [c for c in found.history if status in (None, c.status)]
    shown = [c for c in matching if before is None or c.trigger_timestamp < before]
    part = CheckpointingStatistics(**{**vars(found), "history": shown[:limit]}).to_json()
    return {**part, "matching": len(matching), "older": max(len(shown) - limit, 0)}


def details_page(one: CheckpointStatistics) -> dict[str, Any]:
    """Return Flink's ``/jobs/:id/checkpoints/details/:n``; `phases` is Tidemark's."""
    return {**one.to_json(details=True), "phases": asdict(phases(one))}


def series(history: Sequence[CheckpointStatistics], since: int) -> dict[str, list[Any]]:
    """Return ``/jobs/:id/series``: columns, oldest first, of the checkpoints triggered at `since`
    (ms since 1970) or later; None is unknown. `history` is newest first."""
    shown = [c for c in reversed(history) if c.trigger_timestamp >= since]
    rows = [_point(c) for c in shown]
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _point(one: CheckpointStatistics) -> dict[str, Any]:
    figures = {
        "id": one.id,
        "trigger_timestamp": one.trigger_timestamp,
        "status": one.status.value,
        "end_to_end_duration": one.end_to_end_duration,
        **asdict(phases(one)),
        "checkpointed_size": one.checkpointed_size,
        "state_size": one.state_size,
        "persisted_data": one.persisted_data,
        "processed_data": one.processed_data,
        "records_in": records_in(one),
        "records_out": records_out(one),
        "lag": lag(one),
    }
    return {name: None if value == UNKNOWN else value for name, value in figures.items()}
