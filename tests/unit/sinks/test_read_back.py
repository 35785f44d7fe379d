"""Files and tables are read back as they were written: with the very hashes of the ledger.

How: rows of every type, with nulls and edges, through each sink's writer and committer on a local
disk; the ledger's own tally counts them on their way, and those read back are counted beside it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seamark.checkpoint.row_hash import NO_ROWS, row_hashes, sums
from seamark.checkpoint.sink_epoch import Tally
from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from seamark.model.schema import Column, Schema
from seamark.sinks.delta import DeltaSink
from seamark.sinks.files import FileSink
from seamark.sinks.iceberg import IcebergSink
from seamark.sinks.internal.read_back import some_at_a_time
from seamark.sinks.sqlite import SQLiteSink, database
from tests.integration.iceberg.sink_kit import catalog_at, compact

DRIVER = SinkContext("job", "orders", "out", 1, 1.0)
MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2026, 3, 29, 2, 30), None]
SCALARS: dict[str, pa.Array] = {
    "id": pa.array([1, -(2**63), None], pa.int64()),
    "small": pa.array([None, -128, 127], pa.int8()),
    "flag": pa.array([True, None, False]),
    "text": pa.array(['a,"b"\n', "", None]),
    "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "at": pa.array(MOMENTS, pa.timestamp("us", "Europe/Berlin")),
    "local": pa.array(MOMENTS, pa.timestamp("us")),
}
NUMBERS: dict[str, pa.Array] = {
    "real": pa.array([0.1, None, -1e30], pa.float32()),
    "double": pa.array([0.1, None, -5e-324], pa.float64()),
    "raw": pa.array([b"\0\xff", b"", None]),
}
NESTED: dict[str, pa.Array] = {
    "money": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(20, 2)),
    "ints": pa.array([[1, None], [], None], pa.list_(pa.int32())),
    "pair": pa.array(
        [{"a": 1, "b": None}, None, {"a": None, "b": "x"}],
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
    ),
    "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
}


def written(sink: Any, batch: pa.RecordBatch, schema: Schema = ()) -> tuple[list[Any], Any]:
    """Write the rows in two epochs and commit them; return all committables, and the tally's sums
    of the first epoch."""
    committables, first = [], None
    committer = sink.create_committer(replace(DRIVER, schema=schema))
    committer.preflight()
    for epoch in range(2):
        writer = sink.create_writer(WriterContext("job", "out", 1, epoch, 0, 0, epoch - 1))
        tally = Tally(writer)
        for part in (batch, batch.slice(1, 1)) if epoch else (batch.slice(1), batch.slice(0, 1)):
            writer.write(part)
            tally.add(part)
        found = writer.prepare_commit()
        assert set(committer.commit(found)) == {CommitOutcome.COMMITTED}
        committables += found
        first = first or tally.close()
    committer.close()
    return committables, first


def read(sink: Any, batch: pa.RecordBatch, committables: list[Any], **how: Any) -> list[FoundRows]:
    return list(sink.read_back(ReadBack(DRIVER, batch.schema, committables, **how)))


CSV_TEXTS = pa.array(['\\N "N" ,\\', "N", None])
FORMATS = [
    ("parquet", {}, {**SCALARS, **NUMBERS, **NESTED}),
    ("csv", {}, SCALARS),
    ("csv", {"header": False, "delimiter": ";", "null_value": "NULL"}, SCALARS),
    ("csv", {"compression": "gzip"}, SCALARS),
    ("csv", {}, SCALARS | {"more": pa.array(["long" * 1_000_000, "", None])}),
    ("csv", {"escape": "\\", "null_value": "\\N"}, SCALARS | {"more": CSV_TEXTS}),
    ("json", {}, {"_seamark_json": pa.array(['{"a":1}', '{"a":"ß"}', "{}"])}),
    ("json", {"compression": "gzip"}, {"_seamark_json": pa.array(['{"a":1}', "{}", "{}"])}),
]


@pytest.mark.parametrize("by", [(), ("kind",)], ids=["plain", "partitioned"])
@pytest.mark.parametrize(("form", "how", "columns"), FORMATS)
def test_files(
    tmp_path: Path, form: str, how: dict[str, Any], columns: dict[str, Any], by: tuple[str, ...]
) -> None:
    sink = FileSink(tmp_path / "out", format=form, partition_by=by, **how)
    kinds = {"kind": pa.array(["a/b %", "", None])} if by else {}
    batch = pa.record_batch({**columns, **kinds})
    committables, expected = written(sink, batch)
    (tmp_path / "out" / "_ignored").mkdir()
    found = read(sink, batch, committables)
    files = len(committables) // 2
    first = sum((sums(row_hashes(f.rows)) for f in found if f.writers[0] < files), NO_ROWS)
    assert expected == {"": first}
    assert sum(len(f.rows) for f in found) == 7
    stranger = tmp_path / "out" / f"stranger.{form}"
    at = tmp_path / "out" / committables[0].handle
    stranger.write_bytes(at.read_bytes() if "gzip" not in how.values() else b"")
    if "gzip" not in how.values() and not by:
        strange = [rows for rows in read(sink, batch, committables) if rows.writers == ()]
        assert sum(len(f.rows) for f in strange) == 3
        assert strange[0].place == f"file {stranger.name}"


def test_a_torn_file_is_named_and_its_rows_are_not_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FileSink(tmp_path / "out")
    batch = pa.record_batch(SCALARS)
    committables, _ = written(sink, batch)
    torn = tmp_path / "out" / committables[0].handle
    torn.write_bytes(torn.read_bytes()[:-20])
    assert {rows.writers for rows in read(sink, batch, committables)} == {(1,)}
    assert torn.name in caplog.text


DELTA = (
    Column("id", "bigint"), Column("small", "tinyint"), Column("flag", "boolean"),
    Column("text", "string"), Column("day", "date"), Column("at", "timestamp"),
    Column("local", "timestamp_ntz"), Column("real", "float"), Column("double", "double"),
    Column("raw", "binary"), Column("money", "decimal(20,2)"), Column("ints", "array<int>"),
    Column("pair", "struct<a:int,b:string>"), Column("map", "map<string,bigint>"),
)  # fmt: skip


@pytest.mark.parametrize("by", [(), ("text", "small", "day")], ids=["plain", "partitioned"])
def test_delta(tmp_path: Path, by: tuple[str, ...]) -> None:
    sink = DeltaSink(str(tmp_path / "table"), partition_by=by, create_table=True)

    def compact() -> None:
        import deltalake

        assert deltalake.DeltaTable(sink.path).optimize.compact()["numFilesRemoved"]

    table_is_read_back(sink, compact)


@pytest.mark.parametrize("by", [(), ("text", "bucket(2, id)", "day(at)")], ids=["plain", "by"])
def test_iceberg(tmp_path: Path, by: tuple[str, ...]) -> None:
    catalog = catalog_at(tmp_path)
    sink = IcebergSink("shop.t", catalog, partition_by=by, create_table=True)
    table_is_read_back(sink, lambda: compact(sink))


def table_is_read_back(sink: Any, compact: Callable[[], None]) -> None:
    batch = pa.record_batch({**SCALARS, **NUMBERS, **NESTED})
    committables, expected = written(sink, batch, DELTA)
    found = read(sink, batch, committables)
    first = sum((sums(row_hashes(f.rows)) for f in found if f.writers == (0,)), NO_ROWS)
    assert expected == {"": first}
    assert sum(len(f.rows) for f in found) == 7
    compact()
    found = read(sink, batch, committables)
    assert {rows.writers for rows in found} == {None}, "nobody knows any more"
    assert sum(len(f.rows) for f in found) == 7


def test_sqlite(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "rows.db", "rows")
    columns = {**SCALARS, **NUMBERS, "nothing": pa.array([None, None, None], pa.string())}
    batch = pa.record_batch({**columns, "epoch": pa.array([0, 0, 1], pa.int64())})
    committables, expected = written(sink, batch)
    with database.connect(sink.path) as cursor:
        cursor.execute("DELETE FROM rows WHERE rowid > 3")
    (found,) = read(sink, batch, committables)
    assert found.writers is None
    assert {"": sums(row_hashes(found.rows))} == expected
    assert np.array_equal(found.positions, [1, 2, 3])
    by_epoch = read(sink, batch, committables, epoch_column="epoch")
    assert {(rows.epoch, len(rows.rows)) for rows in by_epoch} == {(0, 2), (1, 1)}


@pytest.mark.parametrize(("size", "together"), [(10, 252), (300_000, 111), (10_000_000, 8)])
def test_rows_of_a_table_are_read_by_bytes(size: int, together: int) -> None:
    """As Arrow holds 2 GiB of a column, and a machine not much more."""
    numbers = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        cursor = connection.execute(f"{numbers} SELECT i, zeroblob({size}) FROM n")
        rows = [[row[0] for row in piece] for piece in some_at_a_time(cursor.fetchmany)]
    assert [i for piece in rows for i in piece] == [*range(1, 501)]
    assert max(map(len, rows)) == together
