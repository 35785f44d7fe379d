"""One pending file that is being written, in a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Stream:
    """pyarrow's writers take it as a file; only `finish` and `abort` end it.

    finish: makes every byte durable, and the file findable by listing; returns its upload id and
        ETags, if it has them. Any process can publish the file from then on.
    abort: gives up, also after `finish`; never raises.
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
        """Nothing: `finish` is what counts."""

    def close(self) -> None:
        """Nothing: `finish` is what counts."""
