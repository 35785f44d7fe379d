"""`FileSink`: what a user writes, and which columns the files get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidemark.contracts.dead_letters import dead_letters_as_json
from tidemark.contracts.sink import SinkContext, WriterContext
from tidemark.file_systems.local import local_path
from tidemark.model.errors import ConfigurationError
from tidemark.model.guarantee import SinkWay
from tidemark.model.schema import Schema, quoted
from tidemark.sinks.files.committer import FileCommitter
from tidemark.sinks.files.formats import FORMATS
from tidemark.sinks.files.writer import FileWriter
from tidemark.sinks.internal import staged_files
from tidemark.sinks.internal.columns import check_columns, refused, text_expression, to_json
from tidemark.sinks.internal.staged_files import StagedFile


@dataclass(frozen=True)
class FileSink:
    """Add files to a directory, each row exactly once.

    path: a directory on a local file system that the driver and all executors share, as a path or a
        ``file:`` URI; made when it is missing. It may hold other files, but not those of Spark's
        own streaming file sink.
    format: ``"parquet"``, ``"json"`` (one object per line) or ``"csv"``.

    Each task of an epoch adds one file, ``part-<epoch>-<partition>-<unique>.<format>``, by a rename
    once the epoch is decided. Undecided files lie in ``<path>/_tidemark/pending``; readers that
    list a directory (Spark, pyarrow, pandas) skip names that begin with ``_``. Do not delete or
    move a file before the epoch after it is committed: its name is the proof of its commit.

    Parquet: Spark's types as they are; timestamp in microseconds, UTC. JSON: as Spark's ``to_json``
    writes it: null fields left out, binary in base64, and timestamps ISO 8601 with microseconds, in
    UTC. CSV: a header line, RFC 4180 quoting (in Spark read it with ``header=True, escape='"',
    multiLine=True``), null as nothing and an empty string as ``""``, timestamps as text
    ``YYYY-MM-DD HH:MM:SS.ffffffZ``, always in UTC, timestamp_ntz without the ``Z``; arrays, maps
    and structs as in JSON; binary is refused.

    Raises ConfigurationError.
    """

    path: str
    format: str = "parquet"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", local_path(self.path, "FileSink: path"))
        if self.format not in FORMATS:
            raise ConfigurationError(
                f"FileSink {self.path}: format is {self.format!r}; "
                f"allowed are {', '.join(map(repr, FORMATS))}"
            )

    @property
    def way(self) -> SinkWay:
        """Two-phase commit: a pending file becomes visible by one rename."""
        return SinkWay.TWO_PHASE_COMMIT

    def describe(self) -> str:
        """Return the format and the directory."""
        return f"{self.format} files in {self.path}"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """Return the columns as they are for Parquet, one text column for JSON, text for CSV.

        Raises ConfigurationError for intervals, variants and the like, for doubled names, and for
        binary in CSV.
        """
        check_columns(schema, self.describe())
        names = [quoted(column.name) for column in schema]
        if self.format == "parquet":
            return names
        if self.format == "json":
            # One text column, so that the writer adds nothing but the line ends.
            return [to_json(f"struct({', '.join(names)})") + " AS value"]
        for column in schema:
            if column.type == "binary":
                raise refused(self.describe(), column, "binary (in CSV, write base64 of it)")
        # Spark writes what its own CSV reader takes: plain digits, NaN, Infinity.
        return [text_expression(column, ("decimal", "float", "double")) for column in schema]

    def from_dead_letters(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """See `DeadLetterFormat`: the columns of a dead letter, for JSON as one object."""
        if self.format != "json":
            return letters
        return pa.record_batch({"value": pa.array(dead_letters_as_json(letters), pa.string())})

    def check_transaction_scope(self, context: SinkContext) -> None:
        """Nothing to check: a pending file has no time-out, and its path holds job and sink."""

    def create_writer(self, context: WriterContext) -> FileWriter:
        """Return a writer of one pending file; it touches nothing before the first row."""
        return FileWriter(Path(self.path), self.format, context)

    def create_committer(self, context: SinkContext) -> FileCommitter:
        """Return the committer; it holds no open file."""
        return FileCommitter(Path(self.path), context)

    def dump(self, committable: StagedFile) -> bytes:
        """Serialise, with a version and a checksum."""
        return staged_files.dump(committable)

    def load(self, data: bytes) -> StagedFile:
        """Read what `dump` wrote; raises CorruptRecordError."""
        return staged_files.load(data)
