"""`tidemark run app.py`: run a program as ``python app.py`` would, with settings laid over its own.

The process becomes the program's (exec), so its signals, exit code and files are its own. What the
command line gave goes along in the environment: `api/settings.py` and `Job.run` read it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from tidemark.api.settings import COMMAND_LINE_VARIABLE, RESTORE_VARIABLE, check_command_line
from tidemark.model.errors import UserError

PARAGRAPHS_VARIABLE = "TIDEMARK_RUN"
"""Environment: set by `run`; makes ``import tidemark`` call `show_user_errors_as_paragraphs`."""


def run(
    app: Path, arguments: Sequence[str], settings: Sequence[str], restore: str | None
) -> NoReturn:
    """Become ``python <app> <arguments>``, with this Python.

    `settings` are ``key=value`` texts, the later ones winning; `restore` is the path of a retained
    checkpoint to start from. Raises UserError before that if there is no such program or no such
    setting. In the program a UserError that nothing catches ends it with one paragraph on stderr
    and exit code 2; any other exception is shown with its traceback, as Python does.
    """
    if not app.is_file():
        raise UserError(f"{app}: there is no such file; give the path of a Python program")
    check_command_line(settings)
    environment = os.environ | {PARAGRAPHS_VARIABLE: "1"}
    if settings:
        environment[COMMAND_LINE_VARIABLE] = json.dumps(list(settings))
    if restore is not None:
        environment[RESTORE_VARIABLE] = restore
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, str(app), *arguments], environment)


def show_user_errors_as_paragraphs() -> None:
    """Let a UserError that ends this program be shown as the command line shows it."""
    before = sys.excepthook

    def show(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, UserError):
            before(kind, error, traceback)
            return
        print(f"tidemark: {error}", file=sys.stderr)  # noqa: T201 - the program's last words
        raise SystemExit(2)  # from an excepthook this sets the exit code

    sys.excepthook = show
