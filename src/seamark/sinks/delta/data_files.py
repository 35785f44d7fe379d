"""Writes Arrow batches into one attempt's Parquet files: one for each set of partition values.

The files leave out the partition columns; the log has their values.
"""

import datetime
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from seamark.file_systems import Directory, NewFile
from seamark.model.ignored import clean
from seamark.sinks.delta import store
from seamark.sinks.delta.committable import DataFile
from seamark.sinks.internal.parquet import ParquetEncoder
from seamark.sinks.internal.partitions import NULL_NAME, Values, split

ROW_GROUP_BYTES = 64 << 20
"""Rows are gathered up to this size over all open files: Spark's batches of 10,000 rows are far too
small for an efficient row group."""


@dataclass
class _Open:
    path: str
    file: NewFile
    encoder: ParquetEncoder


class DataFiles:
    """The files of one attempt.

    name: returns the name of the nth file.
    announce: receives new paths before their files are created.
    """

    def __init__(
        self,
        files: Directory,
        partition_by: Sequence[str],
        name: Callable[[int], str],
        announce: Callable[[Sequence[str]], None],
    ) -> None:
        self._files = files
        self._partition_by = list(partition_by)
        self._name = name
        self._announce = announce
        self._open: dict[Values, _Open] = {}

    @property
    def paths(self) -> list[str]:
        """The paths of the files created so far."""
        return [file.path for file in self._open.values()]

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch. Its buffers are valid only until the call returns."""
        parts = list(split(batch, self._partition_by))
        new = [values for values, _ in parts if values not in self._open]
        if new:
            paths = {v: self._path(v, len(self._open) + n) for n, v in enumerate(new)}
            self._announce(list(paths.values()))
            schema = parts[0][1].schema
            for values, path in paths.items():
                created = self._files.create(path)
                self._open[values] = _Open(path, created, ParquetEncoder(created, schema))
        for values, part in parts:
            self._open[values].encoder.write(part)
        encoders = [file.encoder for file in self._open.values()]
        if sum(encoder.buffered_bytes for encoder in encoders) >= ROW_GROUP_BYTES:
            for encoder in encoders:
                encoder.flush()

    def close(self) -> list[DataFile]:
        """Write the remaining rows, make every file durable and return the files."""
        for file in self._open.values():
            file.encoder.close()
            file.file.close()
        now_ms = int(time.time() * 1000)
        return [
            DataFile(
                path=file.path,
                size_bytes=size or 0,
                partition_values=dict(zip(self._partition_by, values, strict=True)),
                statistics=statistics(file.encoder.metadata),
                modified_ms=now_ms,
            )
            for (values, file), size in zip(
                self._open.items(), store.sizes(self._files, self.paths), strict=True
            )
        ]

    def discard(self) -> bool:
        """Give up and remove the files, as far as possible; return whether each was tried. Never
        raises."""
        files = self._open.values()
        return clean(
            [step for f in files for step in (f.encoder.drop, f.file.discard)], "a data file"
        )

    def _path(self, values: Values, number: int) -> str:
        directories = [
            f"{quote(column, safe='')}={NULL_NAME if value is None else quote(value, safe='')}"
            for column, value in zip(self._partition_by, values, strict=True)
        ]
        return "/".join([*directories, self._name(number)])


COLUMNS = 32
"""The protocol's default: only the first columns have statistics."""
_LONGEST_TEXT = 64


def statistics(metadata: Any) -> str:
    """Return a whole file's statistics for the log, as JSON text: the Delta protocol's, from the
    Parquet footer (`pyarrow.parquet.FileMetaData`).

    Readers skip files by them, so a wrong bound loses rows. Values read differently by different
    readers get no bounds: floats (NaN is greater than all in Spark and absent in Parquet), decimals
    (JSON numbers are read as floats), long texts, and everything nested.
    """
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
