"""The jobs of a storage, running or ended: found by their directories, asked at their drivers."""

from __future__ import annotations

import json
import logging
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tidemark.checkpoint.executions import Execution, ExecutionStore
from tidemark.model.job_state import JobState
from tidemark.runtime.checkpoint_history import jobs_in, open_storage

log = logging.getLogger(__name__)

ASK_S = 2.0
"""How long a driver may take to answer."""
_ASKED_AT_ONCE = 16


@dataclass(frozen=True)
class RegisteredJob:
    """One job and its last execution. `ended_at`, in seconds since 1970 as `started_at`, is None
    where nobody has recorded an end."""

    name: str
    job_id: str
    state: JobState
    started_at: float
    ended_at: float | None
    reason: str
    rest_url: str

    def to_json(self) -> dict[str, Any]:
        """Return it in the fields of Flink's ``/jobs/overview``; times are milliseconds since 1970,
        and ``end-time`` is -1 of a job that has not ended."""
        return {
            "jid": self.job_id,
            "name": self.name,
            "state": self.state.value,
            "start-time": round(self.started_at * 1000),
            "end-time": -1 if self.ended_at is None else round(self.ended_at * 1000),
            "reason": self.reason,
            "rest-url": self.rest_url,
        }


def list_jobs(storage: str) -> list[RegisteredJob]:
    """Return the jobs whose checkpoints lie in `storage`, by name. A job that was never run by
    `Job.run` (or with an older version) is left out."""
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        found = pool.map(lambda name: _job(storage, name), jobs_in(storage))
        return [job for job in found if job is not None]


def _job(storage: str, name: str) -> RegisteredJob | None:
    execution = ExecutionStore(open_storage(f"{storage}/{name}")).newest()
    if execution is None:
        return None
    start, end = execution.start, execution.end
    return RegisteredJob(
        name=name,
        job_id=start.job_id,
        state=ask(execution) if end is None else end.state,
        started_at=start.started_at,
        ended_at=None if end is None else end.ended_at,
        reason="" if end is None else end.reason,
        rest_url=start.rest_url,
    )


def ask(execution: Execution) -> JobState:
    """Return the state that the driver of an execution says it has; UNREACHABLE if it is silent, or
    another job answers at its address."""
    start = execution.start
    if not start.rest_url:
        return JobState.UNREACHABLE
    try:
        with urllib.request.urlopen(f"{start.rest_url}/jobs/{start.job_id}", timeout=ASK_S) as page:
            found = json.load(page)
        # A port may be taken by another driver of the same job since.
        if found["start-time"] == round(start.started_at * 1000):
            return JobState(found["state"])
    except (OSError, ValueError, KeyError) as error:
        log.info("job %s at %s: %s", start.name, start.rest_url, error)
    return JobState.UNREACHABLE
