"""`sm.debezium` on envelopes as Debezium's documentation shows them: forms, types, unreadable ones.

Whole jobs over such envelopes, killed on the way, are in `tests/integration/jobs/test_debezium.py`.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.model.errors import ConfigurationError

SCHEMA = (
    "id BIGINT, name STRING, price DECIMAL(9,2), photo BINARY, born DATE, at TIMESTAMP, ok BOOLEAN"
)
ROW = {
    "id": 1, "name": "a", "price": "1.50", "photo": base64.b64encode(b"\0x").decode(),
    "born": 19000, "at": "2022-01-08T01:02:03.000004Z", "ok": True, "more": {"not": "read"},
}  # fmt: skip
READ = (1, "a", Decimal("1.50"), b"\0x", date(2022, 1, 8), True)


def rows(spark: SparkSession, *records: Any, schema: str = SCHEMA, **how: Any) -> list[Any]:
    """Read records: a value (JSON unless bytes), or a pair of key and value."""
    made = []
    for record in records:
        key, value = record if isinstance(record, tuple) else (None, record)
        encoded = [
            one if one is None or isinstance(one, bytes) else json.dumps(one).encode()
            for one in (key, value)
        ]
        made.append(tuple(encoded))
    df = spark.createDataFrame(made, "key BINARY, value BINARY")
    return sm.debezium(df, schema, "id", **how).collect()


def envelope(op: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    source = {"db": "shop", "table": "orders"}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1, **more}


@pytest.mark.parametrize("wrapped", [False, True])
def test_each_op(spark: SparkSession, wrapped: bool) -> None:
    changes = [
        envelope("r", None, ROW), envelope("c", None, ROW), envelope("u", ROW, ROW | {"id": 2}),
        envelope("d", ROW, None), None,
    ]  # fmt: skip
    if wrapped:
        changes = [
            c and {"schema": {"type": "struct", "fields": []}, "payload": c} for c in changes
        ]
    found = rows(spark, *changes)
    assert [row.op for row in found] == ["insert", "insert", "update", "delete"]
    assert [row.id for row in found] == [1, 1, 2, 1]
    for row in found[:2]:
        at = row.at.astimezone(UTC)
        assert (row.id, row.name, row.price, bytes(row.photo), row.born, row.ok) == READ
        assert at == datetime(2022, 1, 8, 1, 2, 3, 4, UTC)
    assert list(found[3])[1:-1] == [None] * 6, "a delete has its keys alone"


def test_a_key_that_is_in_the_records_key_alone(spark: SparkSession) -> None:
    plain, wrapped = {"id": 7}, {"schema": {}, "payload": {"id": 8}}
    found = rows(spark, (plain, envelope("d")), (wrapped, envelope("d")))
    assert [(row.id, row.op) for row in found] == [(7, "delete"), (8, "delete")]


@pytest.mark.parametrize(
    "value",
    [
        b"no JSON",
        b"{",
        {"id": 1},
        envelope("c", None, ROW | {"id": "x"}),
        envelope("c", None, ROW | {"id": 2**70}),
        envelope("c", None, ROW | {"price": "AJY="}),  # decimal.handling.mode=precise
        envelope("c", None, ROW | {"born": "soon"}),
        envelope("c", None, ROW | {"born": 2**40}),
        envelope("c", None, ROW | {"at": 1641603723000004}),  # of a unit that is not given
        envelope("c", None, ROW | {"at": "soon"}),
        envelope("c", None, ROW | {"name": "__debezium_unavailable_value"}),
        envelope("c", None, ROW | {"ok": 3}),
    ],
)
def test_what_the_schema_cannot_hold_is_no_change(spark: SparkSession, value: Any) -> None:
    good = envelope("c", None, ROW)
    assert [row.op for row in rows(spark, good, value, good)] == ["insert", "unreadable", "insert"]


def test_other_ops_are_passed_on(spark: SparkSession) -> None:
    assert [row.op for row in rows(spark, envelope("t"), envelope("m"))] == ["t", "m"]


@pytest.mark.parametrize(("unit", "scale"), [("seconds", 1), ("millis", 1000), ("micros", 10**6)])
def test_numbers_as_timestamps(spark: SparkSession, unit: Any, scale: int) -> None:
    values = {"id": 1, "at": 1641603723 * scale, "plain": -5 * scale}
    (row,) = rows(
        spark, envelope("c", None, values), schema="id BIGINT, at TIMESTAMP, plain TIMESTAMP_NTZ",
        numeric_timestamps=unit,
    )  # fmt: skip
    assert row.at.astimezone(UTC) == datetime(2022, 1, 8, 1, 2, 3, tzinfo=UTC)
    assert row.plain == datetime(1969, 12, 31, 23, 59, 55)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"schema": "id BIGNUM"}, "schema is 'id BIGNUM', which is no list"),
        ({"schema": "id INT, ID INT"}, "each once"),
        ({"keys": []}, r"keys is \[\]; give the table's key columns"),
        ({"keys": "number"}, r"keys is \['number'\]"),
        ({"op": "NAME"}, "op is 'NAME'; give a name that no column"),
        ({"numeric_timestamps": "hours"}, "numeric_timestamps is 'hours'"),
    ],
)
def test_wrong_settings(spark: SparkSession, how: dict[str, Any], match: str) -> None:
    df = spark.createDataFrame([(None, b"{}")], "key BINARY, value BINARY")
    with pytest.raises(ConfigurationError, match=match):
        sm.debezium(df, **{"schema": SCHEMA, "keys": ["id"], **how})


def test_another_dataframe(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"no column .value. .it has id"):
        sm.debezium(spark.range(1).toDF("id"), SCHEMA, "id")
