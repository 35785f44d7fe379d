"""Columns: the checks when a job is built, and the conversions for text targets."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from seamark.contracts.text_forms import as_text, times_of_text
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, Schema, quoted

# Types that Arrow cannot carry from Spark, or no target can hold, nested at any depth. A field
# name inside struct<…> is followed by a colon, so it never matches.
_REFUSED = re.compile(
    r"(?:^|[<,:])"
    r"((?:void|variant|udt|interval(?: [a-z ]+)?|time\(\d+\)|geo(?:metry|graphy)\([^)]*\)))"
    r"(?=$|[,>])"
)
# As such keys Spark writes an object's address in memory, or a row's hexadecimal words.
_NO_KEY_IN_JSON = re.compile(r"map<(?:binary|array<|map<|struct<)")
_OF_ARROW = {
    "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "bool": "boolean",
    "large_string": "string", "large_binary": "binary", "date32[day]": "date",
}  # fmt: skip
"""Spark's names, where they are not Arrow's."""


def check_columns(
    schema: Schema,
    sink: str,
    cannot_name: Callable[[str], bool] = lambda name: False,
    *,
    as_json: bool = False,
) -> None:
    """Raise ConfigurationError for a schema that no file or table can hold.

    `sink` is the sink's description, for the message; `cannot_name` knows the names that no column
    of its target can have; `as_json` says that it writes maps as JSON.
    """
    if not schema:
        raise ConfigurationError(f"{sink}: the DataFrame has no columns; select at least one")
    seen: dict[str, str] = {}
    for column in schema:
        # Readers (Spark, SQLite) treat names differing in case alone as one.
        if column.name.lower() in seen:
            raise ConfigurationError(
                f"{sink}: columns {seen[column.name.lower()]!r} and {column.name!r} have the same "
                "name, or differ in case alone; rename one with withColumnRenamed"
            )
        seen[column.name.lower()] = column.name
        own = column.name.lower().startswith("_seamark")
        if own or "\0" in column.name or cannot_name(column.name):
            raise ConfigurationError(
                f"{sink}: column {column.name!r} has "
                + ("a name of Seamark's own" if own else "a name that the target does not take")
                + "; rename it with withColumnRenamed"
            )
        if match := _REFUSED.search(column.type):
            within = "" if match[1] == column.type else f" (within {column.type})"
            raise refused(sink, column, f"{match[1]}{within}")
        if as_json and _NO_KEY_IN_JSON.search(column.type):
            raise refused(sink, column, f"{column.type} (in JSON a key is a text)")


def column_names(value: object, setting: str, *, in_order: bool = False) -> tuple[str, ...]:
    """Return the names listed by a setting, each once; raises ConfigurationError. `in_order`: a set
    will not do."""
    if (
        not isinstance(value, Sequence if in_order else Collection)
        or isinstance(value, str | bytes | Mapping)
        or not all(isinstance(name, str) and name for name in value)
    ):
        raise ConfigurationError(f"{setting} is {value!r}; give a list of column names")
    if len({name.lower() for name in value}) < len(value):
        raise ConfigurationError(
            f"{setting} is {value!r}, which names a column twice; give each once"
        )
    return tuple(value)


def require_column(name: str | None, schema: Schema, what: str, setting: str, sink: str) -> None:
    """Raise ConfigurationError if a setting names a column missing from the DataFrame."""
    names = [column.name for column in schema]
    if name is not None and name not in names:
        raise ConfigurationError(
            f"{sink}: the {what} column {name!r} is not in the DataFrame, which has "
            f"{', '.join(names)}; select it, or change {setting}="
        )


def in_double_quotes(*names: str) -> str:
    """Return an identifier, plain or qualified, as standard SQL."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def refused(sink: str, column: Column, found: str) -> ConfigurationError:
    """Return the error for a column whose type the sink cannot store."""
    name = quoted(column.name)
    # Spark casts no geometry.
    text = f"ST_AsBinary({name})" if found.startswith("geo") else f"CAST({name} AS STRING)"
    return ConfigurationError(
        f"{sink}: column {column.name!r} has type {found}, which it cannot store; allowed are "
        "boolean, integer and floating-point types, decimal, string, binary, date, timestamp, "
        f"and arrays, maps and structs of them. Drop the column or convert it, e.g. {text}"
    )


def no_counterpart(column: Column, what: str) -> ConfigurationError:
    """Return the error for a column whose type a new table, of Delta's or another, cannot have."""
    return ConfigurationError(
        f"column {column.name!r} has type {column.type}, which has no counterpart in {what} table "
        "that can be told from its text; make the table yourself, or CAST the column"
    )


def struct_fields(parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the type of each field of a struct, of what `type_parts` gives. Raises
    ValueError for a name that cannot be told from the type's own punctuation."""
    for part in parts:
        name, _, of = part.partition(":")
        if not name or "<" in name or ">" in name:
            raise ValueError(name)
        yield name, of


def of_arrow(kind: pa.DataType) -> str:
    """Return the Spark type of rows to be written, or Arrow's own name."""
    is_ = pa.types
    if is_.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{of_arrow(field.type)}' for field in kind)}>"
    if is_.is_map(kind):
        return f"map<{of_arrow(kind.key_type)},{of_arrow(kind.item_type)}>"
    if is_.is_list(kind) or is_.is_large_list(kind):
        return f"array<{of_arrow(kind.value_type)}>"
    if is_.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if is_.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _OF_ARROW.get(str(kind), str(kind))


def written_columns(rows: pa.Schema, op: str | None) -> Schema:
    """Return the columns of rows to be written, all but op. Of a value sent as JSON the type is
    string."""
    return tuple(Column(field.name, of_arrow(field.type)) for field in rows if field.name != op)


def to_json(expression: str) -> str:
    """Return Spark SQL to make JSON text of a struct, an array or a map.

    Keeps microseconds, and writes UTC; by default Spark cuts them, in the session's time zone.
    """
    # Under spark.sql.parser.escapedStringLiterals no literal holds a quotation mark.
    ntz = "replace('yyyy-MM-dd_T_HH:mm:ss.SSSSSS', '_', char(39))"
    return (
        f"to_json({expression}, map('timeZone', 'UTC', "
        f"'timestampFormat', concat({ntz}, 'XXX'), 'timestampNTZFormat', {ntz}))"
    )


def text_expression(column: Column, as_string: tuple[str, ...]) -> str:
    """Return Spark SQL for a column whose target knows scalars alone: nested values as JSON, types
    beginning with one of `as_string` as Spark's own text, the rest unchanged."""
    name = quoted(column.name)
    if column.type.startswith(("array<", "map<", "struct<")):
        return f"{to_json(name)} AS {name}"
    return f"{cast_to_text(column)} AS {name}" if column.type.startswith(as_string) else name


def cast_to_text(column: Column) -> str:
    """Return Spark SQL for a number's or a date's text, a decimal's in plain digits: without ANSI
    mode Spark's CAST gives small ones an exponent."""
    scale = column.type.partition(",")[2].rstrip(")") if column.type.startswith("decimal") else "0"
    if int(scale) > 6:
        return f"replace(format_number({quoted(column.name)}, {scale}), ',')"
    return f"CAST({quoted(column.name)} AS STRING)"


def not_utf8(values: pa.Array) -> Any:
    """Return which texts are not UTF-8: Spark's CAST makes such of bytes, and Python reads none."""
    bad = np.zeros(len(values), bool)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        data = values.cast(pa.large_binary())
        try:
            data.cast(pa.large_string())
        except pa.ArrowInvalid:
            texts = (value or b"" for value in data.to_pylist())
            bad[:] = [text.decode(errors="ignore").encode() != text for text in texts]
    return bad


def pieces(
    values: pa.LargeBinaryArray, limit_bytes: int, most_rows: int = 2**62
) -> Iterator[tuple[memoryview, int, int]]:
    """Yield the values' own bytes in pieces of at most `limit_bytes`, but at least one row; each
    with its first row and the row after its last."""
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset :][: len(values) + 1]
    data, start = memoryview(values.buffers()[2]), 0
    while start < len(values):
        fit = int(np.searchsorted(offsets, offsets[start] + limit_bytes, side="right")) - 1
        end = min(start + most_rows, max(fit, start + 1), len(values))
        yield data[offsets[start] : offsets[end]], start, end
        start = end


def datetimes_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn dates and timestamps into text (`contracts/text_forms.py`), whole columns at once."""
    columns = [as_text(c) if pa.types.is_temporal(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def as_written(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows read from a target in the types of the rows as they were written; text becomes
    the dates and times that `datetimes_as_text` made it of."""
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if pa.types.is_temporal(field.type) and pa.types.is_string(column.type):
            column = times_of_text(column, field.type)
        columns.append(column.cast(field.type, safe=False))
    return pa.RecordBatch.from_arrays(columns, names=schema.names)
