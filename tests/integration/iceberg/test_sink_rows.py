"""The files and tables of IcebergSink: every type there and back, partitions, the statistics for
skipping files, and each refusal at start. Real tables on a local disk, in an SQLite catalog."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StringType, UUIDType

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import PreflightError
from seamark.model.schema import Column
from seamark.sinks.iceberg import IcebergSink
from tests.every_type import TYPES, UTC
from tests.integration.iceberg.sink_kit import COLUMNS, attempt, catalog_at, driver, opened

SCHEMA = tuple(Column(name, kind) for name, (kind, _, _) in TYPES.items())
ROWS = pa.record_batch({name: pa.array(values, kind) for name, (_, kind, values) in TYPES.items()})


def sent(sink: IcebergSink, rows: pa.RecordBatch, schema: tuple[Column, ...] = SCHEMA) -> Any:
    """Write and commit; return the committable."""
    committer = sink.create_committer(driver(schema=schema))
    committer.preflight()
    writer = sink.create_writer(attempt())
    writer.write(rows)
    (committable,) = writer.prepare_commit()
    assert committer.commit([committable]) == [CommitOutcome.COMMITTED]
    return committable


def test_every_type_is_read_as_it_was_written(tmp_path: Path) -> None:
    sink = IcebergSink("shop.types", catalog_at(tmp_path), create_table=True)
    sent(sink, ROWS)
    found = opened(sink).scan().to_arrow()
    assert found["at"].type == pa.timestamp("us", "UTC")
    assert found.to_pylist() == ROWS.to_pylist()


def test_statistics_let_readers_skip_files_and_no_rows(tmp_path: Path) -> None:
    sink = IcebergSink("shop.types", catalog_at(tmp_path), create_table=True)
    committable = sent(sink, ROWS)
    (facts,) = map(json.loads, committable.files)
    ids = {f.name: str(f.field_id) for f in opened(sink).schema().fields}
    bounded = [n for n, number in ids.items() if facts["columns"].get(number, [0] * 4)[2]]
    assert bounded == [
        "flag", "tiny", "small", "whole", "big", "money", "short", "day", "at", "local",
    ]  # fmt: skip
    table = opened(sink)
    for filter_ in (
        "tiny == -128", "whole == 2147483647", "day == '9999-12-31'", "short == 'x'",
        "text == ''", "double > 5", "at is null", "flag == true",
        "money < 0", "at == '2026-01-01T12:00:00.123456+00:00'",
    ):  # fmt: skip
        assert table.scan(row_filter=filter_).to_arrow().num_rows == 1, filter_
    for filter_ in (
        "tiny == 1000",
        "day == '0001-01-02' and day > '9999-12-31'",
        "at > '2026-01-02T00:00:00+00:00'",
    ):
        assert list(table.scan(row_filter=filter_).plan_files()) == [], filter_


def test_partitions_narrow_what_is_read(tmp_path: Path) -> None:
    columns = (Column("id", "bigint"), Column("part", "string"), Column("ts", "timestamp"))
    by = ["bucket(4, id)", "day(ts)", "part"]
    sink = IcebergSink("shop.by", catalog_at(tmp_path), partition_by=by, create_table=True)
    start = int(dt.datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    rows = pa.record_batch(
        {
            "id": pa.array(range(100), pa.int64()),
            "part": pa.array([(None, "odd / 1%", "")[n % 3] for n in range(100)]),
            "ts": pa.array([start + (n % 2) * 86_400_000_000 for n in range(100)],
                           pa.timestamp("us", "Asia/Tokyo")),
        }
    )  # fmt: skip
    sent(sink, rows, columns)
    table = opened(sink)
    assert [str(field.transform) for field in table.spec().fields] == [
        "bucket[4]",
        "day",
        "identity",
    ]
    assert len(list(table.scan().plan_files())) == 24
    assert len(list(table.scan(row_filter="id == 7 and part == 'odd / 1%'").plan_files())) == 1
    assert table.scan(row_filter="id == 7").to_arrow()["id"].to_pylist() == [7]
    assert table.scan(row_filter="part is null").to_arrow().num_rows == 34
    assert table.scan(row_filter="part == ''").to_arrow().num_rows == 33
    later = "ts >= '2026-01-02T00:00:00+00:00'"
    assert table.scan(row_filter=later).to_arrow().num_rows == 50
    assert len(list(table.scan(row_filter=later).plan_files())) == 12


def test_narrower_columns_go_into_wider_ones(tmp_path: Path) -> None:
    catalog = catalog_at(tmp_path)
    wide = (Column("n", "bigint"), Column("x", "double"))
    made = IcebergSink("shop.wide", catalog, create_table=True)
    made.create_committer(driver(schema=wide)).preflight()
    rows = pa.record_batch({"n": pa.array([1], pa.int32()), "x": pa.array([0.5], pa.float32())})
    sent(IcebergSink("shop.wide", catalog), rows, (Column("n", "int"), Column("x", "float")))
    assert opened(made).scan().to_arrow().to_pylist() == [{"n": 1, "x": 0.5}]


def field(number: int, name: str, kind: Any, **how: Any) -> NestedField:
    return NestedField(number, name, kind, **how)


ID, PART = field(1, "id", LongType()), field(2, "part", StringType())
REFUSED: dict[str, tuple[list[NestedField], dict[str, str], str]] = {
    "version": ([ID, PART], {"format-version": "1"}, "is of format version 1"),
    "missing": ([ID], {}, "the table has no column 'part'"),
    "type": (
        [field(1, "id", StringType()), PART],
        {},
        "'id' is bigint in the DataFrame and string",
    ),
    "uuid": ([ID, field(2, "part", UUIDType())], {}, "'part' is string in the DataFrame and uuid"),
    "required": ([field(1, "id", LongType(), required=True), PART], {}, "is or has NOT NULL"),
    "other": ([ID, PART, field(3, "n", LongType(), required=True)], {}, "'n' of the table is NOT"),
    "list": (
        [ID, PART, field(3, "text", ListType(4, StringType(), False))],
        {},
        "'text' is string",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_table_that_does_not_fit_is_refused_at_start(tmp_path: Path, what: str) -> None:
    fields, properties, words = REFUSED[what]
    settings = catalog_at(tmp_path)
    catalog = load_catalog("default", **settings)
    catalog.create_namespace("shop")
    if not any(one.name == "text" for one in fields) and what != "missing":
        fields = [*fields, field(9, "text", StringType())]
    catalog.create_table("shop.t", Schema(*fields), properties=properties)
    with pytest.raises(PreflightError, match=words) as refusal:
        IcebergSink("shop.t", settings).create_committer(driver(schema=COLUMNS)).preflight()
    assert "\n" not in str(refusal.value)


def test_partitions_and_places_that_it_cannot_write_are_refused(tmp_path: Path) -> None:
    settings = catalog_at(tmp_path)
    catalog = load_catalog("default", **settings)
    catalog.create_namespace("shop")
    schema = Schema(ID, PART, field(3, "text", StringType()), field(4, "x", DoubleType()))
    spec = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "x"))
    catalog.create_table("shop.t", schema, partition_spec=spec)
    with pytest.raises(PreflightError, match="identity of 'x', which is double; this sink cannot"):
        IcebergSink("shop.t", settings).create_committer(driver()).preflight()
    elsewhere = {**settings, "warehouse": "gs://bucket/tables"}
    with pytest.raises(PreflightError, match="no client for gs:"):
        IcebergSink("shop.u", elsewhere, create_table=True).create_committer(driver()).preflight()


def test_a_table_within_another_is_refused(tmp_path: Path) -> None:
    settings = catalog_at(tmp_path)
    catalog = load_catalog("default", **settings)
    catalog.create_namespace("shop")
    (outer := tmp_path / "lake" / "_delta_log").mkdir(parents=True)
    columns = Schema(ID, PART, field(3, "text", StringType()))
    catalog.create_table("shop.t", columns, location=f"file://{outer.parent}/bronze/t")
    with pytest.raises(PreflightError, match=f"lies in the Delta table {outer.parent}, whose"):
        IcebergSink("shop.t", settings).create_committer(driver()).preflight()
    assert not list(outer.parent.rglob("_seamark"))
    catalog.create_table("shop.u", columns, location=f"file://{tmp_path}/tables/u")
    catalog.create_table("shop.v", columns, location=f"file://{tmp_path}/tables/u/v")
    with pytest.raises(PreflightError, match=f"lies in the Iceberg table {tmp_path}/tables/u, who"):
        IcebergSink("shop.v", settings).create_committer(driver()).preflight()


def test_a_missing_catalog_or_table_is_said(tmp_path: Path) -> None:
    settings = catalog_at(tmp_path)
    with pytest.raises(PreflightError, match="the catalog has no such table"):
        IcebergSink("shop.t", settings).create_committer(driver()).preflight()
    away = {"type": "rest", "uri": "http://127.0.0.1:9"}
    with pytest.raises(PreflightError, match=r"it cannot be used: .*Connection refused"):
        IcebergSink("shop.t", away).create_committer(driver()).preflight()
    with pytest.raises(PreflightError, match="it cannot be used: "):
        IcebergSink("shop.t", {"type": "nothing"}).create_committer(driver()).preflight()
