"""Tables and rows for the tests of DeltaSink, and how they are read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from seamark.contracts.sink import SinkContext, WriterContext
from seamark.files import HadoopSettings, open_directory
from seamark.model.schema import Schema
from seamark.sinks.delta import DeltaSink
from seamark.sinks.delta.store import delta_options
from seamark.verify.conformance import ServerUnderTest, SinkUnderTest

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("text", pa.string())])


JOB, UID = "c0ffee00c0ffee00", "orders-out"


def driver(generation: int = 1, *, uid: str = UID, schema: Schema = ()) -> SinkContext:
    """Return the context for a committer of this generation."""
    return SinkContext(JOB, "orders", uid, generation, checkpoint_interval_s=5.0, schema=schema)


def attempt(
    generation: int = 1, epoch: int = 0, partition: int = 0, *, uid: str = UID
) -> WriterContext:
    """Return the context for the writer of one attempt."""
    return WriterContext(JOB, uid, generation, epoch, partition, 0, settled_epoch=epoch - 1)


def made(
    path: Path | str,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    schema: pa.Schema = SCHEMA,
) -> DeltaSink:
    """Return a sink on a new, empty table."""
    sink = DeltaSink(str(path), partition_by, storage_options=storage_options or {})
    options = options_of(sink)
    DeltaTable.create(sink.path, schema, partition_by=list(partition_by), storage_options=options)
    return sink


def batch(numbers: Sequence[int]) -> pa.RecordBatch:
    """Return a row for each number, in three partitions, one of them null."""
    parts = [(None, "odd / 1%", "ü:2")[number % 3] for number in numbers]
    return pa.record_batch(
        [list(numbers), parts, [f"row {number}" for number in numbers]], schema=SCHEMA
    )


def options_of(sink: DeltaSink) -> dict[str, str] | None:
    return delta_options(sink.path, HadoopSettings(sink.storage_options))


def opened(sink: DeltaSink) -> DeltaTable:
    """Return the table as another program finds it."""
    return DeltaTable(sink.path, storage_options=options_of(sink))


def rows(sink: DeltaSink) -> list[dict[str, Any]]:
    """Read every row, by delta-rs's query engine."""
    found = QueryBuilder().register("t", opened(sink)).execute("SELECT * FROM t").read_all()
    return pa.table(found).to_pylist()


def numbers(sink: DeltaSink) -> list[int]:
    """Read every number, and compare its row with the row written."""
    found = rows(sink)
    assert found == [batch([row["id"]]).to_pylist()[0] for row in found]
    return [row["id"] for row in found]


def under_suite(sink: DeltaSink, server: ServerUnderTest | None = None) -> SinkUnderTest:
    """Return the conformance suite's facts about the sink `made`."""
    files = open_directory(sink.path, HadoopSettings(sink.storage_options))

    def forget(_: object) -> None:
        """The table's maintenance: files are made one, and old entries of the log cleaned up."""
        more = pa.Table.from_batches([batch(range(500, 510))])
        write_deltalake(sink.path, more, mode="append", storage_options=options_of(sink))
        table = opened(sink)
        table.optimize.compact()
        table.create_checkpoint()
        for version in range(table.version()):
            files.remove(f"_delta_log/{version:020}.json")

    return SinkUnderTest(
        sink=sink,
        batch=batch,
        visible=lambda: numbers(sink),
        writer_failpoint="data-files-written",
        commit_failpoints=("delta-committed",),
        drop=lambda found: files.remove(found.data_files[0].path),
        forget=forget,
        server=server,
    )


def by_key(under: SinkUnderTest) -> SinkUnderTest:
    """Return the facts about the same table, changed by key."""
    changed = dataclasses.replace(under.sink, keys=["id"], op="op")  # type: ignore[type-var]

    def with_op(numbers: Sequence[int]) -> pa.RecordBatch:
        rows = batch(numbers)
        return rows.append_column("op", pa.array(["insert"] * rows.num_rows))

    return dataclasses.replace(under, sink=changed, batch=with_op)
