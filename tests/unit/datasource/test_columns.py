"""A sink's columns made in Arrow: as Spark's own SQL makes them, or the `selectExpr` to write."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

import pyarrow as pa
import pytest

import seamark as sm
from seamark.datasource.columns import Projection
from seamark.model.schema import Column

ROWS = pa.record_batch(
    {
        "key": pa.array(["a", None]),
        "value": pa.array(["x", "y"]),
        "day": pa.array([datetime.date(2026, 1, 2), None]),
        "price": pa.array([Decimal("0.0000001"), Decimal("12.5000000")], pa.decimal128(12, 7)),
        "odd `name": pa.array([1, 2]),
    }
)
SCHEMA = (
    Column("key", "string"), Column("value", "string"), Column("day", "date"),
    Column("price", "decimal(12,7)"), Column("odd `name", "bigint"),
)  # fmt: skip


def made(sink: sm.TwoPhaseCommitSink, names: str) -> dict[str, list[object]]:
    columns = [column for column in SCHEMA if column.name in names.split("|")]
    rows = ROWS.select([column.name for column in columns])
    return Projection.of(sink, tuple(columns))(rows).to_pydict()


def kafka(**more: object) -> sm.KafkaSink:
    return sm.KafkaSink("h:1", topic="t", transactional_id_prefix="p", **more)  # type: ignore[arg-type]


def test_texts_become_bytes_and_a_missing_key_null() -> None:
    assert made(kafka(), "key|value") == {"key": [b"a", None], "value": [b"x", b"y"]}
    assert made(kafka(), "value") == {"key": [None, None], "value": [b"x", b"y"]}


def test_decimals_are_written_in_plain_digits() -> None:
    sink = sm.SQLiteSink("/x.db", table="t")
    assert made(sink, "price|odd `name") == {
        "price": ["0.0000001", "12.5000000"],
        "odd `name": [1, 2],
    }


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize("name", ["", "`", "``", " ", "a.b", 'x"y'])
def test_a_column_of_any_name(name: str, selected: bool) -> None:
    """As of a file of CSV whose header lacks one."""
    sink = sm.SQLiteSink("/x.db", table="t")
    schema = (Column("id", "bigint"), Column(name, "string"))
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"])], ["id", name])
    assert Projection.of(sink, schema, selected=selected)(rows).equals(rows)


def test_partition_columns_are_text_and_last() -> None:
    sink = sm.FileSink("/out", partition_by=["day"])
    assert made(sink, "day|value") == {"value": ["x", "y"], "day": ["2026-01-02", None]}


def test_an_interval_is_no_int() -> None:
    sink = sm.KafkaSink("b:1", "t", key="a", transactional_id_prefix="p")
    with pytest.raises(sm.ConfigurationError, match=r"df\.selectExpr"):
        Projection.of(sink, (Column("a", "interval day to second"), Column("value", "binary")))


@pytest.mark.parametrize("type_", ["struct<a:int>", "array<string>"])
def test_what_needs_sql_says_what_to_select(type_: str) -> None:
    with pytest.raises(sm.ConfigurationError) as error:
        Projection.of(sm.SQLiteSink("/x.db", table="t"), (Column("a", type_),))
    assert "df.selectExpr(" in str(error.value)
    assert "to_json(`a`" in str(error.value)


def test_a_column_is_not_taken_for_one_of_its_name_in_another_case() -> None:
    twins = pa.record_batch({"value": pa.array(["right"]), "VALUE": pa.array(["wrong"])})
    for rows in (twins, twins.select(["VALUE", "value"])):
        columns = tuple(Column(name, "string") for name in rows.schema.names)
        assert Projection.of(kafka(), columns)(rows).to_pydict()["value"] == [b"right"]
    with pytest.raises(sm.SeamarkError, match="two columns are `value`"):
        Projection.of(kafka(), (Column("value", "string"), Column("value", "string")))


SINKS = (
    sm.FileSink("/x", "json"),
    sm.FileSink("/x", "json", partition_by=["day"]),
    sm.FileSink("/x", "csv", partition_by=["day"]),
    sm.DeltaSink("/x"),
    sm.SQLiteSink("/x", table="t", keys=["id"]),
    sm.WriteAheadSink.http("http://x/y", idempotent=True),
    kafka(value_format="json"),
    kafka(value_format="json", key="id", value=["who", "day"]),
    sm.RedisSink("redis://x", key="id"),
    sm.PostgresSink("postgresql://a@b/c", "t", mode="staged"),
)


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.describe())
def test_the_columns_that_an_error_shows_are_taken(sink: sm.TwoPhaseCommitSink) -> None:
    types = {"id": "bigint", "who": "struct<a:int>", "day": "date", "o`d": "array<int>"}
    schema = tuple(Column(*each) for each in types.items())
    if isinstance(sink, sm.FileSink) and sink.format != "json":
        schema = schema[:3]
    expressions = sink.select_expressions(schema)
    names = [re.split(" AS ", each)[-1].removeprefix("`").removesuffix("`") for each in expressions]
    shown = tuple(Column(name.replace("``", "`"), "string") for name in names)
    Projection.of(sink, shown, selected=True)


@pytest.mark.parametrize(
    "sink", [SINKS[0], SINKS[5], kafka(value_format="json")], ids=lambda sink: sink.describe()
)
def test_other_columns_are_not_taken_for_those_of_the_sink(sink: sm.TwoPhaseCommitSink) -> None:
    """A JSON file of the first one's values, and none of the second's."""
    with pytest.raises(sm.ConfigurationError, match="DataFrame has a, b, where the sink takes"):
        Projection.of(sink, (Column("a", "bigint"), Column("b", "bigint")), selected=True)
