"""Checks the real table before any row is written: the rules (`findings`) change nothing."""

import contextlib
import itertools
import logging
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from seamark.contracts.attempt_name import owner_path
from seamark.contracts.sink import SinkContext
from seamark.model.errors import ConfigurationError, PreflightError
from seamark.model.findings import Finding, FindingCode
from seamark.model.schema import Schema
from seamark.sinks.iceberg import partitions, snapshots, types
from seamark.sinks.iceberg.catalog import CatalogTable, RefusedError, driver
from seamark.sinks.iceberg.ledger import Ledger
from seamark.sinks.internal import changes, stored
from seamark.sinks.internal.servers import Findings, usable
from seamark.sinks.internal.table_committer import TRIES

if TYPE_CHECKING:
    from seamark.sinks.iceberg.sink import IcebergSink

_log = logging.getLogger(__name__)
VERSION = 2
_ERRORS = (OSError, ConfigurationError)
_REMEDY = (
    "see that the catalog's settings are right, that the driver and all executors can reach it, "
    "and that they may read and write at the table's location"
)


def look(sink: "IcebergSink", context: SinkContext, name: str, *, start: bool) -> Findings:
    """Yield every finding. A `start` creates a missing table, and missing columns, if the sink may,
    tries to write there, and begins the sink's ledger. Raises PreflightError if the table cannot be
    read."""
    driver()
    catalog = sink.catalog_table(context.hadoop, makes=start and sink.create_table)
    with usable(name, _ERRORS, _REMEDY):
        table: Any = None if catalog.is_new else catalog.load_if_there()
        missing = table is None and sink.create_table
        schema = changes.target_columns(context.schema, sink.op)
        if start and schema:
            if missing:
                _create(sink, catalog, schema, name)
                table = catalog.load()
            elif table is not None and sink.merge_schema:
                _add_columns(catalog, table, schema, name)
                table = catalog.load()
        if table is not None:
            files = table.io.directory(table.metadata.location)
            outer = str(files).rpartition("/")[0]
            remedy = "drop it, and make it with a location outside of that one"
            if within := stored.table_around(outer, table.io.directory, name, remedy):
                yield within
                return
        by_key = table is not None and bool(sink.keys)
        if by_key and catalog.call(partial(snapshots.has_deletes, table)):
            yield Finding(FindingCode.SV005, name, snapshots.HAS_DELETES, snapshots.NO_DELETES)
    if start or not missing:
        yield from findings(table, schema, name)
    if start:
        with usable(name, _ERRORS, _REMEDY):
            probe = f"_seamark/probe-{uuid.uuid4()}"
            stored.write(files, probe, b"")
            files.remove(probe)
            _begin_ledger(catalog, context)


def findings(table: Any, schema: Schema, name: str) -> Findings:
    """The table is missing (None), or does not take the DataFrame's columns as they are."""
    if table is None:
        yield Finding(
            FindingCode.SV004,
            name,
            "the catalog has no such table",
            "make it, or let the sink do so with create_table=True",
        )
        return
    yield from _Rules(table, schema, name).found()


@dataclass(frozen=True)
class _Rules:
    """The rules on a loaded table."""

    table: Any
    schema: Schema
    name: str

    def found(self) -> Findings:
        """Yield every finding."""
        metadata = self.table.metadata
        if metadata.format_version != VERSION:
            yield self._unfit(
                f"the table is of format version {metadata.format_version}, which this sink does "
                "not write",
                f"give it a table of version {VERSION}",
            )
        yield from self._partitions()
        if self.schema:
            yield from self._columns()

    def _unfit(self, what: str, remedy: str) -> Finding:
        return Finding(FindingCode.SV005, self.name, what, remedy)

    def _partitions(self) -> Findings:
        schema, spec = self.table.schema(), self.table.spec()
        given = {column.name for column in self.schema}
        for field in spec.fields:
            source = schema.find_field(field.source_id)
            column = schema.find_column_name(field.source_id)
            if not partitions.can_split(field.transform, source.field_type) or "." in column:
                yield self._unfit(
                    f"the table is partitioned by {field.transform} of {column!r}, which is "
                    f"{types.spark_type(source.field_type)}; this sink cannot split rows by it",
                    "give it a table partitioned by other columns",
                )
            elif given and column not in given:
                yield self._unfit(
                    f"the table is partitioned by column {column!r}, which is not in the DataFrame",
                    f"select it. {self._both()}",
                )

    def _columns(self) -> Findings:
        fields = {field.name: field for field in self.table.schema().fields}
        for column in self.schema:
            field, given = fields.get(column.name), types.normal(column.type)
            if field is None:
                yield self._unfit(
                    f"the table has no column {column.name!r}",
                    "drop it from the DataFrame, ALTER TABLE … ADD COLUMN, or give "
                    f"merge_schema=True. {self._both()}",
                )
                continue
            kind = types.spark_type(field.field_type)
            if not types.fits(given, kind):
                yield self._unfit(
                    f"column {column.name!r} is {given} in the DataFrame and {kind} in the table",
                    f"CAST it in the DataFrame. {self._both()}",
                )
            elif field.required or types.has_required(field.field_type):
                yield self._unfit(
                    f"column {column.name!r} of the table is or has NOT NULL, and nothing here "
                    "checks each row for it",
                    "ALTER TABLE … ALTER COLUMN … DROP NOT NULL",
                )
        names = {column.name for column in self.schema}
        for field in fields.values():
            if field.required and field.name not in names:
                yield self._unfit(
                    f"column {field.name!r} of the table is NOT NULL and is not in the DataFrame",
                    f"select it. {self._both()}",
                )

    def _both(self) -> str:
        table = [f"{f.name} {types.spark_type(f.field_type)}" for f in self.table.schema().fields]
        frame = [f"{column.name} {types.normal(column.type)}" for column in self.schema]
        return f"The table has: {', '.join(table)}. The DataFrame has: {', '.join(frame)}"


def _create(sink: "IcebergSink", catalog: CatalogTable, schema: Schema, name: str) -> None:
    try:
        columns = types.iceberg_schema(schema)
        spec = partitions.new_spec(sink.fields, columns)
    except ConfigurationError as error:
        raise _refused(name, error) from error
    catalog.create(columns, spec)
    _log.info("%s: made the table", name)


def _add_columns(catalog: CatalogTable, table: Any, schema: Schema, name: str) -> None:
    there = {field.name for field in table.schema().fields}
    missing = [column for column in schema if column.name not in there]
    if not missing:
        return
    spelled = {path.lower(): path for path in table.schema().column_names}
    for column in missing:
        if twin := spelled.get(column.name.lower()):
            what = f"column {column.name!r} is {twin!r} in the table, and Spark reads no two such"
            raise PreflightError(
                Finding(FindingCode.SV005, name, what, "rename it with withColumnRenamed")
            )
    if snapshots.behind_ms(table.metadata) > snapshots.BACKWARDS_MS:
        raise PreflightError(
            Finding(
                FindingCode.SV005,
                name,
                "by this machine's clock the table was changed last in the future, by "
                f"{snapshots.behind_ms(table.metadata) // 1000} s: after a change of its columns "
                "with such a time Iceberg's library would not read it",
                "set the clocks alike, or ALTER TABLE … ADD COLUMN elsewhere",
            )
        )
    ids = itertools.count(1)
    try:
        new = [((column.name,), types.iceberg_type(column, ids)) for column in missing]
    except ConfigurationError as error:
        raise _refused(name, error) from error

    def add() -> None:
        with table.update_schema() as update:
            for path, kind in new:
                update.add_column(path, kind)

    catalog.call(add)
    _log.info("%s: added the columns %s", name, ", ".join(column.name for column in missing))


def _begin_ledger(catalog: CatalogTable, context: SinkContext) -> None:
    """From the first epoch on, a ledger's silence is then told from its loss. The sink's first
    commit begins it as well: where others are always faster, or this machine's clock is behind (the
    catalog gives the change this time)."""
    for _ in range(TRIES):
        table = catalog.load()
        properties = Ledger(table.metadata).begun(owner_path(context))
        if not properties or snapshots.behind_ms(table.metadata) > snapshots.BACKWARDS_MS:
            return
        with contextlib.suppress(RefusedError):
            catalog.call(partial(snapshots.commit, table, properties))
            return


def _refused(name: str, error: ConfigurationError) -> PreflightError:
    found, _, remedy = str(error).rpartition("; ")
    return PreflightError(
        Finding(FindingCode.SV005, name, found or remedy, remedy if found else "CAST it")
    )
