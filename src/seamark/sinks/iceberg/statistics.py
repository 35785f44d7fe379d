"""A data file's statistics in a manifest, from its Parquet footer."""

from typing import Any

from seamark.sinks.iceberg.committable import as_text
from seamark.sinks.internal.data_files import WrittenFile
from seamark.sinks.internal.parquet import ColumnFacts, flat_columns

COLUMNS = 100
"""Iceberg's default: only the first columns have statistics."""
_LONGEST_TEXT = 16
_BOUNDED = {"boolean", "int", "long", "date", "timestamp", "timestamptz", "string"}
Column = tuple[int, int, str | None, str | None]


def statistics(file: WrittenFile[Any], schema: Any) -> dict[str, Column]:
    """Return each column's facts by its field's id, as in `FileFacts`.

    Readers skip files by them, so a wrong bound loses rows. Values read differently by different
    readers get no bounds: floats (NaN is greater than all in Spark and absent in Parquet), bytes,
    and everything nested.
    """
    by_field = {}
    for column in flat_columns(file, COLUMNS):
        field = schema.find_field(column.name)
        low, high = _bounds(field.field_type, column)
        by_field[str(field.field_id)] = column.size_bytes, column.nulls, as_text(low), as_text(high)
    return by_field


def _bounds(kind: Any, column: ColumnFacts) -> tuple[bytes | None, bytes | None]:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.types import DecimalType
    from pyiceberg.utils.truncate import truncate_upper_bound_text_string

    is_bounded = str(kind) in _BOUNDED or isinstance(kind, DecimalType)
    if column.low is None or not is_bounded:
        return None, None
    low, high = column.low, column.high
    if isinstance(low, str):
        low, high = low[:_LONGEST_TEXT], truncate_upper_bound_text_string(high, _LONGEST_TEXT)
        if high and high.encode(errors="ignore").decode() != high:  # half of a surrogate pair
            high = None
    return to_bytes(kind, low), None if high is None else to_bytes(kind, high)
