"""One pending file while a task writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Stream:
    """A file for pyarrow's writers. Only `finish` and `abort` end it.

    finish: makes every byte durable, and the file findable by listing. Returns its upload id and
        ETags, if it has them. From then on any process can publish the file.
    abort: gives up, also after `finish`. Never raises.
    """

    closed = False

    def __init__(
        self,
        path: str,
        write: Callable[[Any], int],
        finish: Callable[[], tuple[str, tuple[str, ...]]],
        abort: Callable[[], None],
    ) -> None:
        self.path = path
        self.size_bytes = 0
        self._write = write
        self.finish = finish
        self.abort = abort

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        written = self._write(data)
        self.size_bytes += written
        return written

    def flush(self) -> None:
        """Do nothing: `finish` counts."""

    def close(self) -> None:
        """Do nothing: `finish` counts."""
