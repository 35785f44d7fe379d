"""The log's one line for each ended epoch, at INFO, on the logger ``seamark.epochs``.

    epoch=7 status=COMPLETED job=clicks job_id=… generation=1 rows=120 data_bytes=4096 …

Its form is stable: docs/operations/logs.md. The same fields are attributes of the log record, for
formatters that write JSON.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict

from seamark.checkpoint.task_reports import EpochProgress
from seamark.model.checkpoint_statistics import CheckpointStatus
from seamark.model.phases import Phases

log = logging.getLogger("seamark.epochs")


def log_epoch(
    job: str,
    job_id: str,
    generation: int,
    progress: EpochProgress,
    status: CheckpointStatus,
    reason: str = "",
) -> None:
    """Write the line of an epoch that has just ended; costs nothing if the logger is off."""
    if not log.isEnabledFor(logging.INFO):
        return
    parts = [part for task in progress.tasks for part in task.sinks.values()]
    fields: dict[str, str | int] = {
        "epoch": progress.epoch,
        "status": status.value,
        "job": job,
        "job_id": job_id,
        "generation": generation,
        "rows": progress.rows,
        "data_bytes": sum(part.data_bytes for part in parts),
        "committables": sum(len(part.committables) for part in parts),
        "duration_ms": _ms(progress.started_s, progress.committed_s or time.monotonic()),
        **{f"{name}_ms": ms for name, ms in asdict(_phases(progress)).items() if ms >= 0},
    }
    if progress.stored_s and progress.commit_started_s:
        fields["decision_wait_ms"] = _ms(progress.stored_s, progress.commit_started_s)
    if reason:
        fields["reason"] = reason
    line = " ".join(f"{name}={_text(value)}" for name, value in fields.items())
    log.info("%s", line, extra=fields)


def _phases(progress: EpochProgress) -> Phases:
    """Return the phases, as `model/phases.py` makes them from statistics."""
    if not progress.pre_committed_s:
        return Phases()
    sync = _ms(progress.started_s, progress.pre_committed_s)
    writing = (
        sum(part.write_s + part.flush_s for part in task.sinks.values()) for task in progress.tasks
    )
    pre_commit = min(round(max(writing, default=0.0) * 1e3), sync)
    if not (progress.decided_s and progress.committed_s):
        return Phases(sync - pre_commit, pre_commit)
    commit = _ms(progress.decided_s, progress.committed_s)
    whole = _ms(progress.started_s, progress.committed_s)
    return Phases(sync - pre_commit, pre_commit, max(whole - sync - commit, 0), commit)


def _ms(start_s: float, end_s: float) -> int:
    return round((end_s - start_s) * 1e3)


def _text(value: str | int) -> str:
    """Return a value as in logfmt: text with anything but plain characters in JSON's quotes."""
    if isinstance(value, str) and (not value or any(c in value for c in ' ="\n\r\t\\')):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
