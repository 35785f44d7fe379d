"""The jobs of a storage with their states: listed by their directories (`listing.py`), asked at
their drivers (`driver.py`)."""

import logging
import socket
from dataclasses import dataclass
from typing import Any

from seamark.checkpoint.store import CheckpointStore
from seamark.files import in_threads
from seamark.jobs.checkpoint_history import READ_AT_ONCE
from seamark.jobs.driver import Driver, is_alive
from seamark.jobs.listing import ListedJob, find_listed, listed, open_job
from seamark.model.errors import CorruptRecordError
from seamark.model.job_state import JobState
from seamark.protocol.verdicts import DriverState

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RegisteredJob(ListedJob):
    """One job of a storage. `state` is its driver's answer, or the recorded end."""

    state: JobState

    @property
    def reason(self) -> str:
        """Why it has failed; "" unless it has."""
        return "" if self.execution.end is None else self.execution.end.reason

    def to_json(self) -> dict[str, Any]:
        """Return the job in the fields of `Execution.row`, and where it is."""
        start = self.start
        return {
            **self.execution.row(self.state),
            "name": self.name,
            "reason": self.reason,
            "rest-url": start.rest_url,
            "host": start.host,
            "pid": start.pid,
            "log": start.log,
            "directory": self.uri,
        }


def list_jobs(storage: str) -> list[RegisteredJob]:
    """Return the jobs of a storage, as `listed`."""
    return in_threads(asked, listed(storage), READ_AT_ONCE)


def find_job(storage: str, job: str) -> RegisteredJob:
    """Return one job of a storage, as `find_listed`."""
    return asked(find_listed(storage, job))


def asked(job: ListedJob) -> RegisteredJob:
    """Return a job with its state of this moment."""
    past = job.superseded
    state = JobState.SUPERSEDED if past else Driver(job.execution, job.name).state()
    return RegisteredJob(
        job.storage, job.directory, job.name, job.execution, state, superseded=past
    )


def driver_state(storage: str, directory: str, store: CheckpointStore) -> DriverState:
    """Return the state of the driver with the newest lease of the job in this directory of
    `storage`."""
    try:
        lease = store.newest_lease()
    except CorruptRecordError as error:  # its name alone counts: a start goes on too
        log.warning("%s", error)
        return DriverState.UNKNOWN
    if lease is None:
        return DriverState.IS_GONE
    here = lease["host"] == socket.gethostname()
    if here and not is_alive(int(lease["pid"])):
        return DriverState.IS_GONE
    job = open_job(storage, directory)
    if job is None or (job.start.host, job.start.pid) != (lease["host"], lease["pid"]):
        return DriverState.UNKNOWN  # it is just starting, or its machine cannot be asked
    if (end := job.execution.end) is not None:
        # One program may run its job several times. The lease is then newer than the end.
        ended = end.ended_at >= lease["started_at"]
        return DriverState.IS_GONE if ended else DriverState.UNKNOWN
    unreachable = asked(job).state is JobState.UNREACHABLE
    return DriverState.UNKNOWN if unreachable else DriverState.LIVES
