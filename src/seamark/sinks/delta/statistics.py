"""The Delta protocol's per-file statistics for the log, from a Parquet file's footer.

Readers skip files by them, so a wrong bound loses rows. Values read differently by different
readers get no bounds: floats (NaN is greater than all in Spark and absent in Parquet), decimals
(JSON numbers are read as floats), long texts, and everything nested.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

COLUMNS = 32
"""The protocol's default: only the first columns have statistics."""
_LONGEST_TEXT = 64


def statistics(metadata: Any) -> str:
    """Return a whole file's statistics as JSON text, from `pyarrow.parquet.FileMetaData`."""
    result: dict[str, Any] = {"numRecords": metadata.num_rows}
    nulls: dict[str, int] = {}
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for position in range(min(metadata.num_columns, COLUMNS)):
        chunks = [metadata.row_group(g).column(position) for g in range(metadata.num_row_groups)]
        name = metadata.schema.column(position).name
        if not chunks or chunks[0].path_in_schema != name or metadata.schema.names.count(name) > 1:
            continue  # nested
        found = [chunk.statistics for chunk in chunks]
        if any(s is None or not s.has_null_count for s in found):
            continue
        nulls[name] = sum(s.null_count for s in found)
        bounded = [s for s in found if s.num_values]
        if bounded and all(s.has_min_max for s in bounded):
            try:
                low = _bound(min(s.min for s in bounded), up=False)
                high = _bound(max(s.max for s in bounded), up=True)
            except (ValueError, OverflowError):  # a time outside Python's range
                continue
            if low is not None and high is not None:
                lowest[name], highest[name] = low, high
    result |= {"minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(result, separators=(",", ":"))


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
            cut += millisecond
        text = cut.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None
