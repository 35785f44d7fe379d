"""Runs a program in this very process, as ``python app.py`` would, that is expected to run a job.

``seamark run`` with -s, -p, -n or --claim-mode becomes ``python -c`` with `main` in it: a program
that ends well without a job has ignored them, and nothing else would say so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from seamark.api.settings import EXPECTING_VARIABLE

PROGRAM = "from seamark.operations.run_expecting_job import main; main(globals())"


def main(names: dict[str, Any]) -> None:
    """Execute the program whose path is the first argument, with `names` as its globals: those of
    ``__main__``. Exits with 2 if it ends well and has not called `Job.run`."""
    del sys.argv[0]
    app = sys.argv[0]
    sys.path[0] = str(Path(app).resolve().parent)
    del names["main"]
    names["__file__"] = app
    code = compile(Path(app).read_bytes(), app, "exec", dont_inherit=True)
    try:
        exec(code, names)
    except SystemExit as ended:
        if ended.code:
            raise
    if options := os.environ.get(EXPECTING_VARIABLE):
        print(  # noqa: T201 - the program's last words
            f"seamark: {app} has ended without having run a job: {options} had no effect; call "
            "job.run() in it, or leave that out",
            file=sys.stderr,
        )
        raise SystemExit(2)
