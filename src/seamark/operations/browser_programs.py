"""`seamark dashboard --allow-run APP.PY`: programs that a browser may start, in the background."""

from collections.abc import Sequence
from pathlib import Path

from seamark.dashboard.programs import Programs
from seamark.model.errors import OperationFailedError, UserError
from seamark.operations.run import Program
from seamark.operations.run_detached import ProgramEndedError, run_detached
from seamark.rest.models import ProgramRunRequest


def allowed_programs(paths: Sequence[str]) -> Programs:
    """Return the programs that a dashboard's browser may start. Raises UserError for a path that is
    no file."""
    for path in paths:
        if not Path(path).is_file():
            raise UserError(f"--allow-run {path}: there is no such file; give a Python program")

    def start(asked: ProgramRunRequest) -> str:
        program = Program(
            app=asked.program,
            arguments=asked.programArgsList,
            restore=asked.savepointPath.strip() or None,
            drop_state=asked.allowNonRestoredState,
            parallelism=asked.parallelism,
        )
        try:
            return run_detached(program, None).start.job_id
        except ProgramEndedError as error:
            raise OperationFailedError("\n".join([str(error), *error.tail])) from None

    return Programs([str(Path(path).absolute()) for path in paths], start)
