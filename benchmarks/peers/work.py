"""The works: what goes into the topics, and what must come out of an engine.

a: copy; b-row and b-batch: a Python function on each row, called a row or a batch at a time; c: a
count per key and tumbling window of ten seconds. A record of 100 bytes begins with its number,
which is its event time in milliseconds after FIRST_MS. Works named q… are Nexmark's (`nexmark.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

PARTITIONS = 4
KEYS = 1000
WINDOW_MS = 10_000
DELAY_S = 4
FIRST_MS = 1_700_000_000_000
SENTINEL = 9_000_000_000
"""The number of the last record of each partition in work c: it closes all windows before it."""
EPOCH_ROWS = 250_000
"""Spark's and Seamark's rows an epoch."""
INTERVAL_S = 1
"""Flink's checkpoint interval, and Quix Streams' commit interval."""
Record = tuple[int, bytes, bytes]
"""Partition, key and value."""


def value_of(number: int) -> bytes:
    """Return a record's 100 bytes."""
    return b"%010d|" % number + b"x" * 89


def records(rows: int, *, sentinels: bool) -> Iterator[Record]:
    """Yield the input of a and b, or with the sentinels that of c."""
    for number in range(rows):
        yield number % PARTITIONS, b"%d" % (number % KEYS), value_of(number)
    for partition in range(PARTITIONS if sentinels else 0):
        yield partition, b"%d" % partition, value_of(SENTINEL)


def expected_counts(rows: int) -> set[bytes]:
    """Return what c must give: key, start of the window and count."""
    counts: set[bytes] = set()
    for first in range(0, rows, WINDOW_MS):
        here = min(WINDOW_MS, rows - first)
        start = window_text(FIRST_MS + first)
        for key in range(min(KEYS, here)):
            counts.add(f"{key}|{start}|{(here - key - 1) // KEYS + 1}".encode())
    return counts


def window_text(start_ms: int) -> str:
    """Return the start of a window as all engines write it."""
    moment = datetime.fromtimestamp(start_ms / 1000, timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S")
