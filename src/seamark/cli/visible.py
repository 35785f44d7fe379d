"""Makes texts from a storage or a driver safe to show on a terminal."""

import logging
import re

import typer

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls: an escape sequence moves the cursor, or types
    "\u200e\u200f\u2028-\u202e\u2066-\u2069"  # these let text stand elsewhere than it is
    "\ud800-\udfff]"  # these cannot be printed
)


def visible(text: str) -> str:
    """Return `text` with each character obeyed by a terminal, instead of shown, as its Python
    escape. Line breaks and tabs stay."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a line, or without `nl` a text, as `visible`, on stdout or stderr."""
    typer.echo(visible(text), err=err, nl=nl)


class VisibleFormatter(logging.Formatter):
    """Formats log lines as `visible`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return visible(super().format(record))
