"""The end of a program with an uncaught mistake of its user's: one paragraph.

It stands below the program's own lines that led there, without Seamark's.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import TracebackType

_OURS = str(Path(__file__).parent.parent)


def show_mistakes() -> None:
    """Install the hook; called by ``import seamark``. Other uncaught errors are shown as before."""
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
