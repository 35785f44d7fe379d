"""How a program ends that does not catch a mistake of its user's: with one paragraph, below those
lines of the program that led there; nobody need read Seamark's."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import TracebackType

_OURS = str(Path(__file__).parent.parent)


def show_mistakes() -> None:
    """Called by ``import seamark``. What else is uncaught is shown as before."""
    before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        from seamark.model.errors import UserError

        if not isinstance(error, UserError):
            before(kind, error, trace)
            return
        lines = [
            line
            for line in traceback.extract_tb(trace)
            if not line.filename.startswith((_OURS, "<frozen"))
        ]
        print("".join(traceback.format_list(lines)), end="", file=sys.stderr)  # noqa: T201
        print(f"{kind.__name__}: {error}", file=sys.stderr)  # noqa: T201 - its last words

    sys.excepthook = show
