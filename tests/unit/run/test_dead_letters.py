"""How: refused rows of every type sent by Spark, and of values without a counterpart in Python;
sinks with and without a way to take them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seamark as sm
from seamark.contracts.dead_letters import RefusedRow
from seamark.run.dead_letters import check_takes_dead_letters, dead_letters, for_sink


def row_of(column: pa.Array) -> Any:
    """Return a dead letter's text of a column's only value."""
    batch = pa.record_batch([column], names=["c"])
    letters = dead_letters("orders", 3, batch, [RefusedRow(0, "no")])
    return json.loads(letters.column("row_json")[0].as_py())["c"]


def test_a_letter_tells_sink_epoch_reason_and_row() -> None:
    batch = pa.record_batch({"id": [1, 2, 3], "text": ["a", None, 'c "ü"\0']})
    refused = [RefusedRow(1, "null\n  value"), RefusedRow(2, "NUL")]
    letters = dead_letters("orders", 7, batch, refused)
    assert letters.to_pylist() == [
        {
            "sink": "orders", "epoch": 7, "reason": "null value",
            "row_json": '{"id": 2, "text": null}',
        },
        {
            "sink": "orders", "epoch": 7, "reason": "NUL",
            "row_json": '{"id": 3, "text": "c \\"ü\\"\\u0000"}',
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array([2**63 - 1]), 2**63 - 1),
        (pa.array([Decimal("1E-7")], pa.decimal128(38, 18)), "0.000000100000000000"),
        (pa.array([float("nan")]), "nan"),
        (pa.array([b"plain"]), "plain"),
        (pa.array([b"\xff\x00"]), {"base64": "/wA="}),
        (pa.array([b"\xff"]).view(pa.string()), {"base64": "/w=="}),  # Spark checks no string
        (pa.array([0], pa.timestamp("us", "UTC")), "1970-01-01 00:00:00.000000Z"),
        (pa.array([2**62], pa.timestamp("us")), "+148108-07-06 14:00:27.387904"),
        (pa.array([10**7], pa.date32()), "+29349-01-26"),
        (pa.array([[1, None]]), [1, None]),
        (pa.array([[(1, b"x")]], pa.map_(pa.int32(), pa.binary())), {"1": "x"}),
        (
            pa.array([{"at": 0, "in": [{"b": b"\xff"}]}],
                     pa.struct([("at", pa.date32()),
                                ("in", pa.list_(pa.struct([("b", pa.binary())])))])),
            {"at": "1970-01-01", "in": [{"b": {"base64": "/w=="}}]},
        ),
        (pa.array([None]), None),
    ],
)  # fmt: skip
def test_every_value_has_a_text(column: pa.Array, shown: object) -> None:
    assert row_of(column) == shown


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_files_with_columns_take_letters_as_they_are(form: str, tmp_path: Path) -> None:
    sink = sm.FileSink(tmp_path, format=form)
    check_takes_dead_letters(sink, "orders")
    letters = dead_letters("orders", 0, pa.record_batch({"id": [1]}), [RefusedRow(0, "no")])
    assert for_sink(sink, letters).equals(letters)


def test_sinks_of_one_value_take_letters_as_json(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": [1], "price": pa.array([1.0])})
    letters = dead_letters("orders", 4, batch, [RefusedRow(0, "no")])
    kafka = sm.KafkaSink("localhost:1", topic="bad", transactional_id_prefix="p")
    files = sm.FileSink(tmp_path, format="json")
    http = sm.WriteAheadSink.http("http://localhost:1/bad")
    for sink, column in ((kafka, "value"), (files, "_seamark_json"), (http, "value")):
        check_takes_dead_letters(sink, "orders")
        value = for_sink(sink, letters).to_pylist()[0][column]
        assert json.loads(value) == {
            "sink": "orders", "epoch": 4, "reason": "no", "row": {"id": 1, "price": 1.0},
        }  # fmt: skip
    assert for_sink(kafka, letters).to_pylist()[0]["key"] == b"orders"


def test_databases_take_letters_as_they_are(tmp_path: Path) -> None:
    for sink in (
        sm.SQLiteSink(tmp_path / "a.db", "bad"),
        sm.PostgresSink("postgresql://localhost/a", "bad"),
        sm.MySQLSink("mysql://a@localhost/a", "bad"),
    ):
        check_takes_dead_letters(sink, "orders")


def test_a_sink_that_needs_spark_for_its_columns_is_refused(tmp_path: Path) -> None:
    class Upper(sm.SQLiteSink):
        def select_expressions(self, schema: Any) -> list[str]:
            return [f"upper({column.name})" for column in schema]

    with pytest.raises(sm.ConfigurationError, match=r"'orders'.*upper\(sink\).*from_dead_letters"):
        check_takes_dead_letters(Upper(tmp_path / "a.db", "bad"), "orders")


def test_what_a_sink_says_against_letters_is_passed_on() -> None:
    with pytest.raises(sm.ConfigurationError, match=r"dead letters of sink 'orders'.*no topic="):
        check_takes_dead_letters(sm.KafkaSink("a:1", transactional_id_prefix="p"), "orders")
    avro = sm.KafkaSink(
        "a:1", "bad", "at-least-once", value_format="avro", schema_registry={"url": "http://a"}
    )
    with pytest.raises(sm.ConfigurationError, match=r"dead letters of sink 'orders'.*'avro'"):
        check_takes_dead_letters(avro, "orders")
    keyed = sm.PostgresSink("postgresql://localhost/a", "bad", "upsert", keys=["id"])
    with pytest.raises(sm.ConfigurationError, match=r"dead letters of sink 'orders'.*'id'"):
        check_takes_dead_letters(keyed, "orders")
