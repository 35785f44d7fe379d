"""Splits a batch's rows by the values of partition columns: no Python object is made per row."""

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.record_batches import null_where
from seamark.contracts.text_forms import as_text

NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
"""Stands for null in a directory's name, and for the empty text, because it reads back as null."""
_ESCAPED = re.compile(
    "[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]|(?<=\\._COPYING)_$|^_(?=_HIVE_DEFAULT_PARTITION__$)"
)
"""The characters escaped by Spark's ExternalCatalogUtils on Linux, NUL, the end of a name that
Spark's readers skip, and the beginning of a text that reads like null."""
LONGEST_NAME_BYTES = 255
"""Of a file system on Linux, and of HDFS."""
TOO_LONG = f"a text whose directory would have a name of more than {LONGEST_NAME_BYTES} bytes"
NO_DIRECTORY = "a text that is not UTF-8 names no directory"
Values = tuple[str | None, ...]
"""The partition columns' values, as texts; None for null and for the empty text."""


def escaped(text: str) -> str:
    """Return `text` as a part of a directory's name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def directory_part(column: str, value: str | None) -> str:
    """Return the name of one directory of Hive's layout, as Spark's: ``<column>=<value>``."""
    return f"{escaped(column)}={escaped(value) if value else NULL_NAME}"


def any_directory(path: str, columns: Sequence[str]) -> str:
    """Return the directories of any values below a path, for `FilesSink.example_file`."""
    return "/".join([path, *(f"{escaped(name)}=*" for name in columns)])


def directory_values(path: str) -> dict[str, str | None]:
    """Return the columns' values that the directories of a path name, as `directory_part` did."""
    parts = (name.partition("=") for name in path.split("/")[:-1])
    return {unquote(c): None if v == NULL_NAME else unquote(v) for c, _, v in parts}


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yield the rows of each set of values, in their order, without the partition columns."""
    rows = batch.drop_columns(list(columns)) if columns else batch
    return by_keys(rows, [_text(batch.column(column)) for column in columns])


def by_keys(
    rows: pa.RecordBatch, keys: Sequence[pa.Array]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the rows of each set of keys, in their order; a key has a value for each row."""
    codes, kinds = np.zeros(rows.num_rows, np.int64), 1
    for key in keys:
        coded = key.dictionary_encode(null_encoding="encode")
        if kinds * len(coded.dictionary) >= 2**63:  # then renumber: at most one code per row
            codes, kinds = np.unique(codes, return_inverse=True)[1], rows.num_rows
        codes = codes * len(coded.dictionary) + coded.indices.to_numpy(zero_copy_only=False)
        kinds *= len(coded.dictionary)
    if kinds < 2**15:
        codes = codes.astype(np.int16)  # sorted by radix
    order = np.argsort(codes, kind="stable")
    starts = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist()]
    rows = rows.take(pa.array(order)) if len(starts) > 1 else rows
    for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        yield tuple(key[order[start]].as_py() for key in keys), rows.slice(start, end - start)


def empty_as_null(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return the rows with null for the empty text in partition columns, as it is read back."""
    for name in columns:
        column = batch.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            batch = batch.set_column(batch.schema.get_field_index(name), name, _text(column))
    return batch


def _text(column: pa.Array) -> pa.Array:
    text = as_text(column).cast(pa.string())
    return null_where(pc.equal(text, ""), text)
