"""The jobs of a storage, running or ended: found by their directories, asked at their drivers.

`operations/` and the dashboard start here: a `RegisteredJob` holds its driver's address.
"""

import json
import logging
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from seamark.api.rest_config import RestConfig
from seamark.checkpoint.executions import Execution, ExecutionStart, ExecutionStore
from seamark.checkpoint.store import CheckpointStore
from seamark.file_systems import in_threads
from seamark.model.errors import CorruptRecordError, UserError
from seamark.model.job_state import JobState
from seamark.protocol.verdicts import DriverState
from seamark.runtime.checkpoint_history import jobs_in, open_storage
from seamark.runtime.driver_http import DriverSilentError, ask
from seamark.runtime.token import is_signed, tokens_at_hand

log = logging.getLogger(__name__)

_ASKED_AT_ONCE = 16
_SOME_OF_AN_ID = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True)
class RegisteredJob:
    """One job of a storage, with its last execution. `directory` is the name of its directory
    there, `state` its driver's answer, or the recorded end."""

    storage: str
    directory: str
    name: str
    execution: Execution = field(repr=False)
    state: JobState

    def __str__(self) -> str:
        return f"{self.name} ({self.start.job_id})"

    @property
    def start(self) -> ExecutionStart:
        """The start of its last execution: the job's id, and where its driver is."""
        return self.execution.start

    @property
    def uri(self) -> str:
        """The URI of its directory."""
        return f"{self.storage}/{self.directory}"

    @property
    def reason(self) -> str:
        """Why it has failed; "" unless it has."""
        return "" if self.execution.end is None else self.execution.end.reason

    def to_json(self) -> dict[str, Any]:
        """Return the job in the fields of Flink's ``/jobs/overview``. Times are milliseconds since
        1970; ``end-time`` is -1 for a job that has not ended."""
        start, end = self.start, self.execution.end
        return {
            "jid": start.job_id,
            "name": self.name,
            "state": self.state.value,
            "start-time": round(start.started_at * 1000),
            "end-time": -1 if end is None else round(end.ended_at * 1000),
            "reason": self.reason,
            "rest-url": start.rest_url,
            "host": start.host,
            "pid": start.pid,
        }


def list_jobs(storage: str) -> list[RegisteredJob]:
    """Return the jobs with checkpoints in `storage`, by name. Leaves out a job never run by
    `Job.run`, or run by an older version only."""
    return in_threads(lambda pair: _registered(storage, *pair), _executed(storage), _ASKED_AT_ONCE)


def find_job(storage: str, job: str) -> RegisteredJob:
    """Return one job of a storage by its directory's name, its own name, its id, or the first
    digits of its id. Four digits or more are needed, and no other job's id may begin with them.

    Raises UserError, with the names of the existing jobs, if no job or more than one matches.
    """
    names = jobs_in(storage)
    if job in names:
        execution = newest_execution(storage, job)
        if execution is None:
            raise UserError(
                f"job {job!r} in {storage} was never run by Job.run, or by an older version only: "
                f"nothing but its checkpoints is known; see seamark checkpoints {job}"
            )
        return _registered(storage, job, execution)
    executions = _executed(storage)
    found = [(n, e) for n, e in executions if name_in(storage, n, e) == job]
    if len(found) > 1:
        raise UserError(
            f"{len(found)} jobs in {storage} have the name {job!r}; give the directory's name: "
            + ", ".join(name for name, _ in found)
        )
    if not found and _SOME_OF_AN_ID.fullmatch(job):
        found = [(n, e) for n, e in executions if e.start.job_id.startswith(job)]
        if len(found) > 1:
            ids = ", ".join(f"{e.start.job_id} ({name})" for name, e in found)
            raise UserError(f"{job} begins the ids of {len(found)} jobs: {ids}; give more digits")
    if found:
        return _registered(storage, *found[0])
    raise UserError(
        f"{storage} holds no job {job!r} (a name, an id, or its first digits); "
        + (f"there are {', '.join(names)}" if names else "there is none at all")
        + ". Another storage is given with --storage"
    )


def directory_of(storage: str, job: str) -> str:
    """Return the name of a job's directory, as `find_job` finds it. A job never run needs no more
    than its directory."""
    return job if job in jobs_in(storage) else find_job(storage, job).directory


def newest_execution(storage: str, directory: str) -> Execution | None:
    """Return the last run of the job in this directory of `storage`; None if there was none."""
    return ExecutionStore(open_storage(f"{storage}/{directory}")).newest()


def name_in(storage: str, directory: str, execution: Execution) -> str:
    """Return the name of the job in this directory: the directory's own, or the name in its
    job.json. `execution` is its last run, which may be another job's that was copied there."""
    if execution.start.name == directory:
        return directory
    files = open_storage(f"{storage}/{directory}")
    try:
        return CheckpointStore(files, files).read_identity().name
    except (CorruptRecordError, OSError) as error:
        log.info("%s", error)
        return directory


def _executed(storage: str) -> Sequence[tuple[str, Execution]]:
    """Return the directories of the jobs ever run, each with the last execution."""
    names = jobs_in(storage)
    executions = in_threads(lambda name: newest_execution(storage, name), names, _ASKED_AT_ONCE)
    return [(name, one) for name, one in zip(names, executions, strict=True) if one]


def _registered(storage: str, directory: str, execution: Execution) -> RegisteredJob:
    name = name_in(storage, directory, execution)
    if (end := execution.end) is not None:
        state = end.state
    else:
        state = ask_driver(execution.start, token_for_reading(execution, name))
    return RegisteredJob(storage, directory, name, execution, state)


# --- its driver


def driver_state(storage: str, directory: str, store: CheckpointStore) -> DriverState:
    """Return the state of the driver with the newest lease of the job in this directory of
    `storage`."""
    lease = store.newest_lease()
    if lease is None:
        return DriverState.IS_GONE
    here = lease["host"] == socket.gethostname()
    if here and not is_alive(int(lease["pid"])):
        return DriverState.IS_GONE
    execution = newest_execution(storage, directory)
    holder = (lease["host"], lease["pid"])
    if execution is None or (execution.start.host, execution.start.pid) != holder:
        return DriverState.UNKNOWN  # it is just starting, or its machine cannot be asked
    if execution.end is not None:
        # One program may run its job several times. The lease is then newer than the end.
        ended = execution.end.ended_at >= lease["started_at"]
        return DriverState.IS_GONE if ended else DriverState.UNKNOWN
    state = _registered(storage, directory, execution).state
    return DriverState.UNKNOWN if state is JobState.UNREACHABLE else DriverState.LIVES


def ask_driver(start: ExecutionStart, token: str = "") -> JobState:
    """Return the state reported by the driver of an execution; UNREACHABLE if the driver is silent,
    or another job answers at its address. `token` is sent along, "" for none."""
    if not start.rest_url:
        return JobState.UNREACHABLE
    try:
        page = json.loads(ask(start.rest_url, f"/jobs/{start.job_id}", token).body)
        # A port may be taken by another driver of the same job since.
        if page["start-time"] == round(start.started_at * 1000):
            return JobState(page["state"])
    except (DriverSilentError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.info("job %s at %s: %s", start.name, start.rest_url, error)
    return JobState.UNREACHABLE


def require_signed(execution: Execution, name: str, token: str) -> None:
    """Raise UserError unless the driver with this token has written this record, as the record of
    the job `name`. Called before the token is sent to the address in the record."""
    where = f"job {name!r}: {execution.record} says that its driver answers at "
    where += f"{execution.start.rest_url or 'no address'}, but "
    not_sent = "; the token was not sent there. If nobody but the driver writes into the storage, "
    if not execution.signature:
        raise UserError(
            f"{where}no driver has signed that{not_sent}it is of an older version: end it with "
            f"SIGTERM (pid {execution.start.pid} on {execution.start.host}) and start it again"
        )
    if execution.start.name != name or not is_signed(token, execution.content, execution.signature):
        raise UserError(
            f"{where}it is not signed with the job's token{not_sent}the token is that of another "
            "driver"
        )


def signing_token(execution: Execution, name: str) -> str | None:
    """Return the token at hand with which the driver of the job `name` has signed this record; None
    if there is no token at hand. Raises UserError if none of them has signed it."""
    refusal: UserError | None = None
    for token in tokens_at_hand(execution.start.job_id):
        try:
            require_signed(execution, name, token)
            return token
        except UserError as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal
    return None


def token_for_reading(execution: Execution, name: str) -> str:
    """Return the job's token for read requests to the driver of the job `name`, or "". With the
    token the driver answers before it answers others. The token is "" if it is not at hand, if the
    driver is on another machine, or if the driver has not signed its address."""
    try:
        host = urlsplit(execution.start.rest_url).hostname or ""
        if RestConfig(address=host).is_loopback:
            return signing_token(execution, name) or ""
    except (UserError, ValueError) as error:
        log.info("%s", error)
    return ""


def is_alive(pid: int) -> bool:
    """Return whether this machine has a process `pid`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
