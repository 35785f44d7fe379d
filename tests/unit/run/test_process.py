"""The function of `sm.process` on Arrow batches, as a sink's task calls it; no Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from seamark.model.errors import ConfigurationError
from seamark.run.process import Process, _direct, check_zone

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
COLUMNS = (("name", "key", True), ("id", "id", False), ("", "none", True))
BATCH = pa.RecordBatch.from_pydict({"id": [1, 2, 3]})


def results(function: Any, mode: str) -> list[dict[str, Any]]:
    made = Process("p", function, mode, SCHEMA, COLUMNS)
    return [row for batch in made.for_sink(BATCH) for row in batch.to_pylist()]


def named(batch: pa.RecordBatch) -> pa.RecordBatch:
    names = pa.array([f"n{n}" for n in batch.column("id").to_pylist()])
    return pa.RecordBatch.from_arrays([names, batch.column("id")], ["name", "id"])


def test_by_batch() -> None:
    expected = [{"key": f"n{n}".encode(), "id": n, "none": None} for n in (1, 2, 3)]
    assert results(named, "batch") == expected
    assert results(lambda batch: (named(batch.slice(n, 1)) for n in range(3)), "batch") == expected
    assert results(lambda batch: None, "batch") == []


def test_by_row() -> None:
    def function(row: dict[str, Any]) -> Any:
        one = {"id": row["id"], "name": "x"}
        return {1: None, 2: one, 3: [one, one]}[row["id"]]

    assert [row["id"] for row in results(function, "row")] == [2, 3, 3]


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_rows_have_datetimes_as_of_sparks_own_python_functions() -> None:
    """Seen in Spark: a UDF's datetime without a zone is this machine's local time; of one with a
    zone TIMESTAMP_NTZ takes the clock's time."""
    at, ntz = pa.timestamp("us", tz="Asia/Tokyo"), pa.timestamp("us")
    schema = pa.schema(
        [
            ("at", at),
            ("ntz", ntz),
            ("part", pa.struct([("n", pa.int64()), ("at", at)])),
            ("list", pa.list_(pa.struct([("ntz", ntz)]))),
            ("map", pa.map_(pa.string(), at)),
            ("null", at),
        ]
    )
    noon = datetime(2026, 1, 1, 12)
    paris = noon.replace(tzinfo=timezone(timedelta(hours=1)))

    def row(moment: datetime) -> dict[str, Any]:
        return {
            "at": moment,
            "ntz": moment,
            "part": {"n": 1, "at": moment},
            "list": [{"ntz": moment}, None],
            "map": [("k", moment)],
            "null": pd.NaT,
        }

    made = Process("p", lambda _: [row(noon), row(paris), row(pd.Timestamp(noon))], "row", schema)
    (found,) = made.results(BATCH.slice(0, 1))
    in_utc = [datetime(2026, 1, 1, hour, tzinfo=timezone.utc) for hour in (17, 11, 17)]
    fixed = {"null": None, "ntz": noon, "list": [{"ntz": noon}, None]}
    assert found.to_pylist() == [{**row(moment), **fixed} for moment in in_utc]


def test_a_wrong_result_is_named() -> None:
    with pytest.raises(TypeError, match=r"process 'p': the function gave int"):
        results(lambda batch: [7], "batch")
    with pytest.raises(TypeError, match=r"lacks the columns name of the schema; it has id"):
        results(lambda batch: batch, "batch")
    with pytest.raises(TypeError, match=r"lacks the columns name of the schema; it has id, nmae"):
        results(lambda row: {"id": 1, "nmae": "x"}, "row")


AT, NTZ = pa.timestamp("us", tz="America/New_York"), pa.timestamp("us")
NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array([1767268800]), AT),
        (pa.array([NOON]), AT),
        (pa.array([NOON], AT), NTZ),
        (pa.array([[{"at": NOON}]]), pa.list_(pa.struct([("at", AT)]))),
        (pa.array([NOON]), pa.date32()),
        (pa.array([NOON.date()]), pa.int32()),
        (pa.array([NOON.date()]), AT),
        (pa.array(["2026-01-01T12:00:00Z"]), AT),
    ],
    ids=range(8),
)
def test_no_moment_is_made_of_another_type(given: pa.Array, kind: pa.DataType) -> None:
    """Arrow reads a number as microseconds, and 12:00 without a zone as 12:00 in UTC; Spark's own
    mapInArrow refuses both."""
    schema = pa.schema([("at", kind)])
    made = Process("p", lambda _: pa.RecordBatch.from_arrays([given], ["at"]), "batch", schema)
    with pytest.raises(TypeError, match=r"process 'p': column at has .*, where the schema has"):
        list(made.results(BATCH))


PAIR = pa.struct([("a", pa.int64()), ("b", AT)])


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array([5]), pa.bool_()),
        (pa.array([[0.5]]), pa.list_(pa.bool_())),
        (pa.array([1.255]), pa.decimal128(10, 2)),
        (pa.array([{"a": 1}]), PAIR),
        (pa.array([[{"a": 1, "B": None}]]), pa.list_(PAIR)),
    ],
    ids=range(5),
)
def test_no_value_of_a_batch_is_altered(given: pa.Array, kind: pa.DataType) -> None:
    """Arrow makes true of 0.5, rounds 1.255, and gives null to a field that is not there."""
    made = Process("p", lambda _: pa.record_batch({"x": given}), "batch", pa.schema([("x", kind)]))
    with pytest.raises(TypeError, match=r"process 'p': column x has .*, where the schema has"):
        list(made.results(BATCH))


def test_fields_are_found_by_name() -> None:
    given = pa.array([{"b": None, "c": "x", "a": 1.0}])
    made = Process("p", lambda _: pa.record_batch({"x": given}), "batch", pa.schema([("x", PAIR)]))
    (batch,) = made.results(BATCH)
    assert batch.to_pylist() == [{"x": {"a": 1, "b": None}}]


@pytest.mark.parametrize("kind", [AT, NTZ, pa.list_(AT), pa.date32(), pa.int64()], ids=str)
def test_nulls_and_other_units_are_taken(kind: pa.DataType) -> None:
    schema = pa.schema([("at", kind)])
    moments = pa.array([NOON], NTZ).cast(pa.timestamp("ns", getattr(kind, "tz", None)))
    given = [pa.nulls(1)]
    given += [pa.nulls(1).cast(pa.list_(pa.null()))] if pa.types.is_list(kind) else []
    given += [moments] if pa.types.is_timestamp(kind) else []
    batches = [pa.RecordBatch.from_arrays([one], ["at"]) for one in given]
    made = Process("p", lambda _: batches, "batch", schema)
    assert [batch.schema for batch in made.results(BATCH)] == [schema] * len(given)


@pytest.mark.parametrize("value", [1767268800, 1.5, NOON.date(), "2026-01-01T12:00:00Z"], ids=str)
@pytest.mark.parametrize("kind", [AT, NTZ], ids=str)
def test_a_row_has_datetimes_for_timestamps(value: Any, kind: pa.DataType) -> None:
    made = Process("p", lambda _: {"at": value}, "row", pa.schema([("at", kind)]))
    with pytest.raises(TypeError, match=r"process 'p': at is .*; give a datetime"):
        list(made.results(BATCH))


DECIMAL = Decimal("5.5")


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (pa.int64(), 1.5, "x is 1.5; give a whole number"),
        (pa.int32(), DECIMAL, "x is Decimal.*; give a whole number"),
        (pa.int64(), np.float32(1.5), "x is .*1.5.*; give a whole number"),
        (pa.list_(pa.int64()), np.array([1.5, 2]), "x is .*1.5.*; give a whole number"),
        (pa.map_(pa.string(), pa.int8()), {"k": 1.5}, "x is 1.5; give a whole number"),
        (pa.struct([("n", pa.int64())]), Row(n=1.5), "x.n is 1.5; give a whole number"),
        (pa.date32(), 20260101, "x is 20260101; give a date"),
        (pa.list_(pa.date32()), [NOON.date(), True], "x is True; give a date"),
        (pa.list_(pa.string()), "abc", "x is 'abc'; give a list"),
        (pa.struct([("l", pa.list_(pa.int64()))]), {"l": b"ab"}, "x.l is b'ab'; give a list"),
    ],
    ids=range(10),
)
def test_no_value_of_a_row_is_altered(kind: pa.DataType, value: Any, says: str) -> None:
    """Arrow makes 1 of 1.5, a date of a number, and a list of letters of a text."""
    made = Process("p", lambda _: {"x": value}, "row", pa.schema([("x", kind)]))
    with pytest.raises(TypeError, match=f"process 'p': {says}"):
        list(made.results(BATCH))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int64(), 2.0, 2),
        (pa.int64(), Decimal(2**60), 2**60),
        (pa.int16(), np.int64(7), 7),
        (pa.list_(pa.int64()), np.array([1, 2]), [1, 2]),
        (pa.list_(pa.float32()), np.array([1.5, 2]), [1.5, 2]),
        (pa.list_(pa.string()), ("a", None), ["a", None]),
        (pa.date32(), NOON, NOON.date()),
        (pa.date32(), pd.NaT, None),
        (pa.map_(pa.int64(), pa.date32()), {1: None}, [(1, None)]),
        (pa.struct([("n", pa.int64()), ("t", pa.string())]), Row(n=1, t="x"), {"n": 1, "t": "x"}),
        (pa.struct([("n", pa.int64()), ("t", pa.string())]), {"n": 1}, {"n": 1, "t": None}),
        (pa.struct([("n", pa.int64())]), None, None),
    ],
    ids=range(12),
)
def test_values_that_a_column_can_hold(kind: pa.DataType, value: Any, expected: Any) -> None:
    made = Process("p", lambda _: {"x": value}, "row", pa.schema([("x", kind)]))
    (batch,) = made.results(BATCH.slice(0, 1))
    assert batch.to_pylist() == [{"x": expected}]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("`id`", ("id", "id", False)),
        ("`a``b`", ("a`b", "a`b", False)),
        ("`id` AS topic", ("id", "topic", False)),
        ("CAST(`id` AS BINARY) AS key", ("id", "key", True)),
        ("CAST(`id` AS BINARY)", ("id", "id", True)),
        ("CAST(NULL AS BINARY) AS key", ("", "key", True)),
        ("CAST(`id` AS STRING)", None),
        ("`id` AS BINARY)", None),
        ("to_json(struct(*)) AS value", None),
        ("id", None),
    ],
)
def test_columns_that_need_no_spark(expression: str, found: tuple[str, str, bool] | None) -> None:
    assert _direct([expression]) == (None if found is None else (found,))
    assert _direct(["`x`", expression]) is None or found is not None


def test_it_is_sent_to_workers() -> None:
    from pyspark import cloudpickle

    made = Process("p", lambda row: row, "row", SCHEMA)
    assert cloudpickle.loads(cloudpickle.dumps(replace(made))).schema == SCHEMA


@pytest.mark.parametrize(
    ("zone", "known"),
    [("GMT+8", False), ("PST", False), ("+08:00", True), ("Asia/Kathmandu", True)],
)
def test_a_time_zone_that_only_java_knows(zone: str, known: bool) -> None:
    """The rows of mode "row" have Python's timestamps."""
    if known:
        check_zone(zone, "process 'p'")
        return
    with pytest.raises(ConfigurationError, match=rf"'p'.*timeZone is '{zone[:3]}.*'\+08:00'"):
        check_zone(zone, "process 'p'")
