"""DuckDB: one process at a time may open its file, so tasks stage in Parquet files beside it.

``<file>.seamark/<handle>.parquet`` has the columns of a stage table, so the commit's statements are
those of every dialect, with ``read_parquet`` in the stage's place. Only the driver connects, for
the length of a call; while another process has the database open, its calls are asked again.

A task sees no table. So the types of the target must be those of the DataFrame, and a column that
is not null must be a key: else rows would be refused after the decision.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.dead_letters import Refusals, RefusedRow, without
from seamark.contracts.sink import WriterContext
from seamark.model.ignored import ignored
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import written_columns
from seamark.sinks.internal.staged_files import StagedFileWriter
from seamark.sinks.sql.committable import HANDLE, ROW, SqlCommittable, owner_of
from seamark.sinks.sql.types import Form, checked

if TYPE_CHECKING:
    from seamark.sinks.sql.sink import SqlSink

_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_TYPES: dict[str, Any] = {
    "BOOLEAN": sa.Boolean(), "SMALLINT": sa.SmallInteger(), "INTEGER": sa.Integer(),
    "BIGINT": sa.BigInteger(), "FLOAT": sa.REAL(), "DOUBLE": sa.Double(), "VARCHAR": sa.String(),
    "BLOB": sa.LargeBinary(), "DATE": sa.Date(), "TIMESTAMP": sa.DateTime(),
    "TIMESTAMP WITH TIME ZONE": sa.DateTime(timezone=True),
}  # fmt: skip
_HERE = (
    "WHERE lower(table_name) = lower(:name) "  # as everywhere in DuckDB, quoted or not
    "AND lower(schema_name) = lower(coalesce(:schema, current_schema())) "
    "AND database_name = current_database()"
)
_COLUMNS = sa.text(
    "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns() "
    f"{_HERE} ORDER BY column_index"
)
_KEYS = sa.text(
    f"SELECT constraint_column_names FROM duckdb_constraints() {_HERE} "
    "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') UNION ALL "
    f"SELECT CAST(expressions AS VARCHAR[]) FROM duckdb_indexes() {_HERE} AND is_unique"
)
_TABLE = sa.text(f"SELECT sql FROM duckdb_tables() {_HERE}")
_LOOSE = re.compile(r'("(?:[^"]|"")+"|\w+) VARCHAR COLLATE (?!binary\b)', re.IGNORECASE)


def columns(connection: Any, name: str, schema: str | None) -> list[dict[str, Any]]:
    """Return a table's columns as SQLAlchemy's inspector does; none without the table. The dialect
    asks for tables of PostgreSQL's that DuckDB has not."""
    described = connection.execute(_COLUMNS, {"name": name, "schema": schema})
    return [
        {"name": column, "type": _type(of), "nullable": nullable, "default": default}
        for column, of, nullable, default in described
    ]


def keys(connection: Any, name: str, schema: str | None) -> list[Sequence[str]]:
    """Return the columns of each primary key, unique constraint and unique index of a table."""
    listed = connection.execute(_KEYS, {"name": name, "schema": schema})
    return [[_unquoted(name) for name in names] for (names,) in listed]


def is_table(connection: Any, name: str, schema: str | None) -> bool:
    """Return whether there is a table of this name, and no view."""
    return connection.execute(_TABLE, {"name": name, "schema": schema}).first() is not None


def loose_texts(connection: Any, name: str, schema: str | None) -> set[str]:
    """Return the columns with a collation: it may take 'A' for 'a'. Only the table's SQL tells."""
    sql = connection.execute(_TABLE, {"name": name, "schema": schema}).scalar() or ""
    columns = _LOOSE.findall(sql)
    return {*map(_unquoted, columns)}


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _type(of: str) -> Any:
    if digits := _DECIMAL.fullmatch(of):
        return sa.Numeric(*map(int, digits.groups()))
    return _TYPES.get(of, sa.types.NullType())


def rows(stage: str, names: Sequence[str]) -> Any:
    """Return a staged file as a table with these columns."""
    # By default a directory `day=5` in the path would replace the rows' column of that name.
    own = sa.literal_column("hive_partitioning = false")
    return sa.func.read_parquet(stage, own).table_valued(*names)


def staged_files(root: Path, owner: str) -> Iterator[tuple[str, str]]:
    """Yield each file staged by any attempt of a job's sink, and its handle."""
    for path in sorted((root / owner).glob("*.parquet")):
        yield str(path), f"{owner}/{path.stem}"


class ParquetWriter(StagedFileWriter):
    """One attempt, one file. Writes none without a row."""

    def __init__(self, sink: "SqlSink", context: WriterContext) -> None:
        self._handle = str(AttemptName.of(context, owner_of(context)))
        super().__init__(sink.database.staging_root, f"{self._handle}.parquet")
        self._sink = sink
        self._context = context
        self._parquet: Any = None
        self._names: list[str] = []
        self._types: tuple[str, ...] = ()

    def write(self, batch: pa.RecordBatch) -> None:
        """See `CommittingWriter`."""
        changes.require_fit(self.write_accepted(batch, all_or_none=True), self._sink.describe())

    def write_accepted(
        self, batch: pa.RecordBatch, *, all_or_none: bool = False
    ) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`."""
        if batch.num_rows == 0:
            return ()
        sink = self._sink
        self._types = tuple(column.type for column in written_columns(batch.schema, sink.op))
        refusals = Refusals(changes.unfit(batch, sink.keys, sink.op))
        arrays = [
            checked(array, name, _form(array.type), "duckdb", refusals, key=name in sink.keys)
            for name, array in zip(batch.schema.names, batch, strict=True)
        ]
        refused = refusals.rows()
        if not (refused and all_or_none) and len(refused) < batch.num_rows:
            names = [changes.STAGED_OP if n == sink.op else n for n in batch.schema.names]
            self._stage(without(pa.RecordBatch.from_arrays(arrays, names=names), refused))
        return refused

    def _stage(self, batch: pa.RecordBatch) -> None:
        count = batch.num_rows
        handles = pa.array([self._handle], pa.string()).take(pa.array([0] * count, pa.int32()))
        batch = batch.append_column(HANDLE, handles)
        batch = batch.append_column(ROW, pa.array(range(self._rows, self._rows + count)))
        if self._parquet is None:
            self._names = [n for n in batch.schema.names if n not in (HANDLE, ROW)]
            # Arrow's bounds leave NaN out, and DuckDB finds no row by it that is beyond them.
            self._parquet = pq.ParquetWriter(self._create(), batch.schema, write_statistics=False)
        self._parquet.write_batch(batch)
        self._rows += count

    def prepare_commit(self) -> Sequence[SqlCommittable]:
        """Make the staged file and its directory entry durable."""
        if self._file is None:
            return []
        self._parquet.close()
        self._flush(self._file)
        place, target = self._sink.table_name
        op = changes.STAGED_OP if changes.STAGED_OP in self._names else ""
        return [
            SqlCommittable.of(
                self._context,
                self._handle,
                self._rows,
                place=place,
                stage=str(self._staged),
                target=target,
                columns=tuple(name for name in self._names if name != op),
                types=self._types,
                keys=tuple(self._sink.keys),
                op=op,
            )
        ]

    def abort(self) -> None:
        """Remove the staged file; leftovers are lingering."""
        if self._parquet is not None:
            with ignored("the end of a staged file"):
                self._parquet.close()  # it writes a footer, at the latest when it is collected
        super().abort()


def _form(kind: pa.DataType) -> Form:
    """Return what a column of DuckDB's holds of values of this type."""
    kinds = (
        (pa.types.is_string, "text"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "time"),
        (pa.types.is_floating, "double"),
    )
    return Form(next((form for is_kind, form in kinds if is_kind(kind)), "as it is"))
