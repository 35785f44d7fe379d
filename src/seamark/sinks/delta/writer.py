"""Task side: writes durable data files, not yet named by any log entry."""

import contextlib
import json
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.attempt_name import AttemptName, owner_path
from seamark.contracts.dead_letters import RefusedRow, without
from seamark.contracts.sink import WriterContext
from seamark.contracts.text_forms import since_1970
from seamark.file_systems import Directory, HadoopSettings, open_directory
from seamark.model import failpoints
from seamark.model.errors import WriteRefusedError
from seamark.sinks.delta import pending_files, store
from seamark.sinks.delta.committable import STAGED, DeltaCommittable, dump_file, file_name
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import not_utf8
from seamark.sinks.internal.partitions import NO_DIRECTORY, empty_as_null

if TYPE_CHECKING:
    from seamark.sinks.delta.data_files import DataFiles

_ENTRY = re.compile(r"_delta_log/(\d{20})\.json")
UNFIT_FOR_MERGE = "a date or time is too far for delta-rs's MERGE, or a text is not UTF-8"


class DeltaWriter:
    """One attempt's writer. Touches nothing without a row."""

    def __init__(
        self,
        uri: str,
        hadoop: HadoopSettings,
        partition_by: Sequence[str],
        context: WriterContext,
        keys: Sequence[str] = (),
        op: str | None = None,
    ) -> None:
        self._uri = uri
        self._hadoop = hadoop
        self._partition_by = partition_by
        self._keys = keys
        self._op = op
        self._handle = str(AttemptName.of(context, owner_path(context)))
        self._log_version = 0
        self._files: Directory | None = None
        self._data: DataFiles | None = None
        self._records = 0
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append one batch. Raises WriteRefusedError if this machine does not see the table, and
        for a row that is no change."""
        changes.require_fit(self._unfit(batch), f"Delta table {self._uri}")
        self._take(batch)

    def _take(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if self._data is None:
            self._begin()
        assert self._data is not None
        self._data.write(batch)
        self._rows += batch.num_rows

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`: a row that is no change is refused. A table without keys refuses
        only texts in partition columns that are not UTF-8."""
        refused = self._unfit(batch)
        self._take(without(batch, refused))
        return refused

    def last_targets(self) -> None:
        """See `AccountableWriter`: a task's files have its rows' sums together."""

    def as_found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See `AccountableWriter`: in a partition column, an empty text is null."""
        return empty_as_null(batch, self._partition_by)

    def prepare_commit(self) -> Sequence[DeltaCommittable]:
        """Make the data files durable."""
        if self._data is None:
            return []
        op = self._op or ""
        files = tuple(
            dump_file(replace(file, keys=self._keys, op=op) if self._keys else file)
            for file in self._data.close()
        )
        failpoints.reached("data-files-written")
        return [self._committable(files)]

    def abort(self) -> None:
        """Delete the data files; leftovers are lingering."""
        if self._data is None or self._files is None:
            return
        if self._data.discard():
            with contextlib.suppress(OSError):
                store.delete(self._files, pending_files.records(self._committable()))

    def _begin(self) -> None:
        from seamark.sinks.delta.data_files import DataFiles

        files = self._files = open_directory(self._uri, self._hadoop)
        if store.is_local(self._uri) and not Path(self._uri, "_delta_log").is_dir():
            raise WriteRefusedError(
                f"the Delta table {self._uri} that the driver has found does not exist on "
                f"{socket.gethostname()}; give DeltaSink a path on a file system that the driver "
                "and all executors share"
            )
        self._log_version = _last_checkpoint(files)
        # Rows to be merged stay in their order, in one file.
        name = partial(file_name, self._handle)
        self._data = DataFiles(
            files,
            () if self._keys else self._partition_by,
            (lambda number: f"{STAGED}/{name(number)}") if self._keys else name,
            self._announce,
        )

    def _unfit(self, batch: pa.RecordBatch) -> list[RefusedRow]:
        """Return the rows that are no changes. An empty text in a partition column is null there,
        so it is no key."""
        if not self._keys or batch.num_rows == 0:
            bad = np.zeros(batch.num_rows, bool)
            for name in self._partition_by:
                bad |= not_utf8(batch.column(name))
            return [RefusedRow(int(row), NO_DIRECTORY) for row in np.flatnonzero(bad)]
        key_parts = [name for name in self._partition_by if name in self._keys]
        found = changes.unfit(empty_as_null(batch, key_parts), self._keys, self._op)
        reasons = dict.fromkeys(_fatal(batch), UNFIT_FOR_MERGE)
        reasons |= {row.index: row.reason for row in found}
        return [RefusedRow(index, reasons[index]) for index in sorted(reasons)]

    def _announce(self, paths: Sequence[str]) -> None:
        assert self._files is not None
        self._records += 1
        pending_files.write(self._files, self._handle, self._log_version, self._records - 1, paths)

    def _committable(self, files: tuple[str, ...] = ()) -> DeltaCommittable:
        return DeltaCommittable(self._handle, self._log_version, self._records, self._rows, files)


def _fatal(batch: pa.RecordBatch) -> list[int]:
    """Return the rows with a value at which delta-rs panics or fails in the commit: a date or
    timestamp more than 257,000 years away, a text that is not UTF-8."""
    bad = np.zeros(batch.num_rows, bool)
    for column in batch.columns:
        bad |= _is_fatal(column)
    return [int(row) for row in np.flatnonzero(bad)]


def _is_fatal(values: pa.Array) -> Any:
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


def _last_checkpoint(files: Directory) -> int:
    """Return a version already reached by the table's log; this attempt's outcome comes in a later
    entry. Cheap: reads the log's own hint. A listing stands in for a missing one, as old entries
    may be gone."""
    try:
        return int(json.loads(store.read(files, "_delta_log/_last_checkpoint") or b"{}")["version"])
    except (ValueError, KeyError):
        found = map(_ENTRY.fullmatch, files.list("_delta_log"))
        return max((int(entry[1]) for entry in found if entry), default=0)
