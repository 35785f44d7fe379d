"""Hive's layout, as Spark writes and reads it: ``<column>=<value>/`` for each partition column."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from seamark.sinks.internal import partitions
from seamark.sinks.internal.partitions import NULL_NAME

_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
"""What Spark's ExternalCatalogUtils escapes on Linux, and NUL, which no name can hold."""


def escaped(text: str) -> str:
    """Return `text` as a part of a directory's name."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def directory_part(column: str, value: str | None) -> str:
    """Return the name of one directory."""
    return f"{escaped(column)}={escaped(value) if value else NULL_NAME}"


def split(
    batch: pa.RecordBatch, partition_by: tuple[str, ...]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield (directory, its rows without the partition columns)."""
    for values, rows in partitions.split(batch, partition_by):
        yield "/".join(map(directory_part, partition_by, values)), rows
