"""Flink's pages of a checkpoint history, with the dashboard's additions. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from seamark.checkpoint.statistics import describe_savepoint
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.phases import phases
from seamark.model.stats_summary import UNKNOWN


def checkpoints_page(
    statistics: CheckpointingStatistics,
    limit: int,
    before: int | None,
    status: CheckpointStatus | None,
    epoch: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return Flink's ``/jobs/:id/checkpoints`` with a part of the history. The part is the newest
    `limit` checkpoints triggered before `before` (ms since 1970) with this status; None is all.
    Seamark's are `matching`, the number of checkpoints with this status, `older`, the number of
    them older than the part, and `epoch`, a driver's ``/jobs/:id/epoch``."""
    matching = [c for c in statistics.history if status in (None, c.status)]
    shown = [c for c in matching if before is None or 0 <= c.trigger_timestamp < before]
    part = replace(statistics, history=shown[:limit]).to_json()
    older = max(len(shown) - limit, 0)
    return {**part, "matching": len(matching), "older": older, "epoch": epoch}


def details_page(one: CheckpointStatistics) -> dict[str, Any]:
    """Return Flink's ``/jobs/:id/checkpoints/details/:n``; `phases` is Seamark's, and missing for a
    savepoint."""
    phased = {} if one.is_savepoint else {"phases": asdict(phases(one))}
    return {**one.to_json(details=True), **phased}


def epoch_beside(statistics: CheckpointingStatistics, epoch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a driver's ``/jobs/:id/epoch`` as it is beside `found`, a history read after the
    driver answered: epochs in the history are no longer under way."""
    ended = {(c.id, c.trigger_timestamp): c for c in statistics.history if not c.is_savepoint}

    def is_over(one: Mapping[str, Any]) -> bool:
        return (one["id"], one.get("trigger-timestamp", UNKNOWN)) in ended

    last = statistics.latest_completed
    shown = {
        **epoch,
        "last-completed": UNKNOWN if last is None else last.id,
        "uncommitted": [one for one in epoch["uncommitted"] if not is_over(one)],
    }
    if is_over(epoch):
        over = ended[epoch["id"], epoch["trigger-timestamp"]]
        since = over.trigger_timestamp + max(over.end_to_end_duration, 0)
        none = {"id": UNKNOWN, "trigger-timestamp": UNKNOWN, "phase": "IDLE", "phase-since": since}
        shown |= none
    return shown


def with_those_under_way(
    statistics: CheckpointingStatistics, epoch: Mapping[str, Any]
) -> CheckpointingStatistics:
    """Return the stored history `found` with the checkpoints and savepoints of a driver's
    ``/jobs/:id/epoch`` added. Only their ids, trigger times and formats are known. If `found` was
    read after the driver answered, no checkpoint is missed in between."""
    recorded = {(c.id, c.trigger_timestamp, c.is_savepoint) for c in statistics.history}
    older = [*epoch.get("unrecorded", ()), *epoch["uncommitted"]]
    under_way = [
        CheckpointStatistics(one["id"], CheckpointStatus.IN_PROGRESS, triggered)
        for one in (epoch, *reversed(older))
        if (triggered := one.get("trigger-timestamp", UNKNOWN)) != UNKNOWN
        and (one["id"], triggered, False) not in recorded
    ]
    savepoints = [
        describe_savepoint(one["id"], one["format"], one["trigger-timestamp"] / 1e3)
        for one in epoch.get("savepoints", ())
        if (one["id"], one["trigger-timestamp"], True) not in recorded
    ]
    return replace(
        statistics,
        counts=replace(statistics.counts, in_progress=len(under_way) + len(savepoints)),
        history=(*under_way, *savepoints, *statistics.history),
    )
