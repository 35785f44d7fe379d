"""A data file's statistics in the log."""

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa

from seamark.sinks.internal.data_files import WrittenFile
from seamark.sinks.internal.parquet import flat_columns

COLUMNS = 32
"""The protocol's default: only the first columns have statistics."""
_LONGEST_TEXT = 64
_LAST = "\U0010ffff"
_EXACT_DIGITS = 15
"""Of a decimal, as many as a double keeps: readers read a number in JSON as one."""


def statistics(file: WrittenFile[Any]) -> str:
    """Return a whole file's statistics for the log, as JSON text: the Delta protocol's, from the
    Parquet footer.

    Readers skip files by them, so a wrong bound loses rows. Values read differently by different
    readers get no bounds: NaN (greater than all in Spark, absent in Parquet) and infinite numbers,
    decimals of more digits than a double keeps, binaries, and everything nested.

    All columns have bounds, or none has: to the filters of delta-rs's `to_pyarrow_dataset`, and of
    `to_pandas` by it, a column without bounds beside others with them is null
    (https://github.com/delta-io/delta-rs/issues/3173). Binaries and nested values it leaves out.
    """
    result: dict[str, Any] = {"numRecords": file.metadata.num_rows}
    nulls: dict[str, int] = {}
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for column in flat_columns(file, COLUMNS):
        nulls[column.name] = column.nulls
        low, high = _bound(column.low, up=False), _bound(column.high, up=True)
        if low is not None and high is not None:
            lowest[column.name], highest[column.name] = low, high
    is_left_out = pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary
    if all(
        field.name in lowest or nulls.get(field.name) == file.metadata.num_rows
        for field in list(file.metadata.schema.to_arrow_schema())[:COLUMNS]
        if not any(is_kind(field.type) for is_kind in is_left_out)
    ):
        result |= {"minValues": lowest, "maxValues": highest}
    result["nullCount"] = nulls
    # delta-rs reads characters from U+100000 on that are written as escapes as others.
    return json.dumps(result, separators=(",", ":"), ensure_ascii=False)


def _bound(value: Any, *, up: bool) -> Any:
    """Return a value in the log's JSON form, None for a value to be left out.

    Times are cut to milliseconds. A maximum is rounded up, as not every reader allows for the cut.
    """
    if isinstance(value, str):
        start, rest = value[:_LONGEST_TEXT], value[_LONGEST_TEXT:]
        if up and rest:
            return None if rest.startswith(_LAST) else start + _LAST
        return start
    if isinstance(value, decimal.Decimal):
        number = float(value)  # delta-rs reads no decimal with an exponent
        is_exact = len(value.as_tuple().digits) <= _EXACT_DIGITS and "e" not in repr(number)
        return number if is_exact else None
    if isinstance(value, datetime.datetime):
        millisecond = datetime.timedelta(milliseconds=1)
        cut = value - datetime.timedelta(microseconds=value.microsecond % 1000)
        if up and cut < value:
            try:
                cut += millisecond
            except OverflowError:  # the year 10000
                return None
        text = cut.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value if isinstance(value, int | float) else None
