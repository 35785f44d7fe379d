"""A data file's statistics in the log."""

import datetime
import json
from typing import Any

from seamark.sinks.internal.data_files import WrittenFile
from seamark.sinks.internal.parquet import flat_columns

COLUMNS = 32
"""The protocol's default: only the first columns have statistics."""
_LONGEST_TEXT = 64


def statistics(file: WrittenFile[Any]) -> str:
    """Return a whole file's statistics for the log, as JSON text: the Delta protocol's, from the
    Parquet footer.

    Readers skip files by them, so a wrong bound loses rows. Values read differently by different
    readers get no bounds: floats (NaN is greater than all in Spark and absent in Parquet), decimals
    (JSON numbers are read as floats), long texts, and everything nested.
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
    result |= {"minValues": lowest, "maxValues": highest, "nullCount": nulls}
    # delta-rs reads characters from U+100000 on that are written as escapes as others.
    return json.dumps(result, separators=(",", ":"), ensure_ascii=False)


def _bound(value: Any, *, up: bool) -> Any:
    """Return a value in the log's JSON form, None for a value to be left out.

    Times are cut to milliseconds. A maximum is rounded up, as not every reader allows for the cut.
    """
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
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
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None
