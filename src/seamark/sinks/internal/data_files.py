"""Writes Arrow batches into one attempt's Parquet files: one for each set of partition values."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from seamark.files import NewFile, RowDirectory
from seamark.model.ignored import clean
from seamark.sinks.internal import stored
from seamark.sinks.internal.file_size import in_parts_of
from seamark.sinks.internal.parquet import ROW_GROUP_BYTES, FloatFacts, ParquetEncoder

V = TypeVar("V", bound=Hashable)
MOST_OPEN_FILES = 256
"""A quarter of what Linux lets a process have open. Beyond it the least recently used file is
finished; its values get another one if they come again."""


@dataclass(frozen=True)
class WrittenFile(Generic[V]):
    """A durable file: its path, its partition values, its bytes, its footer (pyarrow's
    `FileMetaData`), and the facts of its floating-point columns, of which the footer has none."""

    path: str
    values: V
    size_bytes: int
    metadata: Any
    floats: Mapping[str, FloatFacts]


@dataclass
class _Open(Generic[V]):
    path: str
    values: V
    stream: "_Counted"
    encoder: ParquetEncoder
    floats: Mapping[str, FloatFacts]


class _Counted:
    """A file for pyarrow's writers that counts its bytes. Only its owner ends it."""

    closed = False

    def __init__(self, file: NewFile) -> None:
        self.file = file
        self.size_bytes = 0

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        written = self.file.write(data)
        self.size_bytes += written
        return written

    def flush(self) -> None:
        """Do nothing: the owner's `close` counts."""

    def close(self) -> None:
        """Do nothing: the owner's `close` counts."""


class DataFiles(Generic[V]):
    """The files of one attempt.

    split: yields the rows of a batch for each set of partition values, as they are written.
    path: returns the path of the nth file, for these values.
    announce: receives new paths before their files are created.
    target_bytes: a file of this size is finished, and its values get another one; 0: of any size.
    """

    def __init__(
        self,
        files: RowDirectory,
        split: Callable[[pa.RecordBatch], Iterator[tuple[V, pa.RecordBatch]]],
        path: Callable[[V, int], str],
        announce: Callable[[Sequence[str]], None],
        compression: str = "snappy",
        target_bytes: int = 0,
    ) -> None:
        self._files = files
        self._split = split
        self._path = path
        self._announce = announce
        self._compression = compression
        self._target_bytes = target_bytes
        self._open: dict[V, _Open[V]] = {}
        self._finished: list[_Open[V]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch. Its buffers are valid only until the call returns."""
        for part in in_parts_of(batch, self._target_bytes):
            self._write_part(part)

    def _write_part(self, batch: pa.RecordBatch) -> None:
        # Those of open files first: none of them is finished before its rows have come.
        parts = sorted(self._split(batch), key=lambda part: part[0] not in self._open)
        begun = len(self._open) + len(self._finished)
        new = [values for values, _ in parts if values not in self._open]
        paths = {values: self._path(values, begun + n) for n, values in enumerate(new)}
        if paths:
            self._announce(list(paths.values()))
        for values, part in parts:
            one = self._open.pop(values, None) or self._begin(values, paths[values], part.schema)
            self._open[values] = one
            one.encoder.write(part)
            for name, facts in one.floats.items():
                facts.add(part.column(name))
            size = one.encoder.expected_bytes(one.stream.size_bytes)
            if self._target_bytes and size >= self._target_bytes:
                self._finish(values)
        encoders = [file.encoder for file in self._open.values()]
        if sum(encoder.buffered_bytes for encoder in encoders) >= ROW_GROUP_BYTES:
            for encoder in encoders:
                encoder.flush()

    def _begin(self, values: V, path: str, schema: pa.Schema) -> _Open[V]:
        if len(self._open) >= MOST_OPEN_FILES:
            self._finish(next(iter(self._open)))
        stream = _Counted(self._files.begin(path))
        encoder = ParquetEncoder(stream, schema, self._compression, self._target_bytes)
        floats = [field.name for field in schema if pa.types.is_floating(field.type)]
        return _Open(path, values, stream, encoder, {name: FloatFacts() for name in floats})

    def close(self) -> list[WrittenFile[V]]:
        """Write the remaining rows, make every file durable and return the files."""
        for values in list(self._open):
            self._finish(values)
        sizes = stored.sizes(self._files, [file.path for file in self._finished])
        return [
            WrittenFile(one.path, one.values, size or 0, one.encoder.metadata, one.floats)
            for one, size in zip(self._finished, sizes, strict=True)
        ]

    def discard(self) -> bool:
        """Give up and remove the files, as far as possible; return whether each was tried. Never
        raises."""
        steps = [
            step for f in self._open.values() for step in (f.encoder.drop, f.stream.file.discard)
        ]
        steps += [f.stream.file.discard for f in self._finished]
        return clean(steps, "a data file")

    def _finish(self, values: V) -> None:
        """Make a file durable."""
        file = self._open[values]
        file.encoder.close()
        file.stream.file.close()
        self._finished.append(self._open.pop(values))
