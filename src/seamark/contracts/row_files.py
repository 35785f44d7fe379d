"""Rows that are kept in the checkpoint: one Arrow file for one attempt of one task.

A write-ahead sink keeps its rows so until it has sent them, a spool (`checkpoint/spool.py`) until
their transaction is committed. docs/FORMAT.md specifies names and bytes (*Row files*). A file
counts only once a committable names it, with its size and checksum, and that exists only after
the file is durable: a torn one is never read.
"""

from __future__ import annotations

import re
import socket
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import quote

from seamark.contracts.sink import SinkContext, WriterContext
from seamark.file_systems import Directory, NewFile, open_directory
from seamark.file_systems.local import LocalDirectory
from seamark.model.errors import WriteRefusedError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = "wal"
"""The directory of all sinks' rows, below the job's checkpoint directory."""
EXTENSION = ".arrow"
_NAME = re.compile(
    r"(?P<epoch>\d+)/g(?P<generation>\d+)-p(?P<partition>\d+)-a\d+-[0-9a-f]{32}\.arrow"
)
_MAGIC = b"ARROW1\0\0"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class RowFile:
    """One durable file: its path below its sink's directory, and what it holds."""

    path: str
    rows: int
    size_bytes: int
    crc32: int


@runtime_checkable
class KeepsRows(Protocol):
    """A sink whose decided rows are in the checkpoint alone until they are committed."""

    def find_damage(self, committables: Sequence[Any], context: SinkContext) -> Sequence[str]:
        """Return a line for each file of these committables, of one epoch, that is missing or
        damaged, beginning with its path. Called in the driver before the job starts, for an epoch
        that is decided and has no committed record; changes nothing. Raises OSError when the
        storage does not answer."""
        ...

    def find_unsent(self, committables: Sequence[Any], context: SinkContext) -> Mapping[str, str]:
        """Return, by its handle, which is a path below the sink's directory of row files, where
        each file of these committables, of one epoch, is at this moment (a path below the same
        directory), but for those whose rows are known to be at the target. Called for a savepoint,
        while a commit of that epoch is under way; changes nothing. Raises OSError when the storage
        does not answer."""
        ...


def sink_directory(sink_uid: str) -> str:
    """Return where one sink's row files lie, below the job's checkpoint directory."""
    name = quote(sink_uid, safe="")
    return f"{ROWS}/" + (f"%2E{name[1:]}" if name.startswith(".") else name)


def new_path(context: WriterContext) -> str:
    """Return a path that no other attempt has, nor this one a second time."""
    return (
        f"{context.epoch}/g{context.generation}-p{context.partition_id}-a{context.attempt}"
        f"-{uuid.uuid4().hex}{EXTENSION}"
    )


def parse_path(path: str) -> tuple[int, int] | None:
    """Return the epoch and the generation of a row file's path; None for any other."""
    found = _NAME.fullmatch(path)
    return (int(found["epoch"]), int(found["generation"])) if found else None


def partition_of(path: str) -> int:
    """Return the partition of the task that wrote a row file."""
    found = _NAME.fullmatch(path)
    if found is None:
        raise ValueError(f"{path!r} is not the path of a row file")
    return int(found["partition"])


class RowFileWriter:
    """Writes one file; it is there, and durable, when `finish` returns."""

    @classmethod
    def of_attempt(cls, context: WriterContext, schema: pa.Schema) -> RowFileWriter:
        """Begin a file of one attempt's, in its sink's buffer directory.

        Raises WriteRefusedError on a machine that does not share the checkpoint's local storage:
        what it writes there nobody else could read.
        """
        directory = open_directory(context.buffer_uri, context.hadoop)
        job = Path(directory.uri).parents[1]
        if isinstance(directory, LocalDirectory) and not job.is_dir():
            raise WriteRefusedError(
                f"the job's checkpoint directory {job} does not exist on {socket.gethostname()}; "
                "give the job a storage that the driver and all executors share"
            )
        return cls(directory, new_path(context), schema)

    def __init__(self, directory: Directory, path: str, schema: pa.Schema) -> None:
        import pyarrow as pa

        self._path = path
        self._file = _Checksummed(directory.create(path))
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_file(self._file, schema, options=options)
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the batch; its buffers may be used again after the call. Raises OSError."""
        self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def finish(self) -> RowFile:
        """Make the file durable. Raises OSError; then it counts for nothing."""
        self._writer.close()
        self._file.file.close()
        return RowFile(self._path, self._rows, self._file.size_bytes, self._file.crc32)

    def discard(self) -> None:
        """Give the file up; after `finish` too. Never raises."""
        self._file.file.discard()


class _Checksummed:
    """What pyarrow writes into: adds up what passes, and leaves the closing to its owner."""

    closed = False

    def __init__(self, file: NewFile) -> None:
        self.file = file
        self.size_bytes = 0
        self.crc32 = 0

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self.crc32 = zlib.crc32(view, self.crc32)
        self.size_bytes += view.nbytes
        return self.file.write(view)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def problem(directory: Directory, file: RowFile) -> str:
    """Return what is wrong with the file, "" if nothing is; reads it through. Raises OSError when
    the store does not answer."""
    size, crc32 = 0, 0
    try:
        with directory.open(file.path) as stream:
            while data := stream.read(_CHUNK_BYTES):
                size += len(data)
                crc32 = zlib.crc32(data, crc32)
    except FileNotFoundError:
        return "missing"
    if size != file.size_bytes:
        return f"it has {size} bytes, and {file.size_bytes} were written: truncated or overwritten"
    if crc32 != file.crc32:
        return f"its {size} bytes do not match the checksum in the checkpoint: it was altered"
    return ""


def read(directory: Directory, path: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file, in the order in which they were written. Raises OSError."""
    import pyarrow as pa

    with directory.open(path) as stream:
        # Arrow's file format is its stream format between a header and a footer, and a stream is
        # read from front to back, as object stores like it.
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise OSError(f"{directory.uri}/{path} is no Arrow file")
        yield from pa.ipc.open_stream(stream)
