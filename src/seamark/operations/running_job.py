"""Finds a running job and its driver, for every command with a request to the job."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from seamark.model.errors import DriverUnreachableError
from seamark.model.job_state import JobState
from seamark.operations.driver_client import DriverClient
from seamark.operations.storage import readable, storage_of
from seamark.runtime.registry import RegisteredJob, find_job, is_alive

AGAIN = "start its program again, and it goes on after its last decided epoch: seamark run APP.PY"


@dataclass(frozen=True)
class RunningJob:
    """A job with an answering driver, and the storage in which it was found."""

    job: RegisteredJob
    storage: str
    driver: DriverClient


def find_running(
    command: str, job: str, storage: str | None, token_file: Path | None = None
) -> RunningJob:
    """Return a job, found by name, id or the first digits of its id. An error about the storage
    names `command`. Raises UserError if there is no such job, and DriverUnreachableError if no
    driver answers for it: the error says how the job ended, or where its driver should be."""
    uri = storage_of(command, storage)
    with readable(uri):
        found = find_job(uri, job)
    if found.state.is_terminal:
        reason = f" ({found.reason})" if found.reason else ""
        raise DriverUnreachableError(
            f"job {found.name!r} does not run: it is {found.state.value}{reason}; {AGAIN}"
        )
    if found.state is JobState.UNREACHABLE:
        raise DriverUnreachableError(f"job {found.name!r}: {why_unreachable(found)}")
    return RunningJob(found, uri, DriverClient(found, token_file))


def why_unreachable(job: RegisteredJob) -> str:
    """Return why the driver of an UNREACHABLE job may be silent, and the remedy."""
    if job.host != socket.gethostname():
        return (
            f"its driver (pid {job.pid} on {job.host}) does not answer here: its address, "
            f"{job.rest_url or 'unknown'}, is of that machine alone. Run this command on "
            f"{job.host}; if the driver is dead, {AGAIN}"
        )
    if not is_alive(job.pid):
        return f"its driver (pid {job.pid}) is gone without a word: it was killed; {AGAIN}"
    return (
        f"its driver does not answer at {job.rest_url or 'any address'}, though there is a process "
        f"{job.pid}; if it hangs, end it (kill -9 {job.pid}), then {AGAIN}"
    )
