"""A table's partitions: the values of its spec's fields for each row, and the fields in a text."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.record_batches import nulls, numbers
from seamark.contracts.text_forms import since_1970
from seamark.model.errors import ConfigurationError
from seamark.sinks.internal.columns import not_utf8
from seamark.sinks.internal.partitions import by_keys

FIELD = re.compile(r"\s*(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(.+?)\s*\)|([^()]+?))\s*")
_WITH_NUMBER = ("bucket", "truncate")
_PLAIN = ("identity", "year", "month", "day", "hour")
_UNITS_US = {"day": 86_400_000_000, "hour": 3_600_000_000}
Values = tuple[Any, ...]
"""The partition fields' values: dates and times as numbers, null as None."""


def parse(text: str, setting: str) -> tuple[str, str]:
    """Return the transform, as Iceberg writes it, and the column that a field's text names:
    ``region``, ``day(ts)``, ``bucket(16, id)``. Raises ConfigurationError."""
    match = FIELD.fullmatch(text)
    if match is not None:
        name = (match[1] or "identity").lower()
        name = name.removesuffix("s") if name.removesuffix("s") in _PLAIN else name
        if name in _PLAIN and match[2] is None:
            return name, match[3] or match[4]
        if name in _WITH_NUMBER and match[2] and int(match[2]):
            return f"{name}[{int(match[2])}]", match[3]
    raise ConfigurationError(
        f"{setting} has {text!r}; give a column, or one of bucket(16, column), truncate(4, "
        "column), year(column), month(column), day(column), hour(column)"
    )


def new_spec(fields: Sequence[tuple[str, str]], schema: Any) -> Any:
    """Return pyiceberg's `PartitionSpec` for parsed fields of a new table. Raises
    ConfigurationError for a transform that the column's type does not have, and for two of one
    name, with which no manifest can be written."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import parse_transform

    parts: list[Any] = []
    for place, (text, column) in enumerate(fields):
        transform, source = parse_transform(text), schema.find_field(column)
        if not can_split(transform, source.field_type):
            raise ConfigurationError(
                f"partition_by: {text} of the column {column!r}, which is {source.field_type}, is "
                "no partition; give another, or CAST the column"
            )
        name = column if text == "identity" else f"{column}_{text.partition('[')[0]}"
        others = {*schema.column_names} - {column} | {field.name for field in parts}
        if name in others:
            raise ConfigurationError(
                f"partition_by: {text} of the column {column!r} is to be the field {name!r}, and "
                "there is another field or column of this name; leave one out, or make the table "
                "yourself"
            )
        parts.append(PartitionField(source.field_id, 1000 + place, transform, name))
    return PartitionSpec(*parts)


def can_split(transform: Any, source: Any) -> bool:
    """Whether rows can be split by this transform of a type. Two NaN are not equal to everybody."""
    known = re.fullmatch(r"(\w+?)(?:\[\d+\])?", str(transform))
    is_known = known is not None and known[1] in (*_PLAIN, *_WITH_NUMBER, "void")
    return is_known and str(source) not in ("float", "double") and transform.can_transform(source)


def splitter(spec: Any, schema: Any) -> Callable[[pa.RecordBatch], Iterator[tuple[Values, Any]]]:
    """Return a function that yields a batch's rows for each set of partition values."""
    fields = [
        (field.transform, source.field_type, schema.find_column_name(source.field_id))
        for field in spec.fields
        for source in [schema.find_field(field.source_id)]
    ]
    return partial(_split, fields)


def _split(
    fields: Sequence[tuple[Any, Any, str]], batch: pa.RecordBatch
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    return by_keys(
        batch, [values(batch.column(name), transform, kind) for transform, kind, name in fields]
    )


def values(column: pa.Array, transform: Any, kind: Any) -> pa.Array:
    """Return a field's value of each row."""
    name, _, number = str(transform).rstrip("]").partition("[")
    if name == "void":
        return pa.nulls(len(column))
    if name == "bucket":
        return transform.pyarrow_transform(kind)(column)
    if name == "truncate":
        return _truncated(column, int(number), transform.transform(kind))
    if not pa.types.is_temporal(column.type):
        return column
    is_date = pa.types.is_date(column.type)
    times = numbers(since_1970(column))
    if name in _UNITS_US and not is_date:
        times = np.floor_divide(times, _UNITS_US[name])
    elif name in ("month", "year"):
        unit = name[0].upper()
        times = times.astype(f"M8[{'D' if is_date else 'us'}]").astype(f"M8[{unit}]")
    return pa.array(times.astype(np.int64), mask=nulls(column))


def _truncated(column: pa.Array, width: int, one: Callable[[Any], Any]) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    if pa.types.is_integer(column.type):
        whole = numbers(column)
        return pa.array(whole - whole % width, mask=nulls(column))
    coded = column.dictionary_encode()
    cut = pa.array([one(value) for value in coded.dictionary.to_pylist()], column.type)
    return cut.take(coded.indices)


def unfit(spec: Any, schema: Any, batch: pa.RecordBatch) -> Any:
    """Return which rows have no partition: a text that is not UTF-8, an hour beyond 32 bits, a
    number that is truncated to one beyond its type. Other writers wrap it around, and readers skip
    it."""
    bad = np.zeros(batch.num_rows, bool)
    for field in spec.fields:
        column = batch.column(schema.find_column_name(field.source_id))
        bad |= not_utf8(column)
        if str(field.transform) == "hour":
            hours = np.floor_divide(numbers(since_1970(column)), _UNITS_US["hour"])
            bad |= (np.abs(hours) >= 2**31) & ~nulls(column)
        if str(field.transform).startswith("truncate"):
            bad |= _too_low(column, field.transform, schema.find_type(field.source_id))
    return bad


def _too_low(column: pa.Array, transform: Any, kind: Any) -> Any:
    if pa.types.is_integer(column.type):
        whole = numbers(column).astype(np.int64)
        low = whole - whole % transform.width
        is_beyond = low < -(2**31) if str(kind) == "int" else low > whole
        return is_beyond & ~nulls(column)
    if not pa.types.is_decimal(column.type):
        return False
    most, one = 10 ** (kind.precision - kind.scale), transform.transform(kind)
    coded = column.dictionary_encode()
    low = pa.array([one(value) <= -most for value in coded.dictionary.to_pylist()], pa.bool_())
    return low.take(coded.indices).fill_null(False).to_numpy(zero_copy_only=False)
