"""`FileSink`: the user's configuration, and the columns of the files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import pyarrow as pa

from seamark.api.checks import Size, one_of, yes_or_no
from seamark.contracts.dead_letters import DEAD_LETTER_SCHEMA, dead_letters_as_json
from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.contracts.sink import WriterContext
from seamark.files import HadoopSettings, open_directory, shared_uri
from seamark.files.cloud_options import CLOUD_SCHEMES
from seamark.files.location import place_of
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, Schema, quoted
from seamark.sinks.files import preflight, read_back
from seamark.sinks.files.committer import FileCommitter
from seamark.sinks.files.formats import COMPRESSIONS, JSON_COLUMN, Format
from seamark.sinks.files.pending import open_pending
from seamark.sinks.files.pending_file import VERSION, PendingFile, new_path
from seamark.sinks.files.writer import FileWriter
from seamark.sinks.internal.columns import (
    check_columns,
    column_names,
    refused,
    require_column,
    text_expression,
    to_json,
)
from seamark.sinks.internal.committables import StagingSink
from seamark.sinks.internal.file_size import checked_size
from seamark.sinks.internal.partitions import any_directory

_PARTITION_TYPES = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "date",
    "string", "char", "varchar",
)  # fmt: skip
_CSV_DEFAULTS = (True, ",", "", '"')


@dataclass(frozen=True)
class FileSink(StagingSink[PendingFile]):
    """Add files to a directory, each row exactly once.

    path: a directory on a file system shared by the driver and all executors: a local path or a
        ``file:`` URI, ``hdfs:``, ``s3a:`` or ``s3:``; created if missing. It may hold other files,
        but not those of Spark's own streaming file sink.
    format: ``"parquet"``, ``"json"`` (one object per line) or ``"csv"``.
    partition_by: columns whose values go into the names of directories, ``<column>=<value>/``, as
        with Spark's ``partitionBy``; the files leave them out.
    compression: Parquet: ``"snappy"`` (default), ``"zstd"``, ``"gzip"``, ``"lz4"``, ``"none"``.
        JSON and CSV: ``"none"`` (default), ``"gzip"``.
    header, delimiter, null_value: for CSV: whether each file begins with the columns' names; one
        character between fields; the text for null.
    escape: for CSV: what stands before a quotation mark in a text. A quotation mark, by RFC 4180,
        or a backslash, as Spark's own CSV has it: then before each backslash there too.
    target_file_size: the size of a file, at least 1 MB: a number of bytes, or text (``"128MB"``).
        A larger file is split, and an epoch with little output is written by fewer tasks
        (docs/how-to/keep-files-large.md). None: a file for each task, of any size.
    hadoop: settings by Hadoop's names, e.g. ``fs.s3a.endpoint``, for this sink alone. They override
        the Spark session's.

    Each task of an epoch adds a file, or one for each partition directory. Once the epoch is
    decided, each file becomes visible whole, in one step; the epoch's files follow one after
    another. Do not delete, move or rename a file before the next epoch is committed: its name is
    the proof of its commit. Types, limits, and the readers' view meanwhile: docs/sinks/files.md.

    Raises ConfigurationError.
    """

    path: str
    format: str = "parquet"
    _: KW_ONLY
    partition_by: Sequence[str] = ()
    compression: str | None = None
    header: bool = True
    delimiter: str = ","
    null_value: str = ""
    escape: str = '"'
    target_file_size: Size | None = None
    hadoop: Mapping[str, str] = field(default_factory=HadoopSettings, repr=False)

    def __post_init__(self) -> None:
        path = shared_uri(self.path, "FileSink: path")
        if path.partition(":")[0] in CLOUD_SCHEMES:
            raise ConfigurationError(
                f"FileSink: path is {path!r}, a store on which no pending file can be published in "
                "one step by another process yet; give a local path, a URI with 'hdfs:' or 's3a:', "
                "or a DeltaSink there"
            )
        object.__setattr__(self, "path", path)
        object.__setattr__(
            self, "hadoop", HadoopSettings.given(self.hadoop, f"FileSink {self.path}: hadoop")
        )
        name = f"FileSink {self.path}"
        one_of(self.format, COMPRESSIONS, f"{name}: format")
        allowed = COMPRESSIONS[self.format]
        if self.compression is None:
            object.__setattr__(self, "compression", allowed[0])
        one_of(self.compression, allowed, f"{name}: compression of {self.format}")
        columns = column_names(self.partition_by, f"{name}: partition_by", in_order=True)
        object.__setattr__(self, "partition_by", columns)
        if hidden := [column for column in columns if column.startswith(".")]:
            raise ConfigurationError(
                f"{name}: partition_by has {hidden[0]!r}, and readers skip a directory whose name "
                "begins with a dot; rename the column with withColumnRenamed"
            )
        object.__setattr__(self, "target_file_size", checked_size(self.target_file_size, name))
        self._check_csv()

    def describe(self) -> str:
        """Return the format and the directory."""
        by = f" by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"{self.format} files in {self.path}{by}"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """Return the columns as they are for Parquet, one text column for JSON, text for CSV; then
        the partition columns, as text.

        Raises ConfigurationError for intervals, variants and the like, for duplicate names, and for
        binary in CSV. Also for partition columns that are missing, the only columns, or of a type
        unfit for a directory's name.
        """
        check_columns(schema, self.describe(), as_json=self.format != "parquet")
        partitions = [self._partition_column(schema, name) for name in self.partition_by]
        data = [column for column in schema if column not in partitions]
        if not data:
            raise ConfigurationError(
                f"{self.describe()}: partition_by takes every column of the DataFrame, so that "
                "nothing is left for the files; leave one out"
            )
        as_text = [
            f"CAST({quoted(column.name)} AS STRING) AS {quoted(column.name)}"
            for column in partitions
        ]
        return [*self._data_expressions(data), *as_text]

    def from_dead_letters(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """See `DeadLetterFormat`. Returns the columns of a dead letter, for JSON as one object;
        partition columns last, as text."""
        self.select_expressions(DEAD_LETTER_SCHEMA)
        if "row_json" in self.partition_by:
            raise ConfigurationError(
                f"{self.describe()}: partition_by names 'row_json', the refused row itself; a dead "
                "letter can be partitioned by 'sink' and 'epoch'"
            )
        data = letters.select([n for n in letters.schema.names if n not in self.partition_by])
        columns = dict(zip(data.schema.names, data.columns, strict=True))
        if self.format == "json":
            columns = {JSON_COLUMN: pa.array(dead_letters_as_json(data), pa.string())}
        for name in self.partition_by:
            columns[name] = letters.column(name).cast(pa.string())
        return pa.record_batch(columns)

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        return [f"files: {place_of(self.path)}"]

    @property
    def example_file(self) -> str:
        """See `FilesSink`."""
        directory = any_directory(self.path, self.partition_by)
        return new_path(WriterContext("", "", 1, 0, 0, 0, -1), directory, self._format.extension)

    def read_back(self, asked: ReadBack) -> Iterator[FoundRows]:
        """See `ReadableSink`: every file that readers of the directory see."""
        directory = open_directory(self.path, asked.context.hadoop.under(self.hadoop))
        yield from read_back.read(directory, self._format, asked)

    def create_writer(self, context: WriterContext) -> FileWriter:
        """Return a writer of pending files. It touches nothing before the first row."""
        pending = open_pending(self.path, context.hadoop.under(self.hadoop))
        size = int(self.target_file_size or 0)
        return FileWriter(pending, self._format, tuple(self.partition_by), context, size)

    look = preflight.look
    committer = FileCommitter
    committable = PendingFile
    format_version = VERSION

    @property
    def _format(self) -> Format:
        assert self.compression is not None
        csv = (self.header, self.delimiter, self.null_value, self.escape)
        return Format(self.format, self.compression, *csv)

    def _data_expressions(self, data: Sequence[Column]) -> Sequence[str]:
        names = [quoted(column.name) for column in data]
        if self.format == "parquet":
            for column in data:
                if "struct<>" in column.type:
                    raise refused(self.describe(), column, f"{column.type} (without a field)")
            return names
        if self.format == "json":
            # One text column, so that the writer adds nothing but the line ends.
            return [to_json(f"struct({', '.join(names)})") + f" AS {quoted(JSON_COLUMN)}"]
        for column in data:
            if column.type == "binary":
                raise refused(self.describe(), column, "binary (in CSV, write base64 of it)")
        if len(data) == 1 and not self.null_value:
            raise ConfigurationError(
                f"{self.describe()}: with {data[0].name!r} as the only column a null would be an "
                "empty line, which readers of CSV skip; give null_value, e.g. 'NULL', or another "
                "format"
            )
        # Spark writes text for its own CSV reader: plain digits, NaN, Infinity.
        return [text_expression(column, ("decimal", "float", "double")) for column in data]

    def _partition_column(self, schema: Schema, name: str) -> Column:
        require_column(name, schema, "partition", "partition_by", self.describe())
        (column,) = (column for column in schema if column.name == name)
        if column.type.partition("(")[0] not in _PARTITION_TYPES:
            raise ConfigurationError(
                f"{self.describe()}: partition column {name!r} has type {column.type}; a "
                "directory's name can hold booleans, numbers, dates and strings. For a timestamp "
                f"take its date, to_date(`{name}`), or a string of your own"
            )
        return column

    def _check_csv(self) -> None:
        yes_or_no(self.header, f"FileSink {self.path}: header")
        if self.format != "csv":
            if (self.header, self.delimiter, self.null_value, self.escape) != _CSV_DEFAULTS:
                raise ConfigurationError(
                    f"FileSink {self.path}: header, delimiter, null_value and escape are settings "
                    f"of the format 'csv'; the format here is {self.format!r}"
                )
            return
        one_of(self.escape, ('"', "\\"), f"FileSink {self.path}: escape")
        reserved = {'"', "\r", "\n", self.escape}
        delimiter, null = self.delimiter, self.null_value
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in {*reserved, "\0"}:
            raise ConfigurationError(
                f"FileSink {self.path}: delimiter is {delimiter!r}; give one character, but no "
                "quotation mark, line end or escape"
            )
        inside = reserved - {"\\"} | {delimiter}
        unfit = not isinstance(null, str) or set(null) & inside or null != null.strip()
        if unfit or null.endswith(self.escape):
            raise ConfigurationError(
                f"FileSink {self.path}: null_value is {null!r}; give a text without quotation "
                "marks, line ends, delimiters, and blanks around it, that does not end in the "
                "escape, e.g. 'NULL'"
            )
