"""`IcebergSink`: the user's configuration, checked when it is built."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from seamark.api.checks import Size, yes_or_no
from seamark.files import HadoopSettings
from seamark.model.errors import ConfigurationError
from seamark.model.redaction import redact
from seamark.model.schema import Schema, quoted
from seamark.sinks.iceberg import partitions, preflight, read_back
from seamark.sinks.iceberg.catalog import CatalogTable
from seamark.sinks.iceberg.committable import IcebergCommittable
from seamark.sinks.iceberg.committer import IcebergCommitter
from seamark.sinks.iceberg.writer import IcebergWriter
from seamark.sinks.internal import changes, table_merge
from seamark.sinks.internal.columns import check_columns, column_names, require_column
from seamark.sinks.internal.file_size import checked_size

_METADATA_COLUMNS = frozenset({"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id",
                              "_last_updated_sequence_number"})  # fmt: skip
"""Spark, by Iceberg's own library, does not read a table with a column of such a name."""
_RELATIVE = re.compile(r"(?:sqlite(?:\+\w+)?:///|file:)?(?![a-z0-9+.-]+:)[^/:?].*")
_TABLE = re.compile(r"[^\s./`]+(?:\.[^\s./`]+)+")


@dataclass(frozen=True)
class IcebergSink(changes.ByKey[IcebergCommittable]):
    """Append rows to an Iceberg table exactly once, or change its rows by key; an epoch's rows all
    come in one snapshot.

    table: namespace and name, ``shop.orders``.
    catalog: the catalog's settings, as pyiceberg's `load_catalog` takes them: ``{"type": "rest",
        "uri": …}``, ``{"type": "sql", "uri": …, "warehouse": …}``. Settings missing here come from
        pyiceberg's own file and environment, on the driver's and on each executor's machine. Never
        shown or stored.
    catalog_name: the catalog's name: an SQL catalog keeps its tables under it.
    partition_by: the partitions of a table that the sink makes: columns, and ``bucket(16, id)``,
        ``truncate(4, name)``, ``year(ts)``, ``month(ts)``, ``day(ts)``, ``hour(ts)``. A table that
        is there keeps its own.
    create_table: whether to create a missing table, and its namespace, with the DataFrame's
        columns.
    merge_schema: whether to add the DataFrame's columns that a table lacks, at the job's start.
    storage_options: Hadoop settings for S3 (``fs.s3a.endpoint``, …) or HDFS, as for `DeltaSink`.
        The catalog's settings for S3 (``s3.endpoint``, ``s3.access-key-id``, …), and those that it
        hands out with the table, override them. Never shown or stored.
    mode: ``append``, or ``upsert``: a row replaces the rows of its key (copy-on-write). If an epoch
        has several rows for one key, the task's last row wins. Left out, it is ``upsert`` if there
        are keys.
    keys: with ``upsert``: the columns of a row's key.
    op: beside keys: a string column that is not written, but says what its row does: ``insert`` and
        ``update`` replace the row of the key, ``delete`` deletes it.
    target_file_size: the size of a file, as for `FileSink`; not with keys.

    An existing table's columns must have the DataFrame's types; further columns must be nullable.
    Other writers may append, compact, expire snapshots and change schema and partitions at the same
    time. Files written and not yet committed are orphans to ``remove_orphan_files``, so it must
    keep files for longer than the job may be down.

    Raises ConfigurationError. Needs ``pip install 'pyspark-seamark[iceberg]'``.
    """

    table: str
    catalog: Mapping[str, str] = field(default_factory=HadoopSettings)
    catalog_name: str = "default"
    partition_by: Sequence[str] = ()
    create_table: bool = False
    merge_schema: bool = False
    storage_options: Mapping[str, str] = field(default_factory=HadoopSettings)
    mode: Literal["append", "upsert"] | None = None
    keys: Sequence[str] = ()
    op: str | None = None
    target_file_size: Size | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.table, str) or not _TABLE.fullmatch(self.table):
            raise ConfigurationError(
                f"IcebergSink: table is {self.table!r}; give namespace and name, e.g. 'shop.orders'"
            )
        sink = f"IcebergSink {self.table}"
        for name in ("catalog", "storage_options"):
            given = HadoopSettings.given(getattr(self, name), f"{sink}: {name}")
            object.__setattr__(self, name, given)
        for name in ("uri", "warehouse") if self._has_sql_catalog else ():
            value = self.catalog.get(name, "")
            if _RELATIVE.fullmatch(value):
                raise ConfigurationError(
                    f"{sink}: catalog's {name} is {redact(value)!r}, a relative path; give an "
                    "absolute one, which driver and executors share"
                )
        if not isinstance(self.catalog_name, str) or not self.catalog_name:
            raise ConfigurationError(
                f"{sink}: catalog_name is {self.catalog_name!r}; give the catalog's name"
            )
        columns = column_names(self.partition_by, f"{sink}: partition_by", in_order=True)
        object.__setattr__(self, "partition_by", columns)
        _ = self.fields
        yes_or_no(self.create_table, f"{sink}: create_table")
        yes_or_no(self.merge_schema, f"{sink}: merge_schema")
        self._check_keys(sink, ("append", "upsert"))
        size = checked_size(self.target_file_size, sink, self.keys)
        object.__setattr__(self, "target_file_size", size)
        if self.op is not None and self.op in (column for _, column in self.fields):
            raise ConfigurationError(
                f"{sink}: op is {self.op!r}, which is a partition column; give another"
            )

    @property
    def _has_sql_catalog(self) -> bool:
        """Whether the warehouse is a place: a REST catalog's is a name."""
        uri = self.catalog.get("uri", "")
        return self.catalog.get("type") == "sql" or uri.startswith(("sqlite", "postgresql"))

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The transform and the column of each entry of `partition_by`."""
        setting = f"IcebergSink {self.table}: partition_by"
        return [partitions.parse(text, setting) for text in self.partition_by]

    def describe(self) -> str:
        """See `TwoPhaseCommitSink`."""
        how = f" (merge by {', '.join(self.keys)})" if self.keys else ""
        return f"Iceberg table {self.table}{how}"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """See `TwoPhaseCommitSink`. Selects every column as it is."""
        own = _METADATA_COLUMNS - {self.op}
        check_columns(schema, self.describe(), own.__contains__)
        for _, column in self.fields:
            require_column(column, schema, "partition", "partition_by", self.describe())
        self._check_key_columns(schema)
        table_merge.check_key_types(self.keys, schema, self.describe())
        return [quoted(column.name) for column in schema]

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        uri = redact(self.catalog.get("uri", ""))
        return [f"iceberg: {self.catalog_name} {uri} {self.table}"]

    def catalog_table(self, hadoop: HadoopSettings, *, makes: bool = False) -> CatalogTable:
        """Return the table in its catalog; `hadoop` are Spark's settings, `makes` is as there."""
        settings = hadoop.under(self.storage_options)
        return CatalogTable(self.table, self.catalog_name, self.catalog, settings, makes=makes)

    create_selective_writer = changes.ByKey.create_writer
    look = preflight.look
    read_back = read_back.read
    writer = IcebergWriter
    committer = IcebergCommitter
    committable = IcebergCommittable
