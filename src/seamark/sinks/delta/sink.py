"""`DeltaSink`: the user's configuration, checked when it is built."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from seamark.api.checks import Size, yes_or_no
from seamark.contracts.attempt_name import AttemptName
from seamark.files import HadoopSettings, shared_uri
from seamark.files.cloud_options import CLOUD_SCHEMES
from seamark.files.location import place_of
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Schema, quoted
from seamark.sinks.delta import preflight, read_back, types
from seamark.sinks.delta.committable import DeltaCommittable
from seamark.sinks.delta.committer import DeltaCommitter
from seamark.sinks.delta.writer import DeltaWriter
from seamark.sinks.internal import changes, table_merge
from seamark.sinks.internal.columns import check_columns, column_names, require_column
from seamark.sinks.internal.file_size import checked_size
from seamark.sinks.internal.partitions import any_directory
from seamark.sinks.internal.table_committable import file_name

_OTHERS = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]^|\\]")
_OTHERS_IN_URIS = {
    "hdfs": re.compile(r"[^!-~]|[\"#<>?`{}]"),
    **dict.fromkeys(("s3", "s3a", *CLOUD_SCHEMES), re.compile(r"[#?]")),
}
"""Characters encoded or decoded once too often in delta-rs's URLs."""


@dataclass(frozen=True)
class DeltaSink(changes.ByKey[DeltaCommittable]):
    """Append rows to a Delta Lake table exactly once, or change its rows by key; an epoch's rows
    all come in one version.

    path: the table's directory: a local path or ``file:`` URI shared by the driver and all
        executors, ``hdfs://namenode/path``, ``s3a://bucket/path`` (``s3:`` is the same),
        ``gs://bucket/path``, or ``abfss://container@account.dfs.core.windows.net/path``.
    partition_by: the table's partition columns, in their order: string, integer, boolean or date.
        As everywhere in Delta, an empty string in a partition column is read back as null.
    create_table: whether to create a missing table, with the DataFrame's columns.
    storage_options: Hadoop settings for S3 (``fs.s3a.endpoint``, ``fs.s3a.access.key``, …, or for
        one bucket, ``fs.s3a.bucket.<bucket>.…``), HDFS, Google's store (``fs.gs.…``) or Azure's
        (``fs.azure.…``). They override the Spark session's settings, which hold without them.
        Settings missing in both come from the environment or the machine's role. Never shown or
        stored.
    keys: the columns of a row's key: a row replaces the rows of the same key (MERGE). If an
        epoch has several rows for one key, the task's last row wins. Without keys rows are
        appended.
    op: beside keys: a string column that is not written, but says what its row does: ``insert`` and
        ``update`` replace the row of the key, ``delete`` deletes it.
    target_file_size: the size of a file, as for `FileSink`; not with keys.
    mode: ``append`` or ``upsert``, as for other sinks; left out, it follows from the keys.

    An existing table's columns must have the DataFrame's types; further columns must be nullable.
    Other writers may append, compact, alter and vacuum the table at the same time. VACUUM deletes
    files written and not yet committed, so it must keep files for longer than the job may be down.

    Each commit's log entry has the application transaction ``seamark:<job id>:<uid>`` with the
    epoch as its version. A job restored from a checkpoint has a new id.

    Raises ConfigurationError. Needs ``pip install 'pyspark-seamark[delta]'``.
    """

    path: str
    partition_by: Sequence[str] = ()
    create_table: bool = False
    storage_options: Mapping[str, str] = field(default_factory=HadoopSettings)
    keys: Sequence[str] = ()
    op: str | None = None
    target_file_size: Size | None = None
    mode: Literal["append", "upsert"] | None = None

    def __post_init__(self) -> None:
        path = shared_uri(self.path, "DeltaSink: path")
        if path.startswith("hdfs:///"):
            raise ConfigurationError(
                f"DeltaSink: path is {path!r}, which names no NameNode; write hdfs://<host>:<port>"
                "/<path>, or hdfs://<name service>/<path>"
            )
        also = _OTHERS_IN_URIS.get(path.partition("://")[0])
        if match := _OTHERS.search(path) or (also and also.search(path)):
            raise ConfigurationError(
                f"DeltaSink: path is {path!r}, and delta-rs takes {match[0]!r} in it for something "
                "else: the table would lie in another directory than its rows; give a path without"
            )
        object.__setattr__(self, "path", path)
        yes_or_no(self.create_table, f"DeltaSink {path}: create_table")
        columns = column_names(self.partition_by, f"DeltaSink {path}: partition_by", in_order=True)
        object.__setattr__(self, "partition_by", columns)
        options = HadoopSettings.given(self.storage_options, f"DeltaSink {path}: storage_options")
        object.__setattr__(self, "storage_options", options)
        self._check_keys(f"DeltaSink {path}", ("append", "upsert"))
        size = checked_size(self.target_file_size, f"DeltaSink {path}", self.keys)
        object.__setattr__(self, "target_file_size", size)
        if self.op is not None and self.op in columns:
            raise ConfigurationError(
                f"DeltaSink {path}: op is {self.op!r}, which is a partition column; give another"
            )

    def describe(self) -> str:
        """See `TwoPhaseCommitSink`."""
        by = f" (partitioned by {', '.join(self.partition_by)})" if self.partition_by else ""
        how = f" (merge by {', '.join(self.keys)})" if self.keys else ""
        return f"Delta table {self.path}{by}{how}"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """See `TwoPhaseCommitSink`. Selects every column as it is."""
        check_columns(schema, self.describe())
        of = {column.name: column.type for column in schema}
        for name in self.partition_by:
            require_column(name, schema, "partition", "partition_by", self.describe())
            if types.normal(of[name]) not in types.PARTITION_TYPES:
                kind = "DATE" if of[name].startswith("timestamp") else "STRING"
                raise ConfigurationError(
                    f"{self.describe()}: the partition column {name!r} is {of[name]}; allowed are "
                    f"{', '.join(types.PARTITION_TYPES)}. CAST it, e.g. CAST(`{name}` AS {kind})"
                )
        self._check_key_columns(schema)
        table_merge.check_key_types(self.keys, schema, self.describe())
        if len(self.partition_by) == len(changes.target_columns(schema, self.op)):
            raise ConfigurationError(
                f"{self.describe()}: every column is a partition column; a table needs one more"
            )
        return [quoted(column.name) for column in schema]

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        return [f"delta: {place_of(self.path)}"]

    @property
    def example_file(self) -> str:
        """See `FilesSink`."""
        name = file_name(str(AttemptName("a/a", 1, 0, 0, 0, "0" * 32)), 0)
        return f"{any_directory(self.path, self.partition_by)}/{name}"

    create_selective_writer = changes.ByKey.create_writer
    look = preflight.look
    read_back = read_back.read
    writer = DeltaWriter
    committer = DeltaCommitter
    committable = DeltaCommittable
