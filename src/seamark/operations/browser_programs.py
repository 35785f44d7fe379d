"""`seamark dashboard --allow-run APP.PY`: programs that a browser may start, in the background."""

from collections.abc import Sequence
from pathlib import Path

from seamark.dashboard.programs import Programs
from seamark.model.errors import OperationFailedError
from seamark.operations.program_file import require_program
from seamark.operations.run import Program
from seamark.operations.run_detached import ProgramEndedError, run_detached
from seamark.rest.models import ProgramRunRequest


def allowed_programs(paths: Sequence[str]) -> Programs:
    """Return the programs that a dashboard's browser may start. Raises UserError for a path that is
    no file."""
    for path in paths:
        require_program(Path(path), "--allow-run ")

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
