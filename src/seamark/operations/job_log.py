"""`seamark logs`: the output of a job that `seamark run -d` has started on this machine."""

import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from seamark.jobs.driver import is_alive
from seamark.jobs.listing import ListedJob, find_listed, newest_execution
from seamark.model.errors import UserError

log = logging.getLogger(__name__)

_POLL_S = 0.3
_AT_ONCE = 65536


def output_of(job: str, uri: str, *, follow: bool) -> Iterator[str]:
    """Yield the output so far of a job of the storage, found by name, id or the first digits of its
    id; with `follow` also what comes, until the job has ended. Raises UserError if there is no such
    job, or its log is not on this machine."""
    listed = find_listed(uri, job)
    path = _log_of(listed)
    with path.open(encoding="utf-8", errors="backslashreplace", newline="") as output:
        while True:
            is_last = not follow or _has_ended(listed)  # before reading: nothing comes after it
            while text := output.read(_AT_ONCE):
                yield text
            if is_last:
                return
            time.sleep(_POLL_S)


def _log_of(job: ListedJob) -> Path:
    start, path = job.start, Path(job.start.log)
    what = f"job {job.name!r}"
    if not start.log:
        raise UserError(
            f"{what} has no log file, for seamark run -d has not started it: its output is where "
            f"its driver (pid {start.pid} on {start.host}) was started"
        )
    if start.host != socket.gethostname():
        raise UserError(f"{what}: its log is {path} on {start.host}; run this command there")
    if not path.is_file() or not os.access(path, os.R_OK):
        raise UserError(f"{what}: its log {path} is not there any more, or not for this user")
    return path


def _has_ended(job: ListedJob) -> bool:
    if not is_alive(job.start.pid):
        return True
    try:
        execution = newest_execution(job.storage, job.directory)
    except OSError as error:  # asked again soon
        log.info("whether job %s has ended is not known: %s", job.name, error)
        return False
    return execution is None or execution.end is not None or execution.start != job.start
