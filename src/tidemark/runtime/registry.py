"""The jobs of a storage, running or ended: found by their directories, asked at their drivers.

`operations/` and the dashboard start here: a `RegisteredJob` says where its driver answers.
"""

from __future__ import annotations

import json
import logging
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from tidemark.checkpoint.executions import Execution, ExecutionStart, ExecutionStore
from tidemark.model.errors import UserError
from tidemark.model.job_state import JobState
from tidemark.runtime.checkpoint_history import jobs_in, open_storage

log = logging.getLogger(__name__)

ASK_S = 2.0
"""How long a driver may take to answer."""
_ASKED_AT_ONCE = 16
_SOME_OF_AN_ID = re.compile(r"[0-9a-f]{4,32}")
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A driver is asked at its own address, whatever proxy the environment names."""


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
    host: str
    pid: int

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
            "host": self.host,
            "pid": self.pid,
        }


def list_jobs(storage: str) -> list[RegisteredJob]:
    """Return the jobs whose checkpoints lie in `storage`, by name. A job that was never run by
    `Job.run` (or with an older version) is left out."""
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        found = pool.map(lambda name: newest_execution(storage, name), jobs_in(storage))
        return list(pool.map(_registered, [execution for execution in found if execution]))


def find_job(storage: str, job: str) -> RegisteredJob:
    """Return one job of a storage by its name, its id, or the first digits of its id (four or
    more) if no other job's id begins so.

    Raises UserError, which names the jobs there are, if there is none, or more than one.
    """
    names = jobs_in(storage)
    if job in names:
        execution = newest_execution(storage, job)
        if execution is None:
            raise UserError(
                f"job {job!r} in {storage} was never run by Job.run, or by an older version only: "
                f"nothing but its checkpoints is known; see tidemark checkpoints {job}"
            )
        return _registered(execution)
    if _SOME_OF_AN_ID.fullmatch(job):
        executions = [newest_execution(storage, name) for name in names]
        found = [e for e in executions if e is not None and e.start.job_id.startswith(job)]
        if len(found) == 1:
            return _registered(found[0])
        if found:
            ids = ", ".join(f"{e.start.job_id} ({e.start.name})" for e in found)
            raise UserError(f"{job} begins the ids of {len(found)} jobs: {ids}; give more digits")
    raise UserError(
        f"{storage} holds no job {job!r} (a name, an id, or its first digits); "
        + (f"there are {', '.join(names)}" if names else "there is none at all")
        + ". Another storage is given with --storage"
    )


def newest_execution(storage: str, name: str) -> Execution | None:
    """Return the last `Job.run` of a job, by the job's name; None if there was none."""
    return ExecutionStore(open_storage(f"{storage}/{name}")).newest()


def _registered(execution: Execution) -> RegisteredJob:
    start, end = execution.start, execution.end
    return RegisteredJob(
        name=start.name,
        job_id=start.job_id,
        state=ask_driver(start) if end is None else end.state,
        started_at=start.started_at,
        ended_at=None if end is None else end.ended_at,
        reason="" if end is None else end.reason,
        rest_url=start.rest_url,
        host=start.host,
        pid=start.pid,
    )


def ask_driver(start: ExecutionStart) -> JobState:
    """Return the state that the driver of an execution says it has; UNREACHABLE if it is silent, or
    another job answers at its address."""
    if not start.rest_url:
        return JobState.UNREACHABLE
    try:
        with _DIRECTLY.open(f"{start.rest_url}/jobs/{start.job_id}", timeout=ASK_S) as page:
            found = json.load(page)
        # A port may be taken by another driver of the same job since.
        if found["start-time"] == round(start.started_at * 1000):
            return JobState(found["state"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        log.info("job %s at %s: %s", start.name, start.rest_url, error)
    return JobState.UNREACHABLE
