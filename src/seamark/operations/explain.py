"""`seamark explain`: the guarantees of a program's jobs, without running them, or of a job's last
run."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seamark.guarantees.end_to_end import GuaranteeReport
from seamark.model.errors import UserError
from seamark.operations.storage import readable, storage_of
from seamark.runtime.registry import find_job, newest_execution

if TYPE_CHECKING:
    from seamark.job import Job

RUN_NAME = "__seamark_explain__"
"""`__name__` in the program: not ``"__main__"``, so the program does not run its job."""


def explain(app: Path, *, preflight: bool = False) -> dict[str, GuaranteeReport]:
    """Return the guarantee report of each job declared by the program at `app`, by job name.

    The program is executed to its end, without arguments, under another `__name__`: jobs must be
    declared at its top level and run under ``if __name__ == "__main__":``. Nothing outside is
    written. `preflight`: also ask the real systems. Raises UserError if there is no such file, or
    no job in it; the program's own exceptions pass through.
    """
    return {job.declaration.name: job.report(preflight=preflight) for job in declared_jobs(app)}


def declared_jobs(app: Path, arguments: Sequence[str] = ()) -> list[Job]:
    """Return the jobs declared by the program at `app`, as `explain` does."""
    from seamark.job import Job

    if not app.is_file():
        raise UserError(f"{app}: there is no such file; give the path of a Python program")
    ours, sys.argv = sys.argv, [str(app), *arguments]  # the program is not to read our own
    sys.path.insert(0, str(app.resolve().parent))
    try:
        names = runpy.run_path(str(app), run_name=RUN_NAME)
    finally:
        sys.path.pop(0)
        sys.argv = ours
    jobs = {id(value): value for value in names.values() if isinstance(value, Job)}
    if not jobs:
        raise UserError(
            f"{app}: no job found; declare it at the top level of the program (job = sm.Job(…)) "
            'and run it under if __name__ == "__main__":'
        )
    return list(jobs.values())


def explain_job(job: str, storage: str | None) -> dict[str, GuaranteeReport]:
    """Return the guarantees of a job, found by name, id or the first digits of its id. Its last
    driver stored them at its start. Raises UserError if there is no such job, or its last driver
    stored nothing because it was of an older version."""
    uri = storage_of("explain", storage)
    with readable(uri):
        found = find_job(uri, job)
        execution = newest_execution(uri, found.name)
    pages = execution.start.pages if execution is not None else {}
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
