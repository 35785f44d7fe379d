"""`tidemark explain app.py`: what a program's jobs guarantee, without running them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tidemark.guarantees.end_to_end import GuaranteeReport
from tidemark.job import Job
from tidemark.model.errors import UserError

RUN_NAME = "__tidemark_explain__"
"""What `__name__` is in the program: not ``"__main__"``, so that its job is not run."""


def explain(app: Path) -> dict[str, GuaranteeReport]:
    """Return the guarantee report of each job that the program at `app` declares, by job name.

    The program is executed to its end under another `__name__`: jobs must be declared at its top
    level and run under ``if __name__ == "__main__":``. Nothing outside is written. Raises UserError
    if there is no such file, or no job in it; the program's own exceptions pass through.
    """
    if not app.is_file():
        raise UserError(f"{app}: there is no such file; give the path of a Python program")
    sys.path.insert(0, str(app.resolve().parent))
    try:
        names = runpy.run_path(str(app), run_name=RUN_NAME)
    finally:
        sys.path.pop(0)
    jobs = {id(value): value for value in names.values() if isinstance(value, Job)}
    if not jobs:
        raise UserError(
            f"{app}: no job found; declare it at the top level of the program (job = tm.Job(…)) "
            'and run it under if __name__ == "__main__":'
        )
    return {job.declaration.name: job.report() for job in jobs.values()}
