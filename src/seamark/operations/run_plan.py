"""`seamark run -s PATH --plan app.py`: what the restore would do, without doing it.

The program is executed up to its `job.run()`, which writes the plan into a file that this process
names, and ends. What the program prints goes to stderr.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from seamark.api.settings import PLAN_VARIABLE
from seamark.model.errors import UserError
from seamark.operations.run import Program
from seamark.operations.run_detached import ProgramEndedError


def plan_of(program: Program) -> dict[str, Any]:
    """Return the plan as `RestorePlan.to_json` gives it.

    Raises UserError as `Program.command` does, and for a driver that would run elsewhere;
    ProgramEndedError if the program ends before, with its own words on stderr.
    """
    if program.runs_on_a_cluster:
        raise UserError(
            "--plan needs the driver on this machine, and --deploy-mode cluster puts it elsewhere: "
            "leave it out, or use --deploy-mode client"
        )
    command, environment = program.command()
    with tempfile.TemporaryDirectory(prefix="seamark-plan-") as scratch:
        file = Path(scratch) / "plan.json"
        done = subprocess.run(
            command,
            stdout=sys.stderr,
            env={**environment, PLAN_VARIABLE: str(file)},
            check=False,
        )
        if file.exists():
            plan: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return plan
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    raise ProgramEndedError(
        f"{program.app} has ended ({how}) without a plan; it must call job.run()",
        [],
        done.returncode,
    )
