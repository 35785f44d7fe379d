"""Whether a job's newest driver lives, as far as this machine can tell. Needs no Spark."""

from __future__ import annotations

import socket

from seamark.checkpoint.store import CheckpointStore
from seamark.model.job_state import JobState
from seamark.protocol.verdicts import DriverState
from seamark.runtime.registry import (
    ask_driver,
    is_alive,
    name_in,
    newest_execution,
    token_for_reading,
)


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
    name = name_in(storage, directory, execution)
    state = ask_driver(execution.start, token_for_reading(execution, name))
    return DriverState.UNKNOWN if state is JobState.UNREACHABLE else DriverState.LIVES
