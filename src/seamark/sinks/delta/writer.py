"""Task side: writes durable data files, not yet named by any log entry."""

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.attempt_name import digest
from seamark.contracts.dead_letters import Refusals, RefusedRow
from seamark.contracts.sink import WriterContext
from seamark.contracts.text_forms import since_1970
from seamark.files import RowDirectory, open_directory
from seamark.model.errors import WriteRefusedError
from seamark.sinks.delta.committable import LOG, DataFile, DeltaCommittable, dump_file
from seamark.sinks.delta.statistics import statistics
from seamark.sinks.internal import changes, stored
from seamark.sinks.internal.columns import not_utf8
from seamark.sinks.internal.data_files import DataFiles, WrittenFile
from seamark.sinks.internal.partitions import (
    LONGEST_NAME_BYTES,
    NO_DIRECTORY,
    NULL_NAME,
    TOO_LONG,
    Values,
    empty_as_null,
    split,
)
from seamark.sinks.internal.table_committable import STAGED, file_name
from seamark.sinks.internal.table_writer import TableWriter

if TYPE_CHECKING:
    from seamark.sinks.delta.sink import DeltaSink

_ENTRY = re.compile(r"_delta_log/(\d{20})\.json")
NULLS = f"a text that a MERGE makes null ({NULL_NAME})"
UNFIT_FOR_MERGE = "a date or time is too far for delta-rs's MERGE, or a text is not UTF-8"


class DeltaWriter(TableWriter[DeltaCommittable]):
    """See `TableWriter`. The files leave out the partition columns; the log has their values. A
    table without keys refuses only texts in partition columns that are not UTF-8."""

    def __init__(self, sink: "DeltaSink", context: WriterContext) -> None:
        super().__init__(context, f"Delta table {sink.path}")
        self._uri = sink.path
        self._hadoop = context.hadoop.under(sink.storage_options)
        self._partition_by, self._keys, self._op = sink.partition_by, sink.keys, sink.op
        self._target_bytes = int(sink.target_file_size or 0)
        # Rows to be merged stay in their order, in one file.
        self._split_by = () if sink.keys else tuple(sink.partition_by)

    def as_found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See `AccountableWriter`: in a partition column, an empty text is null."""
        return empty_as_null(batch, self._partition_by)

    def _begin(self) -> None:
        self._files = open_directory(self._uri, self._hadoop)
        if not stored.is_mounted(self._files, LOG):
            raise WriteRefusedError(
                f"the Delta table {self._uri} that the driver has found does not exist on "
                f"{socket.gethostname()}; give DeltaSink a path on a file system that the driver "
                "and all executors share"
            )
        self._log_version = _last_checkpoint(self._files)
        self._data = DataFiles(
            self._files, self._split, self._path, self._announce, target_bytes=self._target_bytes
        )

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        return split(batch, self._split_by)

    def _path(self, values: Values, number: int) -> str:
        name = file_name(self._handle, number)
        if self._keys:
            return f"{STAGED}/{name}"
        return "/".join([*map(_directory, self._split_by, values), name])

    def _described(self, file: WrittenFile[Values]) -> str:
        return dump_file(
            DataFile(
                path=file.path,
                size_bytes=file.size_bytes,
                partition_values=dict(zip(self._split_by, file.values, strict=True)),
                statistics=statistics(file),
                modified_ms=int(time.time() * 1000),
                keys=self._keys,
                op=(self._op or "") if self._keys else "",
            )
        )

    def _unfit(self, batch: pa.RecordBatch) -> list[RefusedRow]:
        """Return the rows that are no changes. An empty text in a partition column is null there,
        so it is no key."""
        if not self._keys or batch.num_rows == 0:
            refused = Refusals()
            for name in self._partition_by:
                refused.add(not_utf8(batch.column(name)), NO_DIRECTORY)
            return refused.rows()
        key_parts = [name for name in self._partition_by if name in self._keys]
        unfit = changes.unfit(empty_as_null(batch, key_parts), self._keys, self._op)
        refused = Refusals(unfit)
        for column in batch.columns:
            refused.add(_is_fatal(column), UNFIT_FOR_MERGE)
        for name in self._partition_by:
            refused.add(is_too_long(name, batch.column(name)), TOO_LONG)
            refused.add(is_nulls(batch.column(name)), NULLS)
        return refused.rows()

    def _committable(self, files: tuple[str, ...] = ()) -> DeltaCommittable:
        return DeltaCommittable(self._handle, self._log_version, self._records, self._rows, files)


def _directory(column: str, value: str | None) -> str:
    """Return a directory's name. The log has the value, so a digest stands for a long one."""
    name = f"{quote(column, safe='')}={NULL_NAME if value is None else quote(value, safe='')}"
    return name if len(name) <= LONGEST_NAME_BYTES else digest(name, 32)


def is_nulls(values: pa.Array) -> Any:
    """Return which values of a partition column delta-rs's MERGE would write as null."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return np.zeros(len(values), bool)
    found = pc.equal(values, pa.scalar(NULL_NAME, values.type))
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def is_too_long(name: str, values: pa.Array) -> Any:
    """Return which values of a partition column give delta-rs's MERGE no directory's name."""
    bad = np.zeros(len(values), bool)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        data, room = values.cast(pa.large_binary()), LONGEST_NAME_BYTES - len(f"{quote(name)}=")
        perhaps = pc.fill_null(pc.binary_length(data), 0).to_numpy() * 3 > room
        for index in np.flatnonzero(perhaps).tolist():
            bad[index] = len(quote(data[index].as_py(), safe="")) > room
    return bad


def _is_fatal(values: pa.Array) -> Any:
    """Return which values make delta-rs panic or fail in the commit: a date or timestamp more than
    257,000 years away, a text that is not UTF-8."""
    kind, is_ = values.type, pa.types
    bad = not_utf8(values)
    if is_.is_date(kind) or is_.is_timestamp(kind):
        most = 94_000_000 * (1 if is_.is_date(kind) else 86_400_000_000)
        numbers = pc.fill_null(since_1970(values), 0).to_numpy()
        return (numbers > most) | (numbers < -most)
    if is_.is_struct(kind):
        for field in values.flatten():
            bad |= _is_fatal(field)
    elif is_.is_list(kind) or is_.is_map(kind):
        offsets = values.offsets.to_numpy()
        for part in (values.keys, values.items) if is_.is_map(kind) else (values.values,):
            elements = _is_fatal(part.slice(offsets[0], offsets[-1] - offsets[0]))
            sums = np.concatenate(([0], np.cumsum(elements)))
            bad |= np.diff(sums[offsets - offsets[0]]) > 0
        bad &= values.is_valid().to_numpy(zero_copy_only=False)  # a null may have elements below
    return bad


def _last_checkpoint(files: RowDirectory) -> int:
    """Return a version already reached by the table's log; this attempt's outcome comes in a later
    entry. Cheap: reads the log's own hint. A listing stands in for a missing one, as old entries
    may be gone."""
    try:
        return int(
            json.loads(stored.read(files, "_delta_log/_last_checkpoint") or b"{}")["version"]
        )
    except (ValueError, KeyError):
        entries = map(_ENTRY.fullmatch, files.tree("_delta_log"))
        return max((int(entry[1]) for entry in entries if entry), default=0)
