"""The produced rows, and the rows seen by readers: plain values, for `checker.py`."""

from __future__ import annotations

from typing import NamedTuple


class Produced(NamedTuple):
    """One row of the input. A key's rows are in the order of their production."""

    key: str
    value: str


class Seen(NamedTuple):
    """One row seen by a reader of the output, and its place: no two rows share a place."""

    partition: int
    offset: int
    key: str
    value: str


class Pair(NamedTuple):
    """One row of a sink without offsets: a table, a directory of files."""

    key: str
    value: str


def window_counts(
    rows: list[Produced], window_ms: int, open_after_ms: int | None = None
) -> list[Pair]:
    """Return the tumbling counts per key of rows with values ``sequence,time_ms``.

    `open_after_ms`: windows ending after it are left out: the watermark has not closed them.
    """
    counts: dict[tuple[str, int], int] = {}
    for key, value in rows:
        start = int(value.split(",")[1]) // window_ms * window_ms
        if open_after_ms is None or start + window_ms <= open_after_ms:
            counts[key, start] = counts.get((key, start), 0) + 1
    return [Pair(key, f"{start},{count}") for (key, start), count in counts.items()]
