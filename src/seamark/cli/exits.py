"""How a command ends: the exit codes, and the one place to turn an error into a paragraph."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from seamark.cli.visible import VisibleFormatter, echo
from seamark.model.errors import DriverUnreachableError, SeamarkError, UserError
from seamark.model.packages import NO_PYSPARK, spec_of

BROKEN, MISTAKE, UNREACHABLE, NOT_DONE = 1, 2, 3, 4

EPILOG = (
    "Exit codes: 0 done; 1 an error of Seamark's own, with a traceback, or what `audit`, "
    "`verify`, `doctor` or `demo` found; 2 a mistake that you can mend: an option, a name, a file, "
    "a token; 3 no driver answers: the job has ended, was killed, or runs elsewhere; 4 it was not "
    "done: the job or the operation failed, was refused by you, or took too long; 130 Ctrl-C. "
    "`run` without -d ends with the program's own code."
)


class Commands(TyperGroup):
    """The root of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run the given command."""
        last = logging.StreamHandler()
        last.setFormatter(VisibleFormatter())
        logging.lastResort = last  # for warnings; -v makes a handler
        with errors_as_paragraphs():
            return super().invoke(ctx)


@contextmanager
def errors_as_paragraphs() -> Iterator[None]:
    """Let every SeamarkError end the command with one paragraph on stderr and its exit code, and so
    an OSError, which names its file or server. Any other error is a bug and keeps its traceback; of
    the user's program the program's part."""
    try:
        yield
    except SeamarkError as error:
        echo(f"seamark: {error}", err=True)
        raise typer.Exit(_code(error)) from None
    except Exception as error:
        lacks = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        if lacks.partition(".")[0] in ("pyspark", "py4j"):
            echo(f"seamark: {NO_PYSPARK}", err=True)
            raise typer.Exit(MISTAKE) from None
        shown = None
        if spec_of("pyspark") is not None:  # else no program of the user's has run
            from seamark.operations.reading import traceback_in_program

            shown = traceback_in_program(error)
        if shown is not None:
            echo(shown.rstrip(), err=True)
            raise typer.Exit(BROKEN) from None
        if not isinstance(error, OSError) or error.errno == errno.EPIPE:  # typer ends that one
            raise
        echo(f"seamark: {error}", err=True)
        raise typer.Exit(NOT_DONE) from None


def _code(error: SeamarkError) -> int:
    if isinstance(error, UserError):
        return MISTAKE
    return UNREACHABLE if isinstance(error, DriverUnreachableError) else NOT_DONE
