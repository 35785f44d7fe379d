"""`seamark list`, `info JOB`, `checkpoints JOB`: the facts about jobs, running or ended. And
`explain`: the guarantees of a program's jobs, without running them, or of a job's last run.

The storage outlives a driver: it has executions with their guarantees, identity, leases and
checkpoint statistics. A driver adds the epoch under way, if it answers. A storage that cannot be
read raises OSError.
"""

import logging
import runpy
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seamark.checkpoint.accepted_losses import AcceptedLoss, read_losses
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.guarantees.end_to_end import GuaranteeReport
from seamark.jobs.checkpoint_history import exists, open_storage, open_store, read_history
from seamark.jobs.listing import directory_of, find_listed
from seamark.jobs.registry import RegisteredJob, find_job, list_jobs
from seamark.model.checkpoint_statistics import CheckpointStatistics
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.errors import (
    CheckpointError,
    DriverUnreachableError,
    OperationFailedError,
    UserError,
)
from seamark.model.job_state import OUTSIDE
from seamark.operations.driver_client import DriverClient
from seamark.operations.locations import LocationReport, read_location
from seamark.operations.program_file import require_program

if TYPE_CHECKING:
    from pydantic import BaseModel

    from seamark.job import Job

log = logging.getLogger(__name__)

_PART = ("uid", "kind", "description", "guarantee")
RUN_NAME = "__seamark_explain__"
"""`__name__` in the program: not ``"__main__"``, so the program does not run its job."""


def explain(app: Path, *, preflight: bool = False) -> dict[str, GuaranteeReport]:
    """Return the guarantee report of each job declared by the program at `app`, by job name; by
    name and place, where another one has the name.

    The program is executed to its end, without arguments, under another `__name__`: jobs must be
    declared at its top level and run under ``if __name__ == "__main__":``. A query of
    `write_stream` is not started by its ``start()``. Nothing outside is written. `preflight`: also
    ask the real systems. Raises UserError if there is no such file, or
    no job in it; the program's own exceptions pass through.
    """
    reports: dict[str, GuaranteeReport] = {}
    for job in declared_jobs(app):
        declared = job.declaration
        name, place = declared.name, f"{declared.checkpoint.storage}/{declared.directory}"
        reports[f"{name} in {place}" if name in reports else name] = job.report(preflight=preflight)
    return reports


def declared_jobs(app: Path, arguments: Sequence[str] = ()) -> "list[Job]":
    """Return the jobs declared by the program at `app`, as `explain` does."""
    from seamark.job import Job
    from seamark.streaming.job import StreamJob

    require_program(app)
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
    listed = find_listed(uri, job)
    pages = listed.execution.start.pages
    if "guarantees" not in pages:
        raise UserError(
            f"job {listed.name!r}: its last run has not stored what it guarantees; give the path "
            "of its program instead: seamark explain APP.PY"
        )
    stated = pages["guarantees"]
    try:
        mode = pages.get("checkpoints/config", {}).get("mode") or stated["mode"]
        report = GuaranteeReport.from_json(stated, mode.replace("_", "-"))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"job {listed.name!r}: {listed.execution.record} holds no guarantees that this version "
            "of Seamark understands; give the path of its program instead: seamark explain APP.PY"
        ) from None
    return {listed.name: report}


@dataclass(frozen=True)
class JobInfo:
    """One job. `guarantees` and `epoch` are the driver's answers, unchanged. Without a driver
    `guarantees` is the page stored by the last driver at its start, None if it stored none, and
    `epoch` is None. `restarts` are those of the last execution; `generation` is 0 without a
    lease. `location` is the log of a query of ``format("seamark")``, None of a job."""

    job: RegisteredJob
    restarts: int
    generation: int
    identity: JobIdentity | None
    last_completed: CheckpointStatistics | None
    guarantees: Mapping[str, Any] | None
    epoch: Mapping[str, Any] | None
    losses: Sequence[AcceptedLoss] = ()
    location: LocationReport | None = None

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
        identity, last = self.identity, self.last_completed
        return self.job.to_json() | {
            "restarts": self.restarts,
            "generation": self.generation,
            "lineage-id": identity and identity.lineage_id,
            "restored-from": identity and identity.restored_from,
            "guarantee": self.guarantees and self.guarantees["guarantee"],
            "accepted-losses": [loss.to_json() for loss in self.losses],
            "parts": list(self.parts),
            "epoch": self.epoch,
            "last-checkpoint": last and last.to_json(),
            "location": self.location and self.location.to_json(),
        }


def nothing_at(storage: str) -> str | None:
    """Return what to say of a storage, a URI, that is not there; None if it is."""
    if exists(storage) and open_storage(storage).exists(""):
        return None
    return (
        f"the storage {storage} is not there, or is no directory, so no job has run with it; "
        "check --storage, checkpoint.storage in seamark.toml, or SEAMARK_STORAGE"
    )


def jobs(storage: str, *, running: bool, ended: bool) -> Sequence[RegisteredJob]:
    """Return jobs, the last started first: running jobs; UNREACHABLE and UNOBSERVED ones, unless
    only `running` ones are wanted; with `ended` all others. `storage` is a URI. Raises UserError if
    there is nothing at it."""
    listed = sorted(list_jobs(storage), key=lambda job: -job.start.started_at)
    if not listed and (why := nothing_at(storage)):
        raise UserError(why)
    return [
        job
        for job in listed
        if ended or (not job.state.is_terminal and not (running and job.state in OUTSIDE))
    ]


def info(job: str, uri: str) -> JobInfo:
    """Return the facts about a job, found by name, id or the first digits of its id. Works for a
    running job, an ended job, and a job with a silent driver. Raises UserError if there is no such
    job."""
    from seamark.rest.epochs import EpochPage  # takes its time
    from seamark.rest.models import Guarantees

    registered = find_job(uri, job)
    store = open_store(open_storage, registered.uri)
    restarts, epoch = registered.execution.restarts, None
    guarantees = _known(Guarantees, registered.start.pages.get("guarantees"))
    if not registered.state.is_terminal and registered.state not in OUTSIDE:
        driver = DriverClient(registered)
        try:
            restarts = driver.part(driver.get(), "restarts", int)
            guarantees = _known(Guarantees, driver.get("/guarantees")) or guarantees
            epoch = _known(EpochPage, driver.get("/epoch"))
        except (DriverUnreachableError, UserError) as error:  # it has ended since
            log.info("%s", error)
        except OperationFailedError as error:
            log.warning("%s", error)
    return JobInfo(
        job=registered,
        restarts=restarts,
        generation=max(store.generations(), default=0),
        identity=_identity(store),
        last_completed=read_history(uri, registered.directory).latest_completed,
        guarantees=guarantees,
        epoch=epoch,
        losses=read_losses(store.files),
        location=None if registered.start.is_observed else read_location(registered.uri),
    )


def _known(form: "type[BaseModel]", page: Any) -> Mapping[str, Any] | None:
    """Return the page; None if this version does not know its form."""
    try:
        form.model_validate(page)
    except ValueError:
        return None
    return dict(page)


def _identity(store: CheckpointStore) -> JobIdentity | None:
    try:
        return store.read_identity()
    except (CheckpointError, OSError) as error:
        log.warning("%s", error)
        return None


def accepted_losses(job: str, uri: str) -> Sequence[AcceptedLoss]:
    """Return the losses that operators have accepted of a job, found by name, id or the first
    digits of its id. For their epochs the job's guarantee does not hold."""
    return read_losses(open_storage(f"{uri}/{directory_of(uri, job)}"))


def checkpoints(job: str, uri: str) -> CheckpointingStatistics:
    """Return the stored history of the job's checkpoints, up to the last ended checkpoint. `job` is
    its name, its id or the first digits of its id. Raises UserError if there is none."""
    return read_history(uri, directory_of(uri, job))


def one_checkpoint(
    statistics: CheckpointingStatistics, job: str, checkpoint_id: int
) -> CheckpointStatistics:
    """Return the newest attempt at one checkpoint; raises UserError if no attempt is kept."""
    if (checkpoint := statistics.find(checkpoint_id)) is not None:
        return checkpoint
    kept = [c.id for c in statistics.history]
    raise UserError(
        f"job {job!r} has no statistics of checkpoint {checkpoint_id}; "
        + (f"kept are those from {min(kept)} to {max(kept)}" if kept else "none are kept")
    )
