"""`seamark checkpoint`, `savepoint`, `stop` and `cancel`: requests to a running job.

Each function returns when the job has done its work. It calls `tick` now and then, for a spinner:
with a savepoint's bytes written so far and expected, else with 0 and None.
"""

import time
from typing import Any

from seamark.files.location import storage_uri
from seamark.jobs.checkpoint_history import open_storage, read_history
from seamark.jobs.registry import RegisteredJob, find_job
from seamark.model.checkpoint_statistics import CheckpointStatistics
from seamark.model.errors import DriverUnreachableError, OperationFailedError, UserError
from seamark.model.job_state import JobState
from seamark.operations.driver_client import POLL_S, DriverClient, Tick

RECORDED_S = 10.0
"""How long recording a job's end may take after its driver has fallen silent."""


def take_checkpoint(running: DriverClient, timeout_s: float, tick: Tick) -> dict[str, Any]:
    """Let the job take a checkpoint now; return the completed checkpoint in Flink's fields. Without
    new rows since the job was restored that is the one it was restored from, as ``latest.restored``
    has it: without a duration.

    Raises OperationFailedError if the checkpoint failed, or is not complete after `timeout_s`.
    """
    done = running.perform("checkpoint", "/checkpoints", timeout_s=timeout_s, tick=tick)
    id_ = running.part(done, "checkpointId", int)
    try:
        details = running.get(f"/checkpoints/details/{id_}")
    except UserError:  # 404: it may be of the lineage before
        latest = running.part(running.get("/checkpoints"), "latest", dict)
        if not isinstance(restored := latest.get("restored"), dict) or restored.get("id") != id_:
            raise
        return {"id": id_, "external_path": running.part(restored, "external_path", str)}
    for name in ("id", "end_to_end_duration"):
        running.part(details, name, int)
    return dict(details)


def take_savepoint(
    running: DriverClient, directory: str | None, timeout_s: float, tick: Tick, type_: str
) -> str:
    """Let the job write a savepoint of type ``canonical`` or ``native``; return its path. The
    savepoint lies below `directory`; None takes the directory of the job's settings. Raises
    OperationFailedError if the savepoint failed, or is not whole after `timeout_s`."""
    body = {"target-directory": _from_here(directory), "formatType": type_.upper()}
    done = running.perform("savepoint", "/savepoints", body=body, timeout_s=timeout_s, tick=tick)
    return running.part(done, "location", str)


def end_with_savepoint(
    running: DriverClient,
    directory: str | None,
    timeout_s: float,
    tick: Tick,
    type_: str = "canonical",
    *,
    drain: bool = False,
    cancels: bool = False,
) -> str:
    """End the job with a savepoint; return the savepoint's path when the job has ended. The
    parameters are those of `take_savepoint`; `drain` drains the job first, `cancels` leaves it
    CANCELED, instead of FINISHED. Raises OperationFailedError if the savepoint or the end failed:
    without the savepoint the job goes on."""
    body: dict[str, Any] = {"formatType": type_.upper()}
    if cancels:
        body |= {"target-directory": _from_here(directory or None), "cancel-job": True}
        done = running.perform("cancel", "/savepoints", body, timeout_s=timeout_s, tick=tick)
    else:
        body |= {"targetDirectory": _from_here(directory or None), "drain": drain}
        done = running.perform(
            "stop", "/stop", body, timeout_s=timeout_s, answers_at="/savepoints", tick=tick
        )
    path = running.part(done, "location", str)
    try:
        ended = _await_end(running, tick)
        if not (ended is None and cancels and _is_deleted(running.job)):
            _require(running, ended, JobState.CANCELED if cancels else JobState.FINISHED)
    except (OperationFailedError, DriverUnreachableError) as error:
        raise type(error)(f"the savepoint is whole ({path}), but {error}") from None
    return path


def _from_here(directory: str | None) -> str | None:
    """Return a path of the command line as a URI: the driver has a working directory of its own."""
    return None if directory is None else storage_uri(directory, "the savepoint's directory")


def has_savepoint_dir(job: RegisteredJob) -> bool:
    """Whether the settings of a job's last execution say where its savepoints go."""
    try:
        settings = job.start.pages["config"]["execution-config"]["user-config"]
        return bool(settings["checkpoint.savepoint_dir"]["value"] != str(None))
    except (KeyError, TypeError):  # its driver has stored no settings, or in another form
        return False


def stop(running: DriverClient, timeout_s: float, tick: Tick) -> CheckpointStatistics | None:
    """End the job after its current epoch, without a savepoint; return the last completed
    checkpoint, or None. Returns when every decided epoch is committed. Raises OperationFailedError
    if the job failed instead, or has not ended after `timeout_s`."""

    def ended() -> RegisteredJob | None:
        return _await_end(running, tick)

    body = {"savepoint": False}
    running.perform("stop", "/stop", body, timeout_s=timeout_s, tick=tick, ended=ended)
    _require(running, ended(), JobState.FINISHED)
    return read_history(running.job.storage, running.job.directory).latest_completed


def cancel(running: DriverClient, timeout_s: float, tick: Tick) -> bool:
    """End the job at once, aborting the epoch under way; return whether checkpoints remain. They
    are gone with DELETE_ON_CANCELLATION. Returns when all is settled. Raises OperationFailedError
    if the job failed instead, or has not ended after `timeout_s`."""
    running.change("PATCH", "?mode=cancel")
    deadline = time.monotonic() + timeout_s
    while _lives(running):
        if time.monotonic() > deadline:
            raise OperationFailedError(
                f"cancel of job {running.job.name!r}: it has not ended after {timeout_s:g} s and "
                f"is still being cancelled; wait longer with --timeout, or look with: seamark "
                f"info {running.job.name}"
            )
        tick(0, None)
        time.sleep(POLL_S)
    if (last := _await_end(running, tick)) is None and _is_deleted(running.job):
        return False
    _require(running, last, JobState.CANCELED)
    return True


def _is_deleted(job: RegisteredJob) -> bool:
    """Whether DELETE_ON_CANCELLATION has taken its directory."""
    return not open_storage(job.storage).exists(f"{job.directory}/job.json")


def _lives(driver: DriverClient) -> bool:
    try:
        return not JobState(driver.part(driver.poll(""), "state", str)).is_terminal
    except (DriverUnreachableError, UserError, OperationFailedError, ValueError):
        return False  # the driver is gone; its port may be another process's


def _await_end(running: DriverClient, tick: Tick) -> RegisteredJob | None:
    """Return the job when its end is recorded, or when it has been started again. Returns None if
    it is deleted, or nothing is recorded within RECORDED_S."""
    deadline = time.monotonic() + RECORDED_S
    while time.monotonic() < deadline:
        try:
            job = find_job(running.job.storage, running.job.directory)
        except UserError:  # deleted at its cancellation
            return None
        if job.state.is_terminal or job.start.started_at != running.job.start.started_at:
            return job
        tick(0, None)
        time.sleep(POLL_S)
    return None


def _require(running: DriverClient, ended: RegisteredJob | None, state: JobState) -> None:
    name = running.job.name
    if ended is None:
        raise DriverUnreachableError(
            f"job {name!r}: its driver has ended without a word; what it has decided is committed "
            f"by its next start. See seamark info {name}"
        )
    if ended.state is not state:
        raise OperationFailedError(
            f"job {name!r} is not {state.value}, but {ended.state.value}"
            + (f": {ended.reason}" if ended.reason else "")
        )
