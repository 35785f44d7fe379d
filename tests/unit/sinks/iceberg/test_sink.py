"""IcebergSink's configuration, types and partitions, without a table."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column
from seamark.sinks.iceberg import IcebergSink, partitions, types
from seamark.sinks.iceberg.statistics import statistics
from seamark.sinks.internal.data_files import WrittenFile


@pytest.mark.parametrize("table", ["orders", "", "a b.c", "a..b", ".a", "shop/orders", None, 5])
def test_a_table_has_a_namespace_and_a_name(table: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"give namespace and name, e\.g\. 'shop.orders'"):
        IcebergSink(table)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"partition_by": "day"}, "give a list of column names"),
        ({"partition_by": ["week(ts)"]}, "has 'week\\(ts\\)'; give a column, or one of bucket"),
        ({"partition_by": ["bucket(id)"]}, "give a column, or one of bucket"),
        ({"partition_by": ["bucket(0, id)"]}, "give a column, or one of bucket"),
        ({"partition_by": ["day(3, ts)"]}, "give a column, or one of bucket"),
        ({"catalog": {"uri": 5}}, "give a dict of texts"),
        ({"catalog": {"uri": "sqlite:///c.db"}}, "uri is 'sqlite:///c.db', a relative path; give"),
        ({"catalog": {"type": "sql", "warehouse": "w"}}, "warehouse is 'w', a relative path"),
        (
            {"catalog": {"uri": "postgresql://h/d", "warehouse": "file:w"}},
            "warehouse is 'file:w', a relative path",
        ),
        ({"catalog_name": ""}, "give the catalog's name"),
        ({"create_table": "yes"}, "create_table"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        IcebergSink("shop.orders", **settings)


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "rest", "uri": "http://catalog:8181", "warehouse": "shop"},
        {"type": "sql", "uri": "sqlite:////data/c.db", "warehouse": "s3://bucket/w"},
        {"uri": "sqlite:///:memory:", "warehouse": "file:///w"},
        {"uri": "postgresql+psycopg2://h/d", "warehouse": "/data/w"},
        {},
    ],
)
def test_a_catalog_by_its_own_names(catalog: dict[str, str]) -> None:
    assert IcebergSink("shop.orders", catalog).catalog == catalog


def test_no_secret_of_the_catalog_is_shown() -> None:
    catalog = {"uri": "postgresql://me:s3cr3t@h/d", "token": "s3cr3t"}
    sink = IcebergSink("shop.orders", catalog, storage_options={"fs.s3a.secret.key": "s3cr3t"})
    assert "s3cr3t" not in f"{sink!r} {sink.describe()} {sink.places}"


def test_columns_that_no_table_takes_are_refused() -> None:
    day, number = Column("day", "date"), Column("n", "double")
    for partition_by, schema, words in (
        (["other"], (day, number), "'other' is not in the DataFrame"),
        ([], (day, Column("i", "interval day")), "type interval day, which it cannot store"),
        ([], (day, Column("nothing", "void")), "type void, which it cannot store"),
        ([], (day, Column("DAY", "int")), "differ in case alone"),
        ([], (day, Column("_deleted", "boolean")), "'_deleted' has a name that the target"),
        ([], (day, Column("_row_id", "bigint")), "'_row_id' has a name that the target"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            IcebergSink("a.b", partition_by=partition_by).select_expressions(schema)
    within = Column("row", "struct<_file:int>")  # Iceberg's own at the top alone; op is not written
    sink = IcebergSink("a.b", keys=["day"], op="_deleted")
    assert len(sink.select_expressions((day, within, Column("_deleted", "string")))) == 3
    for text in ("n", "day(n)", "truncate(3, day)"):
        fields = [partitions.parse(text, "")]
        with pytest.raises(ConfigurationError, match="is no partition; give another"):
            partitions.new_spec(fields, types.iceberg_schema((day, number)))


def test_numbers_that_are_truncated_beyond_their_type_have_no_partition() -> None:
    kinds = {
        "int": ([-(2**31), 5 - 2**31, None, 9 - 2**31], pa.int32()),
        "bigint": ([-(2**63), 5 - 2**63, None, 9 - 2**63], pa.int64()),
        "decimal(5,2)": ([Decimal(text) for text in ("-999.99", "-999.9")], pa.decimal128(5, 2)),
    }
    for kind, (values, arrow) in kinds.items():
        schema = types.iceberg_schema((Column("n", kind),))
        spec = partitions.new_spec([partitions.parse("truncate(10, n)", "")], schema)
        rows = pa.record_batch({"n": pa.array(values, arrow)})
        bad = partitions.unfit(spec, schema, rows).tolist()
        assert bad == ([True, True, False, False] if len(values) == 4 else [True, False])
        good = rows.filter(pa.array([not each for each in bad]))
        for (value,), part in partitions.splitter(spec, schema)(good):
            assert value is None or all(value <= n for n in part["n"].to_pylist())
    schema = types.iceberg_schema((Column("n", "bigint"),))
    spec = partitions.new_spec([partitions.parse("truncate(10, n)", "")], schema)
    narrow = pa.record_batch({"n": pa.array([-(2**31)], pa.int32())})
    assert not partitions.unfit(spec, schema, narrow).any()


def test_a_bound_is_left_out_where_no_text_is_just_above() -> None:
    texts = ["a" * 15 + "\ud7ff" + "b"]
    written, found = pa.BufferOutputStream(), list[Any]()
    pq.write_table(pa.table({"text": texts}), written, metadata_collector=found)
    schema = types.iceberg_schema((Column("text", "string"),))
    _, _, low, high = statistics(WrittenFile("", (), 0, found[0], floats={}), schema)["1"]
    assert (base64.b64decode(low or "").decode(), high) == (texts[0][:16], None)


def test_two_partitions_of_one_name_are_refused() -> None:
    columns = types.iceberg_schema((Column("n", "int"), Column("n_truncate", "int")))
    for texts in (["bucket(4, n)", "bucket(8, n)"], ["truncate(10, n)"]):
        fields = [partitions.parse(text, "") for text in texts]
        with pytest.raises(ConfigurationError, match="there is another field or column of this"):
            partitions.new_spec(fields, columns)


TYPES = {
    "boolean": "boolean", "tinyint": "int", "smallint": "int", "int": "int", "bigint": "bigint",
    "float": "float", "double": "double", "decimal(38,10)": "decimal(38,10)", "string": "string",
    "varchar(10)": "string", "char(3)": "string", "binary": "binary", "date": "date",
    "timestamp": "timestamp", "timestamp_ntz": "timestamp_ntz", "array<tinyint>": "array<int>",
    "map<string,array<smallint>>": "map<string,array<int>>",
    "struct<a:tinyint,b:struct<c:decimal(5,2),d:map<int,double>>>": (
        "struct<a:int,b:struct<c:decimal(5,2),d:map<int,double>>>"
    ),
}  # fmt: skip


@pytest.mark.parametrize("spark", TYPES)
def test_each_type_is_read_back_as_its_own(spark: str) -> None:
    (field,) = types.iceberg_schema((Column("c", spark),)).fields
    assert types.spark_type(field.field_type) == types.normal(spark) == TYPES[spark]
    assert not types.has_required(field.field_type)


@pytest.mark.parametrize("spark", ["time(6)", "struct<a b:int>>", "struct<a<b:int>", "variant"])
def test_a_type_without_counterpart_is_refused(spark: str) -> None:
    with pytest.raises(ConfigurationError, match=r"column 'c' has type .* no counterpart"):
        types.iceberg_schema((Column("c", spark),))


def test_two_columns_of_one_path_are_refused() -> None:
    for kind, path in (("struct<b:int>", "a.b"), ("array<int>", "a.element")):
        with pytest.raises(ConfigurationError, match=f"fields for name {path}: .*; rename one"):
            types.iceberg_schema((Column("a", kind), Column(path, "int")))


def micros(text: str) -> int:
    return int(dt.datetime.fromisoformat(text + "+00:00").timestamp()) * 1_000_000


DAYS = pa.array([0, -1, 19_000, None, -719_162, 2_932_896], pa.date32())
TIMES = [0, -1, micros("2024-02-29T23:59:59"), None, micros("1969-01-01T00:00:00"), 3_599_999_999]
VALUES: dict[str, tuple[Any, pa.Array, tuple[str, ...]]] = {
    "int": (IntegerType(), pa.array([1, -7, None, 2**31 - 1], pa.int32()),
            ("identity", "bucket[16]", "truncate[10]")),
    "long": (LongType(), pa.array([1, -7, None, 2**62], pa.int64()),
             ("identity", "bucket[16]", "truncate[10]")),
    "string": (StringType(), pa.array(["", "ünï😀cödé", None, "abc"], pa.large_string()),
               ("identity", "bucket[7]", "truncate[3]")),
    "binary": (BinaryType(), pa.array([b"", b"\0\xff\x01", None], pa.large_binary()),
               ("identity", "bucket[7]", "truncate[2]")),
    "decimal": (DecimalType(9, 2), pa.array([Decimal("10.65"), Decimal("-0.05"), None],
                pa.decimal128(9, 2)), ("identity", "bucket[7]", "truncate[50]")),
    "date": (DateType(), DAYS, ("identity", "bucket[7]", "year", "month", "day", "void")),
    "timestamptz": (TimestamptzType(), pa.array(TIMES, pa.timestamp("us", "UTC")),
                    ("identity", "bucket[7]", "year", "month", "day", "hour")),
    "timestamp": (TimestampType(), pa.array(TIMES, pa.timestamp("us")),
                  ("identity", "bucket[7]", "year", "month", "day", "hour")),
}  # fmt: skip
"""By type: values, and the transforms that Iceberg has for it."""


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, (_, _, names) in VALUES.items() for name in names]
)
def test_partition_values_are_those_of_pyiceberg(kind: str, name: str) -> None:
    iceberg, values, _ = VALUES[kind]
    transform = parse_transform(name)
    assert partitions.can_split(transform, iceberg)
    schema = Schema(NestedField(1, "v", iceberg), NestedField(2, "n", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"))
    rows = pa.record_batch([values, pa.array(range(len(values)))], names=["v", "n"])
    whole = values
    if pa.types.is_temporal(values.type):
        whole = values.cast(pa.int32() if kind == "date" else pa.int64())
    one = transform.transform(iceberg)
    wanted = {n: None if v is None else one(v) for n, v in enumerate(whole.to_pylist())}
    found = {}
    for (value,), part in partitions.splitter(spec, schema)(rows):
        found.update(dict.fromkeys(part["n"].to_pylist(), value))
    assert found == wanted
    assert not partitions.unfit(spec, schema, rows).any()


def test_times_too_far_for_an_hour_and_broken_texts_are_refused() -> None:
    schema = Schema(NestedField(1, "t", TimestampType()), NestedField(2, "s", StringType()))
    spec = PartitionSpec(
        PartitionField(1, 1000, parse_transform("hour"), "h"),
        PartitionField(2, 1001, parse_transform("identity"), "s"),
    )
    times = pa.array([0, 2**63 - 1, -(2**63), None], pa.timestamp("us"))
    texts = pa.array([b"a", b"b", b"c", b"\xff"], pa.binary()).view(pa.string())
    rows = pa.record_batch([times, texts], names=["t", "s"])
    assert partitions.unfit(spec, schema, rows).tolist() == [False, True, True, True]
