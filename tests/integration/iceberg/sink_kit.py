"""Tables and rows for the tests of IcebergSink, and how others read them: pyiceberg with its own
access to files, on an SQLite catalog or another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.schema import Column, Schema
from seamark.sinks.iceberg import IcebergSink
from seamark.sinks.iceberg.snapshots import file_names
from seamark.verify.conformance import SinkUnderTest

COLUMNS = (Column("id", "bigint"), Column("part", "string"), Column("text", "string"))
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("text", pa.string())])
JOB, UID = "c0ffee00c0ffee00", "orders-out"


def driver(generation: int = 1, *, uid: str = UID, schema: Schema = COLUMNS) -> SinkContext:
    """Return the context for a committer of this generation."""
    return SinkContext(JOB, "orders", uid, generation, checkpoint_interval_s=5.0, schema=schema)


def attempt(
    generation: int = 1, epoch: int = 0, partition: int = 0, *, uid: str = UID
) -> WriterContext:
    """Return the context for the writer of one attempt."""
    return WriterContext(JOB, uid, generation, epoch, partition, 0, settled_epoch=epoch - 1)


def catalog_at(directory: Path) -> dict[str, str]:
    """Return the settings of an SQLite catalog, with its tables beside it."""
    directory.mkdir(exist_ok=True)
    return {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"file://{directory}/tables",
    }


def made(
    catalog: Mapping[str, str],
    partition_by: Sequence[str] = (),
    schema: Schema = COLUMNS,
    table: str = "shop.orders",
    **settings: Any,
) -> IcebergSink:
    """Return a sink on a new, empty table, which it has made."""
    sink = IcebergSink(table, catalog, partition_by=partition_by, create_table=True, **settings)
    sink.create_committer(driver(schema=schema)).preflight()
    return IcebergSink(table, catalog, **settings)


def batch(numbers: Sequence[int]) -> pa.RecordBatch:
    """Return a row for each number, in three partitions, one of them null."""
    parts = [(None, "odd / 1%", "ü:2")[number % 3] for number in numbers]
    return pa.record_batch(
        [list(numbers), parts, [f"row {number}" for number in numbers]], schema=SCHEMA
    )


def opened(sink: IcebergSink) -> Any:
    """Return the table as another program finds it."""
    return load_catalog("default", **sink.catalog).load_table(sink.table)


def numbers(sink: IcebergSink) -> list[int]:
    """Read every number, and compare its row with the row written."""
    found = opened(sink).scan().to_arrow().to_pylist()
    assert found == [batch([row["id"]]).to_pylist()[0] for row in found]
    return [row["id"] for row in found]


def expire_all(sink: IcebergSink) -> None:
    """Expire all snapshots but the current one, as the table's maintenance does."""
    table = opened(sink)
    current = table.current_snapshot().snapshot_id
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != current]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()


def compact(sink: IcebergSink) -> None:
    """Make all files one, as another program does."""
    table = opened(sink)
    table.overwrite(table.scan().to_arrow())


def under_suite(sink: IcebergSink) -> SinkUnderTest:
    """Return the conformance suite's facts about the sink `made`."""

    def drop(found: Any) -> None:
        (path, *_) = found.sizes
        Path(found.location.removeprefix("file://"), path).unlink()

    def forget(_: object) -> None:
        """The table's maintenance, and an owner who removes a property that he does not know."""
        compact(sink)
        expire_all(sink)
        table = opened(sink)
        with table.transaction() as transaction:
            transaction.remove_properties(*[n for n in table.properties if "seamark" in n])

    return SinkUnderTest(
        sink=sink,
        batch=batch,
        visible=lambda: numbers(sink),
        writer_failpoint="data-files-written",
        commit_failpoints=("iceberg-committed",),
        drop=drop,
        forget=forget,
    )


def by_key(under: SinkUnderTest) -> SinkUnderTest:
    """Return the facts about the same table, changed by key."""
    changed = dataclasses.replace(  # type: ignore[type-var]
        under.sink, mode="upsert", keys=["id"], op="op"
    )

    def with_op(numbers: Sequence[int]) -> pa.RecordBatch:
        rows = batch(numbers)
        return rows.append_column("op", pa.array(["insert"] * rows.num_rows))

    return dataclasses.replace(under, sink=changed, batch=with_op)


def unnamed(sink: IcebergSink) -> list[str]:
    """Return the files below the table on a local disk, data, staged rows or records, that no
    snapshot names."""
    table = opened(sink)
    named = file_names(table)
    below = Path(table.location().removeprefix("file://"))
    found = [*below.glob("data/**/*.parquet"), *below.glob("_seamark/**/*")]
    return sorted(path.name for path in found if path.is_file() and path.name not in named)
