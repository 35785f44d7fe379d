"""Task side: writes durable pending files, one for each partition directory of its rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from seamark.contracts.sink import WriterContext
from seamark.model import failpoints
from seamark.model.errors import WriteRefusedError
from seamark.model.ignored import clean
from seamark.sinks.files.formats import Encoder, Format
from seamark.sinks.files.pending import Pending
from seamark.sinks.files.pending_file import PendingFile, Stream, new_path
from seamark.sinks.internal.columns import not_utf8
from seamark.sinks.internal.file_size import in_parts_of
from seamark.sinks.internal.partitions import (
    LONGEST_NAME_BYTES,
    NO_DIRECTORY,
    TOO_LONG,
    directory_part,
    empty_as_null,
    split,
)

MOST_OPEN_FILES = 32
"""The limit for open files, one per directory. Beyond it the least recently used file is finished;
its directory gets a second file if it comes again."""
BUFFERED_BYTES = 128 << 20
"""The limit for the buffers of all open files of a task together, without S3's parts of 8 MiB."""


@dataclass(eq=False)
class FileWriter:
    """One attempt's writer. Writes no file without a row. A file of `target_bytes` is finished, and
    its directory gets another one; 0: files of any size."""

    pending: Pending
    format_: Format
    partition_by: tuple[str, ...]
    context: WriterContext
    target_bytes: int = 0
    _open: "dict[str, _OpenFile]" = field(default_factory=dict, init=False)
    """By directory, the most recently used last."""
    _finished: list[tuple[Stream, PendingFile]] = field(default_factory=list, init=False)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows to the pending files of their directories. Raises WriteRefusedError at
        the first batch if this machine does not share the directory with the driver, and for a
        partition column's text that is not UTF-8, or too long for the name of a directory."""
        if batch.num_rows == 0:
            return
        for name in self.partition_by:
            if not_utf8(batch.column(name)).any():
                raise WriteRefusedError(f"partition column {name!r}: {NO_DIRECTORY}")
        for part in in_parts_of(batch, self.target_bytes):
            self._write_part(part)
        while sum(f.encoder.buffered_bytes for f in self._open.values()) > BUFFERED_BYTES:
            max(self._open.values(), key=lambda f: f.encoder.buffered_bytes).encoder.flush()

    def _write_part(self, batch: pa.RecordBatch) -> None:
        for values, rows in split(batch, self.partition_by):
            directory = "/".join(map(directory_part, self.partition_by, values))
            file = self._open.pop(directory, None) or self._new_file(directory, rows.schema)
            self._open[directory] = file
            file.encoder.write(rows)
            file.rows += rows.num_rows
            size = file.encoder.expected_bytes(file.stream.size_bytes)
            if self.target_bytes and size >= self.target_bytes:
                self._finish(directory)

    def last_targets(self) -> None:
        """See `AccountableWriter`: a task's files have its rows' sums together."""

    def as_found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See `AccountableWriter`: a directory's name has no difference between null and ""."""
        return empty_as_null(batch, self.partition_by)

    def prepare_commit(self) -> Sequence[PendingFile]:
        """Make every pending file and its name durable."""
        while self._open:
            self._finish(next(iter(self._open)))
        if self._finished:
            failpoints.reached("pending-written")
        return [committable for _, committable in self._finished]

    def abort(self) -> None:
        """Remove the pending files; leftovers are lingering."""
        steps = [step for f in self._open.values() for step in (f.encoder.close, f.stream.abort)]
        steps += [stream.abort for stream, _ in self._finished]
        clean(steps, "the end of a pending file")
        self._open, self._finished = {}, []

    def _new_file(self, directory: str, schema: pa.Schema) -> "_OpenFile":
        if len(self._open) >= MOST_OPEN_FILES:
            self._finish(next(iter(self._open)))
        for column, part in zip(self.partition_by, directory.split("/"), strict=False):
            if len(part.encode()) > LONGEST_NAME_BYTES:
                raise WriteRefusedError(
                    f"partition column {column!r}: {TOO_LONG}: {part[:40]}…; shorten it, e.g. "
                    f"left(`{column}`, 50)"
                )
        at = self.context
        path = new_path(at, directory, self.format_.extension)
        stream = self.pending.begin(path, at.job_id, at.sink_uid)
        return _OpenFile(stream, self.format_.encoder(stream, schema, self.target_bytes))

    def _finish(self, directory: str) -> None:
        file = self._open[directory]
        file.encoder.close()
        upload_id, etags = file.stream.finish()
        del self._open[directory]
        committable = PendingFile.of(
            self.context, file.stream.path, file.rows,
            size_bytes=file.stream.size_bytes, upload_id=upload_id, etags=etags,
        )  # fmt: skip
        self._finished.append((file.stream, committable))


@dataclass
class _OpenFile:
    """One pending file of this attempt."""

    stream: Stream
    encoder: Encoder
    rows: int = 0
