"""Hive's layout, as Spark writes and reads it: ``<column>=<value>/`` for each partition column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
"""Spark's name for null, and for the empty text, which reads back as null."""
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
    """Yield (directory, its rows without the partition columns). The partition columns are the
    last ones of the batch, as text, in the order of `partition_by`."""
    count = batch.num_columns - len(partition_by)
    if not partition_by:
        yield "", batch
        return
    rows = batch.select(list(range(count)))
    directories: Any = None
    for number, column in enumerate(partition_by):
        values = batch.column(count + number).cast(pa.string())
        coded = values.dictionary_encode(null_encoding="encode")
        # One Python call for each different value, not for each row.
        names = [directory_part(column, value) for value in coded.dictionary.to_pylist()]
        part = pa.array(names, pa.string()).take(coded.indices)
        directories = part if directories is None else _joined(directories, part)
    coded = directories.dictionary_encode()
    if len(coded.dictionary) == 1:
        yield coded.dictionary[0].as_py(), rows
        return
    order = pc.sort_indices(coded.indices)  # stable: a directory's rows keep their order
    rows, codes = rows.take(order), coded.indices.take(order)
    start = 0
    for run in pc.value_counts(codes):
        length = run["counts"].as_py()
        yield coded.dictionary[run["values"].as_py()].as_py(), rows.slice(start, length)
        start += length


def _joined(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(left, right, "/")
