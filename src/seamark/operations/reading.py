"""`seamark list`, `info JOB`, `checkpoints JOB`: the facts about jobs, running or ended. And
`explain`: the guarantees of a program's jobs, without running them, or of a job's last run.

The storage outlives a driver: it has executions with their guarantees, identity, leases and
checkpoint statistics. A driver adds the epoch under way, if it answers.
"""

import logging
import runpy
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seamark.checkpoint.accepted_losses import AcceptedLoss, read_losses
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.guarantees.end_to_end import GuaranteeReport
from seamark.model.checkpoint_statistics import CheckpointStatistics
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.errors import (
    CheckpointError,
    DriverUnreachableError,
    OperationFailedError,
    UserError,
)
from seamark.model.job_state import JobState
from seamark.operations.driver_client import DriverClient
from seamark.operations.storage import readable
from seamark.runtime.checkpoint_history import exists, open_storage, open_store, read_history
from seamark.runtime.registry import RegisteredJob, directory_of, find_job, list_jobs

if TYPE_CHECKING:
    from seamark.job import Job

RUN_NAME = "__seamark_explain__"
"""`__name__` in the program: not ``"__main__"``, so the program does not run its job."""


def explain(app: Path, *, preflight: bool = False) -> dict[str, GuaranteeReport]:
    """Return the guarantee report of each job declared by the program at `app`, by job name.

    The program is executed to its end, without arguments, under another `__name__`: jobs must be
    declared at its top level and run under ``if __name__ == "__main__":``. A query of
    `write_stream` is not started by its ``start()``. Nothing outside is written. `preflight`: also
    ask the real systems. Raises UserError if there is no such file, or
    no job in it; the program's own exceptions pass through.
    """
    return {job.declaration.name: job.report(preflight=preflight) for job in declared_jobs(app)}


def declared_jobs(app: Path, arguments: Sequence[str] = ()) -> "list[Job]":
    """Return the jobs declared by the program at `app`, as `explain` does."""
    from seamark.job import Job
    from seamark.streaming.job import StreamJob

    if not app.is_file():
        raise UserError(f"{app}: there is no such file; give the path of a Python program")
    ours, sys.argv = sys.argv, [str(app), *arguments]  # the program is not to read our own
    sys.path.insert(0, str(app.resolve().parent))
    queries = StreamJob.explained = []
    try:
        names = runpy.run_path(str(app), run_name=RUN_NAME)
    finally:
        StreamJob.explained = None
        sys.path.pop(0)
        sys.argv = ours
    declared = [value for value in names.values() if isinstance(value, Job)]
    jobs = {id(job): job for job in (*declared, *queries)}
    if not jobs:
        raise UserError(
            f"{app}: no job found; declare it at the top level of the program (job = sm.Job(…)) "
            'and run it under if __name__ == "__main__":, or start a query of sm.write_stream there'
        )
    return list(jobs.values())


def traceback_in_program(error: BaseException) -> str | None:
    """Return the traceback of an error in the program that `declared_jobs` executes, as Python
    shows it, without the frames of ours; None for an error of another origin."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__") != RUN_NAME:
        frames = frames.tb_next
    if frames is None and not isinstance(error, SyntaxError):
        return None
    return "".join(traceback.format_exception(type(error), error, frames))


def explain_job(job: str, uri: str) -> dict[str, GuaranteeReport]:
    """Return the guarantees of a job, found by name, id or the first digits of its id. Its last
    driver stored them at its start. Raises UserError if there is no such job, or its last driver
    stored nothing because it was of an older version."""
    with readable(uri):
        found = find_job(uri, job)
    pages = found.execution.start.pages
    if "guarantees" not in pages:
        raise UserError(
            f"job {found.name!r}: its last run has not stored what it guarantees; give the path of "
            "its program instead: seamark explain APP.PY"
        )
    mode = pages.get("checkpoints/config", {}).get("mode", "")
    try:
        report = GuaranteeReport.from_json(pages["guarantees"], mode.replace("_", "-"))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"job {found.name!r}: {found.execution.record} holds no guarantees that this version "
            "of Seamark understands; give the path of its program instead: seamark explain APP.PY"
        ) from None
    return {found.name: report}


log = logging.getLogger(__name__)
_PART = ("uid", "kind", "description", "guarantee")


@dataclass(frozen=True)
class JobInfo:
    """One job. `guarantees` and `epoch` are the driver's answers, unchanged. Without a driver
    `guarantees` is the page stored by the last driver at its start, None if it stored none, and
    `epoch` is None. `restarts` are those of the last execution; `generation` is 0 without a
    lease."""

    job: RegisteredJob
    restarts: int
    generation: int
    identity: JobIdentity | None
    last_completed: CheckpointStatistics | None
    guarantees: Mapping[str, Any] | None
    epoch: Mapping[str, Any] | None
    losses: Sequence[AcceptedLoss] = ()

    @property
    def parts(self) -> Sequence[Mapping[str, str]]:
        """Sources, operators and sinks: uid, kind, description, guarantee ("" if unknown). While
        guarantees are unknown, the parts of the last completed checkpoint."""
        if self.guarantees is not None:
            return [{key: part[key] for key in _PART} for part in self.guarantees["parts"]]
        tasks = self.last_completed.tasks if self.last_completed is not None else ()
        return [
            {"uid": t.uid, "kind": t.kind, "description": t.name, "guarantee": ""} for t in tasks
        ]

    def to_json(self) -> dict[str, Any]:
        """Return it with Flink's names where there are; times (since 1970), durations in ms."""
        shown = self.job.to_json()
        end = shown["end-time"]
        identity, last = self.identity, self.last_completed
        return shown | {
            "duration": (round(time.time() * 1000) if end < 0 else end) - shown["start-time"],
            "restarts": self.restarts,
            "directory": self.job.uri,
            "generation": self.generation,
            "lineage-id": identity and identity.lineage_id,
            "restored-from": identity and identity.restored_from,
            "guarantee": self.guarantees and self.guarantees["guarantee"],
            "accepted-losses": [loss.to_json() for loss in self.losses],
            "parts": list(self.parts),
            "epoch": self.epoch,
            "last-checkpoint": last and last.to_json(),
        }


def jobs(storage: str, *, running: bool, ended: bool) -> Sequence[RegisteredJob]:
    """Return jobs, the last started first: running jobs; UNREACHABLE jobs, unless only `running`
    ones are wanted; with `ended` all others.

    `storage` is a URI. Raises UserError if there is nothing at it.
    """
    with readable(storage):
        found = sorted(list_jobs(storage), key=lambda job: -job.start.started_at)
        if not found and not (exists(storage) and open_storage(storage).exists("")):
            raise UserError(
                f"the storage {storage} is not there, so no job has run with it; check --storage, "
                "or checkpoint.storage in seamark.toml"
            )
    return [
        job
        for job in found
        if ended
        or (not job.state.is_terminal and not (running and job.state is JobState.UNREACHABLE))
    ]


def info(job: str, uri: str) -> JobInfo:
    """Return the facts about a job, found by name, id or the first digits of its id.

    Works for a running job, an ended job, and a job with a silent driver. Raises UserError if there
    is no such job.
    """
    with readable(uri):
        found = find_job(uri, job)
        store = open_store(open_storage, found.uri)
        restarts, epoch = found.execution.restarts, None
        guarantees = _guarantees(found.start.pages.get("guarantees"))
        if not found.state.is_terminal and found.state is not JobState.UNREACHABLE:
            driver = DriverClient(found)
            try:
                restarts = driver.part(driver.get(), "restarts", int)
                guarantees = _guarantees(driver.get("/guarantees")) or guarantees
                epoch = _epoch(driver.get("/epoch"))
            except (DriverUnreachableError, UserError) as error:  # it has ended since
                log.info("%s", error)
            except OperationFailedError as error:
                log.warning("%s", error)
        return JobInfo(
            job=found,
            restarts=restarts,
            generation=max(store.generations(), default=0),
            identity=_identity(store),
            last_completed=read_history(uri, found.directory).latest_completed,
            guarantees=guarantees,
            epoch=epoch,
            losses=read_losses(store.files),
        )


def _guarantees(page: Any) -> Mapping[str, Any] | None:
    """Return the page; None if this version does not know its form."""
    try:
        parts = [part[key] for part in page["parts"] for key in _PART]
        texts = [page["guarantee"], page["weakest"], *parts]
    except (KeyError, TypeError):
        return None
    return page if all(isinstance(text, str) for text in texts) else None


def _epoch(page: Any) -> Mapping[str, Any] | None:
    try:
        numbers = [page["id"], page["phase-since"], *(one["id"] for one in page["uncommitted"])]
        known = isinstance(page["phase"], str)
    except (KeyError, TypeError):
        return None
    return page if known and all(isinstance(number, int) for number in numbers) else None


def _identity(store: CheckpointStore) -> JobIdentity | None:
    try:
        return store.read_identity()
    except (CheckpointError, OSError) as error:
        log.warning("%s", error)
        return None


def accepted_losses(job: str, uri: str) -> Sequence[AcceptedLoss]:
    """Return the losses that operators have accepted of a job, found by name, id or the first
    digits of its id. For their epochs the job's guarantee does not hold."""
    with readable(uri):
        return read_losses(open_storage(f"{uri}/{directory_of(uri, job)}"))


def checkpoints(job: str, uri: str) -> CheckpointingStatistics:
    """Return the stored history of the job's checkpoints, up to the last ended checkpoint.

    `job` is its name, its id or the first digits of its id. Raises UserError if there is none.
    """
    with readable(uri):
        return read_history(uri, directory_of(uri, job))


def one_checkpoint(
    found: CheckpointingStatistics, job: str, checkpoint_id: int
) -> CheckpointStatistics:
    """Return the newest attempt at one checkpoint; raises UserError if no attempt is kept."""
    if (checkpoint := found.find(checkpoint_id)) is not None:
        return checkpoint
    kept = [c.id for c in found.history]
    raise UserError(
        f"job {job!r} has no statistics of checkpoint {checkpoint_id}; "
        + (f"kept are those from {min(kept)} to {max(kept)}" if kept else "none are kept")
    )
