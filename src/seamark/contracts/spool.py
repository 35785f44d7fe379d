"""A sink's spool: its rows in the job's checkpoint, until they are known to be at the target.

A write-ahead sink keeps its rows only there until it has sent them; a sink with ``spool=True`` has
them in its system as well (`checkpoint/spool.py`). A spool file is one Arrow file for one attempt
of one task; docs/FORMAT.md specifies names and bytes (*Spools*). A file counts only once a
committable names it, with its size and checksum. The committable exists only after the file is
durable, so a torn file is never read.
"""

import functools
import socket
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote

import pyarrow as pa

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.files import NewFile, RowDirectory, open_directory
from seamark.files.local import LocalDirectory
from seamark.model.errors import WriteRefusedError

SPOOLS = "wal"
"""The directory of all sinks' spools, below the job's checkpoint directory."""
EXTENSION = ".arrow"
_MAGIC = b"ARROW1\0\0"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class SpoolFile:
    """One durable file and its contents.

    `directory` is the URI of its sink's spool in the checkpoint of the job that wrote it; `path` is
    below `directory`.
    """

    directory: str
    path: str
    rows: int
    size_bytes: int
    crc32: int


@runtime_checkable
class SpooledSink(Protocol):
    """A sink with its decided rows in its spool alone until they are committed."""

    def find_damage(self, committables: Sequence[Any], context: SinkContext) -> Sequence[str]:
        """Return a line for each missing or damaged spool file of one epoch's committables.

        Each line begins with the file's path. Called in the driver before the job starts, for a
        decided epoch without a committed record; changes nothing. Raises OSError without an answer.
        """

    def find_unsent(self, committables: Sequence[Any], context: SinkContext) -> Mapping[str, str]:
        """Return one epoch's spool files with rows not known to be at the target.

        Maps each committable's handle to its file's present path; both are below the sink's spool.
        Called for a savepoint, while a commit of the epoch is under way; changes nothing. Raises
        OSError when the storage does not answer.
        """


@functools.cache
def spool_directory(sink_uid: str) -> str:
    """Return one sink's spool, as a path below the job's checkpoint directory."""
    name = quote(sink_uid, safe="")
    return f"{SPOOLS}/" + (f"%2E{name[1:]}" if name.startswith(".") else name)


def parse_path(path: str) -> AttemptName | None:
    """Parse a spool file's path ``<epoch>/<attempt's name>.arrow``; None for any other path."""
    epoch, _, file = path.partition("/")
    name = AttemptName.parse(file.removesuffix(EXTENSION)) if file.endswith(EXTENSION) else None
    return name if name is not None and (name.owner, str(name.epoch)) == ("", epoch) else None


class SpoolWriter:
    """Writes the spool file of one attempt: made with the first row, durable by `finish`. The
    directory of spools lies `levels` below the job's checkpoint directory."""

    def __init__(self, context: WriterContext, levels: int = 2) -> None:
        self._context = context
        self._levels = levels
        self._path = f"{context.epoch}/{AttemptName.of(context)}{EXTENSION}"
        self._file: _Checksummed | None = None
        self._writer: Any = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the batch; its buffers may be used again after the call.

        Raises OSError when the storage refuses it. Raises WriteRefusedError on a machine that does
        not share the checkpoint's local storage: no other machine could read the file.
        """
        if batch.num_rows == 0:
            return
        if self._file is None:
            self._begin(batch.schema)
        self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def finish(self) -> SpoolFile | None:
        """Make the file durable; None if no row has come.

        Raises OSError; then the file counts for nothing.
        """
        if self._file is None:
            return None
        self._writer.close()
        self._file.file.close()
        return SpoolFile(
            self._context.spool_uri, self._path, self._rows, self._file.size_bytes, self._file.crc32
        )

    def discard(self) -> None:
        """Give the file up; after `finish` too. Never raises."""
        if self._file is not None:
            self._file.file.discard()

    def _begin(self, schema: pa.Schema) -> None:
        directory = open_directory(self._context.spool_uri, self._context.hadoop)
        job = Path(str(directory)).parents[self._levels - 1]
        if isinstance(directory, LocalDirectory) and not job.is_dir():
            raise WriteRefusedError(
                f"the job's checkpoint directory {job} does not exist on {socket.gethostname()}; "
                "give the job a storage that the driver and all executors share"
            )
        self._file = _Checksummed(directory.begin(self._path))
        # A task has one core: a hand-over to another thread costs more than a batch's compression.
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        self._writer = pa.ipc.new_file(self._file, schema, options=options)


class _Checksummed:
    """The file for pyarrow's writer: sums up bytes and checksum; only its owner closes it."""

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


def problem(directory: RowDirectory, file: SpoolFile) -> str:
    """Read the whole file and return its fault, "" for none.

    Raises OSError when the store does not answer.
    """
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


def read(directory: RowDirectory, path: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file, in the order of writing. Raises OSError."""
    with directory.open(path) as stream:
        # Arrow's file format is its stream format between a header and a footer. Reading it as a
        # stream goes from front to back, which suits object stores.
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise OSError(f"{directory}/{path} is no Arrow file")
        yield from pa.ipc.open_stream(stream)
