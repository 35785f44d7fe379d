"""`sm.debezium` on envelopes as Debezium's documentation shows them: forms, types, unreadable ones.

Whole jobs over such envelopes, killed on the way, are in `tests/integration/jobs/test_debezium.py`.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.model.errors import ConfigurationError
from tests.every_type import UTC

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
        envelope("r", None, ROW), envelope("c", None, ROW), envelope("u", ROW, ROW | {"name": "b"}),
        envelope("d", ROW, None), None,
    ]  # fmt: skip
    if wrapped:
        changes = [
            c and {"schema": {"type": "struct", "fields": []}, "payload": c} for c in changes
        ]
    found = rows(spark, *changes)
    assert [row.op for row in found] == ["insert", "insert", "update", "delete"]
    assert [row.name for row in found] == ["a", "a", "b", None]
    for row in found[:2]:
        at = row.at.astimezone(UTC)
        assert (row.id, row.name, row.price, bytes(row.photo), row.born, row.ok) == READ
        assert at == datetime(2022, 1, 8, 1, 2, 3, 4, UTC)
    assert list(found[3])[1:-1] == [None] * 6, "a delete has its keys alone"


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_update_that_changes_a_key_is_unreadable(spark: SparkSession, wrapped: bool) -> None:
    """The old key's row would stay. Debezium's own key never changes in an update."""
    before: list[Any] = [{"id": 1}, {"id": 2}, {}, None]
    changes = [envelope("u", row, {"id": 2, "photo": "AA=="}) for row in before]
    found = rows(spark, *([{"payload": c} for c in changes] if wrapped else changes))
    assert [(row.op, row.id) for row in found] == [("unreadable", 2), *[("update", 2)] * 3]
    two = envelope("u", {"id": 1, "name": "a"}, {"id": 1, "name": "b"})
    df = spark.createDataFrame([(json.dumps(two).encode(),)], "value BINARY")
    for keys, op in ((["id", "name"], "unreadable"), ("name", "unreadable"), ("id", "update")):
        assert [row.op for row in sm.debezium(df, SCHEMA, keys).collect()] == [op]


def test_a_key_that_is_in_the_records_key_alone(spark: SparkSession) -> None:
    plain, wrapped = {"id": 7}, {"schema": {}, "payload": {"id": 8}}
    found = rows(spark, (plain, envelope("d")), (wrapped, envelope("d")))
    assert [(row.id, row.op) for row in found] == [(7, "delete"), (8, "delete")]


UNREADABLE: list[Any] = [
    b"no JSON",
    b"{",
    {"id": 1},
    envelope("c", None, ROW | {"id": "x"}),
    envelope("c", None, ROW | {"id": 2**70}),
    envelope("c", None, ROW | {"price": "AJY="}),  # decimal.handling.mode=precise
    envelope("c", None, ROW | {"price": "1.505"}),  # Spark itself would round it
    envelope("c", None, ROW | {"price": 1.505}),
    envelope("c", None, ROW | {"price": "15051E-4"}),
    envelope("c", None, ROW | {"price": "12345678.00"}),
    envelope("c", None, ROW | {"price": "NaN"}),
    envelope("c", None, ROW | {"price": ""}),
    envelope("c", None, ROW | {"born": "soon"}),
    envelope("c", None, ROW | {"born": 2**40}),
    envelope("c", None, ROW | {"at": 1641603723000004}),  # of a unit that is not given
    envelope("c", None, ROW | {"at": "soon"}),
    envelope("c", None, ROW | {"name": "__debezium_unavailable_value"}),
    envelope("c", None, ROW | {"ok": 3}),
    ({"id": 1}, envelope("u", ROW, None)),  # a change without its row
]


def test_what_the_schema_cannot_hold_is_no_change(spark: SparkSession) -> None:
    """Each between two changes, in one plan."""
    good = envelope("c", None, ROW)
    between = [record for value in UNREADABLE for record in (value, good)]
    first, *found = [row.op for row in rows(spark, good, *between)]
    wrong = [one for one, op in zip(UNREADABLE, found[::2], strict=True) if op != "unreadable"]
    assert wrong == []
    assert {first, *found[1::2]} == {"insert"}
    assert len(found) == 2 * len(UNREADABLE)


def test_a_tables_own_texts_are_strings(spark: SparkSession) -> None:
    """As its DDL names them: Spark's from_json refuses both types."""
    texts = ["ab", "longer than that", "__debezium_unavailable_value", None]
    changes = [envelope("u", None, {"id": 1, "v": one, "w": [one]}) for one in texts]
    found = rows(spark, *changes, schema="id BIGINT, v VARCHAR(3), w ARRAY<CHAR(3)>")
    assert [row.op for row in found] == ["update", "update", "unreadable", "update"]
    assert [(row.v, row.w) for row in found] == [
        ("ab", ["ab"]), ("longer than that", ["longer than that"]), (None, None), (None, [None])
    ]  # fmt: skip


def test_a_long_value_that_a_change_has_left_is_unreadable_in_each_of_its_forms(
    spark: SparkSession,
) -> None:
    """PostgreSQL's connector writes its placeholder as an hstore's JSON too, and a bytea's bytes in
    base64."""
    mark = "__debezium_unavailable_value"
    texts = [
        json.dumps({mark: mark}, separators=(",", ":")),
        base64.b64encode(mark.encode()).decode(),
    ]
    changes = [envelope("u", None, {"id": 1, "v": text}) for text in [*texts, '{"a":"b"}', "AQI="]]
    found = rows(spark, *changes, schema="id BIGINT, v STRING")
    assert [row.op for row in found] == ["unreadable", "unreadable", "update", "update"]


def test_no_tinyint_turns_negative(spark: SparkSession) -> None:
    """Spark's from_json reads 200 as -56 there. MySQL's TINYINT UNSIGNED has 200."""
    numbers = (127, 128, 200, 255, 256, -128, -129, None)
    changes = [envelope("c", None, {"id": 1, "n": n, "l": [n]}) for n in numbers]
    found = rows(spark, *changes, schema="id BIGINT, n TINYINT, l ARRAY<TINYINT>")
    read = [(row.op, row.n, row.l) for row in found if row.op == "insert"]
    assert read == [("insert", n, [n]) for n in (127, -128, None)]
    assert [row.op for row in found].count("unreadable") == 5
    deleted = ({"id": 200}, envelope("d", None, None))
    assert [row.op for row in rows(spark, deleted, schema="id TINYINT")] == ["unreadable"]


def test_no_float_turns_infinite(spark: SparkSession) -> None:
    """Spark's from_json reads 1e39 as infinity there; a DOUBLE of the table's may have it."""
    numbers = (0.1, 3.4e38, 1e39, -1e39, "Infinity", "-Infinity", "NaN", None)
    changes = [envelope("c", None, {"id": 1, "n": n, "l": [n]}) for n in numbers]
    found = rows(spark, *changes, schema="id BIGINT, n FLOAT, l ARRAY<FLOAT>")
    assert [row.op == "insert" for row in found] == [n not in (1e39, -1e39) for n in numbers]
    read = [str(row.n) for row in found if row.op == "insert"]
    assert read[:2] == ["0.10000000149011612", "3.3999999521443642e+38"]
    assert read[2:] == ["inf", "-inf", "nan", "None"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_column_in_another_case_is_no_null(spark: SparkSession, wrapped: bool) -> None:
    """Oracle's, Db2's and Snowflake's names are upper case."""
    source = {"NAME": "server", "Id": 1}
    changes = [
        envelope("u", {"id": 1, "name": "b"}, {"id": 1, "NAME": "a"}),
        envelope("c", None, {"ID": 1, "name": "a"}),
        envelope("d", {"ID": 1}, None),
        envelope("u", None, {"id": 2, "name": None, "NAME": "another column"}),
        envelope("u", None, {"id": 3, "more": {"Name": 1}}) | {"source": source},
        envelope("d", {"id": 4}, None) | {"source": source},
    ]
    if wrapped:
        changes = [{"schema": {"name": "x"}, "payload": change} for change in changes]
    found = rows(spark, *changes, schema="id BIGINT, name STRING")
    assert [row.op for row in found] == [*["unreadable"] * 3, "update", "update", "delete"]
    assert [row.name for row in found[3:]] == [None] * 3


@pytest.mark.parametrize("form", ["{}", "[{}]", '{{"k": {}}}', '[{{"k": [null, {}]}}]'])
def test_a_field_within_in_another_case_is_no_null(spark: SparkSession, form: str) -> None:
    kind = "STRUCT<name: STRING, `a.b`: STRUCT<id: INT>>"
    kind = {"{}": kind, "[{}]": f"ARRAY<{kind}>", '{{"k": {}}}': f"MAP<STRING, {kind}>"}.get(
        form, f"ARRAY<MAP<STRING, ARRAY<{kind}>>>"
    )
    texts = [
        '{"NAME": "a"}', '{"name": "a", "a.b": {"ID": 1}}', '{"name": "a", "A.B": {"id": 1}}',
        '{"name": null, "NAME": "another field", "a.b": {"id": 1}}', '{"name": "\\"NAME\\": 1"}',
        '{"name": "a", "more": {"NAME": 1}}', "null",
    ]  # fmt: skip
    values = [json.loads(form.format(text)) for text in texts]
    changes = [envelope("u", None, {"id": 1, "v": value}, NAME=1) for value in values]
    deleted = envelope("d", {"id": 1, "v": values[0]}, None)
    found = rows(spark, *changes, deleted, schema=f"id INT, v {kind}")
    assert [row.op for row in found] == [*["unreadable"] * 3, *["update"] * 4, "unreadable"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_text_with_an_offset_is_no_time_without_one(spark: SparkSession, zone: str) -> None:
    """UTC is what numbers are read in, too."""
    texts = {
        "2022-01-08T01:02:03Z": "update", "2022-01-08 01:02:03": "update",
        "2022-01-08": "update",
        "2022-01-08T01:02:03+02:00": "unreadable", "2022-01-08T01:02:03.5-05:00": "unreadable",
        "2022-01-08 01:02 Europe/Berlin": "unreadable",
    }  # fmt: skip
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        changes = [envelope("u", None, {"id": 1, "at": text, "l": [text]}) for text in texts]
        found = rows(spark, *changes, schema="id INT, at TIMESTAMP_NTZ, l ARRAY<TIMESTAMP_NTZ>")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [row.op for row in found] == list(texts.values())
    assert found[0].at == datetime(2022, 1, 8, 1, 2, 3) == found[0].l[0]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (
            "DATE",
            {
                "2022-01-08": "2022-01-08",
                "-0043-03-15": "-0043-03-15",
                "+12022-01-08": "+12022-01-08",
                "2022-01-08Z": "2022-01-08",  # Debezium's IsoDate
                "2022-01-08T00:00:00.000Z": "2022-01-08",
                "2022-01-08T01:02:03Z": None,
                "2022-01-08 00:00:00+02:00": None,
                "2022-01-08 BC": None,
                "2022-01": None,
                "12:30:00Z": None,
            },
        ),
        (
            "TIMESTAMP",
            {
                "2022-01-08T01:02:03Z": "2022-01-08 01:02:03",
                "2022-01-08": "2022-01-08 00:00:00",
                "12:30:00Z": None,  # Spark would take today's
                "T12:30": None,
            },
        ),
        ("TIMESTAMP_NTZ", {"12:30:00": None}),
    ],
    ids=["date", "timestamp", "without a zone"],
)
def test_no_part_of_a_text_is_dropped_or_made_up(
    spark: SparkSession, kind: str, texts: dict[str, str | None]
) -> None:
    changes = [
        (json.dumps(envelope("u", None, {"id": 1, "at": text, "l": [text]})).encode(),)
        for text in texts
    ]
    df = spark.createDataFrame(changes, "value BINARY")
    read = sm.debezium(df, f"id INT, at {kind}, l ARRAY<{kind}>", "id")
    found = map(tuple, read.selectExpr("string(at)", "string(l[0])", "op").collect())
    assert dict(zip(texts, found, strict=True)) == {
        text: (value, value, "update" if value else "unreadable") for text, value in texts.items()
    }


def test_other_ops_are_passed_on(spark: SparkSession) -> None:
    assert [row.op for row in rows(spark, envelope("t"), envelope("m"))] == ["t", "m"]


@pytest.mark.parametrize(("unit", "scale"), [("seconds", 1), ("millis", 1000), ("micros", 10**6)])
def test_numbers_as_timestamps(spark: SparkSession, unit: Any, scale: int) -> None:
    values = {"id": 1, "at": 1641603723 * scale, "plain": -5 * scale, "zero": 0,
              "long_ago": -(10**7) * scale}  # fmt: skip
    schema = (
        "id BIGINT, at TIMESTAMP, plain TIMESTAMP_NTZ, zero TIMESTAMP_NTZ, long_ago TIMESTAMP_NTZ"
    )
    by_column = dict.fromkeys(("at", "plain", "zero", "long_ago"), unit)
    for how in (by_column, unit):
        (row,) = rows(spark, envelope("c", None, values), schema=schema, numeric_timestamps=how)
        assert row.op == "insert"
        assert row.at.astimezone(UTC) == datetime(2022, 1, 8, 1, 2, 3, tzinfo=UTC)
        assert row.zero == datetime(1970, 1, 1)
        assert row.long_ago == datetime(1969, 9, 7, 6, 13, 20)
        if how is by_column:
            assert row.plain == datetime(1969, 12, 31, 23, 59, 55)
            del values["plain"]


ZONES = ("America/New_York", "Europe/London", "Asia/Singapore", "Asia/Kolkata", "UTC")


@pytest.mark.parametrize("zone", ZONES)
def test_a_number_is_the_same_instant_in_every_time_zone(spark: SparkSession, zone: str) -> None:
    """Also where the session's zone has another offset at that time than it had in 1970."""
    instants = [datetime(year, month, 15, 12, tzinfo=UTC) for year in (1900, 1995, 2024, 9999)
                for month in (1, 7)]  # fmt: skip
    changes = [
        envelope("c", None, {"id": 1, "a": ms, "b": ms})
        for ms in (int(at.timestamp()) * 1000 + 1 for at in instants)
    ]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.createDataFrame([(json.dumps(c).encode(),) for c in changes], "value BINARY")
        schema = "id INT, a TIMESTAMP, b TIMESTAMP_NTZ"
        read = sm.debezium(df, schema, "id", numeric_timestamps="millis")
        found = read.selectExpr("unix_millis(a)", "b").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    wanted = [at.replace(microsecond=1000) for at in instants]
    assert [row[0] for row in found] == [int(at.timestamp()) * 1000 + 1 for at in instants]
    assert [row.b for row in found] == [at.replace(tzinfo=None) for at in wanted]


SCALES = {"seconds": 1, "millis": 10**3, "micros": 10**6, "nanos": 10**9}


@pytest.mark.parametrize("unit", ["seconds", "millis", "micros"])
def test_no_instant_of_another_unit_is_taken(spark: SparkSession, unit: Any) -> None:
    instants = [datetime(year, 2, 3, 4, 5, 6, tzinfo=UTC) for year in range(1978, 2201)]
    numbers = [
        (int(instant.timestamp()) * scale, name)
        for instant in instants for name, scale in SCALES.items()
    ]  # fmt: skip
    changes = [envelope("c", None, {"id": n, "a": n}) for n, _ in numbers]
    changes.append(envelope("c", None, {"id": 0, "a": 253_402_214_400 * SCALES[unit]}))
    found = rows(spark, *changes, schema="id BIGINT, a TIMESTAMP_NTZ", numeric_timestamps=unit)
    names = [name for _, name in numbers]
    assert [row.op for row in found[:-1]] == [
        "insert" if name == unit else "unreadable" for name in names
    ]
    own = [row.a for row, name in zip(found, names, strict=False) if name == unit]
    assert own == [instant.replace(tzinfo=None) for instant in instants]
    assert found[-1].a == datetime(9999, 12, 31)


TIMES = "id BIGINT, a TIMESTAMP, b TIMESTAMP, c TIMESTAMP_NTZ, d DATE"
NOON = datetime(2024, 6, 15, 12, 0, 0, 123000, UTC)
MS = int(NOON.timestamp() * 1000)


def described(values: dict[str, Any], **types: str) -> dict[str, Any]:
    """Return a create with the schema of its row, as ``schemas.enable=true`` writes it."""
    row = [
        {"field": name, "type": "int64", "optional": True} | ({"name": types[name]} if name in types
                                                             else {})
        for name in values
    ]  # fmt: skip
    fields = [{"type": "struct", "fields": row, "field": side} for side in ("before", "after")]
    fields.append({"type": "string", "field": "op"})
    change = envelope("c", None, values)
    return {"schema": {"type": "struct", "fields": fields}, "payload": change}


@pytest.mark.parametrize("how", [{"numeric_timestamps": "micros"},
                                 {"numeric_timestamps": {"a": "seconds"}}])  # fmt: skip
def test_units_from_the_records_schema(spark: SparkSession, how: Any) -> None:
    values = {"id": 1, "a": MS, "b": MS * 1000 + 456, "c": MS * 10**6 + 456_789, "d": 19000}
    types = {
        "a": "io.debezium.time.Timestamp", "b": "io.debezium.time.MicroTimestamp",
        "c": "io.debezium.time.NanoTimestamp", "d": "io.debezium.time.Date",
    }  # fmt: skip
    connect = "org.apache.kafka.connect.data."
    other = {"a": f"{connect}Timestamp", "d": f"{connect}Date", "b": types["b"], "c": types["c"]}
    for row in rows(spark, described(values, **types), described(values, **other),
                    schema=TIMES, **how):  # fmt: skip
        assert row.op == "insert"
        assert row.a.astimezone(UTC) == NOON
        assert row.b.astimezone(UTC) == NOON.replace(microsecond=123456)
        assert row.c == NOON.replace(tzinfo=None, microsecond=123456)
        assert row.d == date(2022, 1, 8)


def test_units_by_column(spark: SparkSession) -> None:
    values = {"id": 1, "a": MS, "b": MS * 1000, "c": MS // 1000, "d": None}
    units = {"a": "millis", "b": "micros", "c": "seconds"}
    for change in (envelope("c", None, values), described(values)):
        (row,) = rows(spark, change, schema=TIMES, numeric_timestamps=units)
        assert row.op == "insert"
        assert row.a.astimezone(UTC) == row.b.astimezone(UTC) == NOON
        assert row.c == NOON.replace(tzinfo=None, microsecond=0)
    early = {"id": 1, "a": 10**9, "b": 10**9}  # the first weeks of 1970
    (row,) = rows(spark, envelope("c", None, early), schema=TIMES, numeric_timestamps=units)
    assert (row.op, row.a.year) == ("insert", 1970)


def test_decimals(spark: SparkSession) -> None:
    texts = ["1.5", "-1.50", "1.5000", "1234", "0E-10", "1E+3", "15050E-4", 1.5, 7, 1e3, "0", None]
    changes = [envelope("c", None, {"id": 1, "n": text}) for text in texts]
    found = rows(spark, *changes, schema="id BIGINT, n DECIMAL(9,3)")
    assert [row.op for row in found] == ["insert"] * len(texts)
    assert [row.n for row in found] == [
        None if text is None else Decimal(str(text)) for text in texts
    ]
    whole = "9" * 20 + "." + "8" * 18
    changes = [envelope("c", None, {"id": 1, "n": text}) for text in (whole, whole + "1")]
    exact, longer = rows(spark, *changes, schema="id BIGINT, n DECIMAL(38,18)")
    assert exact.n == Decimal(whole)
    assert (exact.op, longer.op) == ("insert", "unreadable")


def test_decimals_in_base64_are_told_by_the_records_schema(spark: SparkSession) -> None:
    precise = "org.apache.kafka.connect.data.Decimal"
    changes = [described({"id": 1, "n": n}, n=precise) for n in ("1234", "12E4", "AJY=", 1234.0)]
    changes.append(described({"id": 1, "n": "1234"}))
    found = rows(spark, *changes, schema="id BIGINT, n DECIMAL(9,2)")
    assert [row.op for row in found] == ["unreadable"] * 3 + ["insert"] * 2
    assert [row.n for row in found[3:]] == [Decimal(1234)] * 2


NESTED = [
    ("ARRAY<DECIMAL(9,2)>", lambda one: [one, None]),
    ("STRUCT<n: DECIMAL(9,2), `s.t`: STRING>", lambda one: {"n": one, "s.t": "a"}),
    ("MAP<STRING, DECIMAL(9,2)>", lambda one: {"a": None, "b": one}),
    ("ARRAY<ARRAY<STRUCT<n: DECIMAL(9,2)>>>", lambda one: [[], [None, {"n": one}]]),
]


@pytest.mark.parametrize(("kind", "around"), NESTED, ids=[kind for kind, _ in NESTED])
def test_a_decimal_within_is_exact_or_unreadable(
    spark: SparkSession, kind: str, around: Any
) -> None:
    """Spark's from_json would round it."""
    texts = ["1.5", 1.50, 7, "-1234567.89", "1.505", 1.505, "12345678.0", "AJY=", "a"]
    changes = [envelope("c", None, {"id": 1, "n": around(text)}) for text in [*texts, None]]
    changes.append(envelope("c", None, {"id": 1, "n": None}))
    found = rows(spark, *changes, schema=f"id BIGINT, n {kind}")
    assert [row.op for row in found] == ["insert"] * 4 + ["unreadable"] * 5 + ["insert"] * 2
    plain = [row.asDict(recursive=True)["n"] for row in found]
    wanted = [around(Decimal(str(text))) for text in texts[:4]] + [None] * 5 + [around(None), None]
    assert plain == wanted


def test_a_number_that_spark_would_read_as_a_double_is_unreadable(spark: SparkSession) -> None:
    """As Kafka's converter writes it with `decimal.format=NUMERIC`."""
    numbers = {
        "1.500000000000000000": "insert", "12345678901234567890": "insert", "-7.25": "insert",
        "0.1000000000000000000001": "unreadable", "12345678901234567.125": "unreadable",
        "1.234567890123456789E-6": "unreadable", '"12345678901234567.125"': "insert",
    }  # fmt: skip
    text = '{"before": null, "after": {"id": 1, "d": 0.12345678901234567, "n": %s}, "op": "c"}'
    lists = [("ARRAY<DECIMAL(38,10)>", around) for around in ("[1.5, %s]", "[%s]", "[ %s]")]
    for kind, around in [("DECIMAL(38,10)", "%s"), *lists]:
        changes = [(text % (around % number)).encode() for number in numbers]
        found = rows(spark, *changes, schema=f"id BIGINT, d DOUBLE, n {kind}")
        assert [row.op for row in found] == list(numbers.values())
        for number, row in zip(numbers, found, strict=True):
            if row.op == "insert":
                last = row.n if around == "%s" else row.n[-1]
                assert last == Decimal(number.strip('"'))
        assert {row.d for row in found if row.op == "insert"} == {0.12345678901234567}


def test_a_text_keeps_every_digit_of_a_number_or_is_unreadable(spark: SparkSession) -> None:
    """A decimal of `decimal.format=NUMERIC`, or any other number, in a column of strings."""
    numbers = {
        "12345678901234567890": "insert", "0.30000000000000004": "insert", "-7.25": "insert",
        "12345678901234567890.50": "unreadable", "0.1000000000000000000001": "unreadable",
        '"12345678901234567890.50"': "insert", "null": "insert",
    }  # fmt: skip
    text = '{"before": null, "after": {"id": 1, "d": 0.12345678901234567, "n": %s}, "op": "c"}'
    for kind, around in (("STRING", "%s"), ("VARCHAR(40)", "%s"), ("ARRAY<STRING>", "[%s]")):
        changes = [(text % (around % number)).encode() for number in numbers]
        found = rows(spark, *changes, schema=f"id BIGINT, d DOUBLE, n {kind}")
        wanted = dict(numbers)
        if around != "%s":  # whether a text within is the JSON's is not looked at
            wanted["0.30000000000000004"] = "unreadable"
        assert [row.op for row in found] == list(wanted.values()), kind
        for number, row in zip(numbers, found, strict=True):
            if row.op == "insert" and number != "null":
                assert (row.n if around == "%s" else row.n[0]) == number.strip('"')


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "DATE", "DOUBLE", "DECIMAL(9,2)", "STRING"])
def test_an_array_that_a_change_has_left_as_it_was_is_unreadable(
    spark: SparkSession, kind: str
) -> None:
    """PostgreSQL's connector gives the bytes of its placeholder, or their UUID."""
    left: list[Any] = list(b"__debezium_unavailable_value")
    if kind in ("DOUBLE", "DECIMAL(9,2)"):
        left = [float(byte) for byte in left]
    if kind == "STRING":
        left = ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]
    arrays: list[list[Any]] = [left, [], left[:-1]]
    changes = [envelope("u", None, {"id": 1, "n": array}) for array in arrays]
    found = rows(spark, *changes, schema=f"id BIGINT, n ARRAY<{kind}>")
    assert [row.op for row in found] == ["unreadable", "update", "update"]


def test_what_else_an_array_may_have(spark: SparkSession) -> None:
    """Spark's from_json takes a number for the seconds since 1970."""
    schema = "id BIGINT, n ARRAY<TIMESTAMP>, d ARRAY<DATE>, s ARRAY<STRING>, p ARRAY<DECIMAL(9,2)>"
    at = "2022-01-08T01:02:03.000004Z"
    cases: list[dict[str, Any]] = [
        {"n": [at, None], "d": [19000, "2022-01-08"], "s": ["a", ""], "p": ["1234"]},
        {"n": [1_641_603_723_000_004]}, {"n": [1_641_603_723]},
        {"s": ["__debezium_unavailable_value"]}, {"d": [10**9]},
    ]  # fmt: skip
    changes = [described({"id": 1, **case}) for case in cases]
    changes.append(described({"id": 1, "p": ["1234"]}))
    fields = changes[-1]["schema"]["fields"][0]["fields"]
    fields[1]["items"] = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
    first, *others = rows(spark, *changes, schema=schema)
    assert first.op == "insert"
    assert first.n[0].astimezone(UTC) == datetime(2022, 1, 8, 1, 2, 3, 4, UTC)
    assert first.n[1:] == [None]
    assert (first.d, first.s, first.p) == ([date(2022, 1, 8)] * 2, ["a", ""], [Decimal(1234)])
    assert [row.op for row in others] == ["unreadable"] * 5


INFINITE = {"a": 2**63 - 1}, {"a": "io.debezium.time.MicroTimestamp"}


@pytest.mark.parametrize(
    ("how", "cases"),
    [
        ("micros", [({"a": MS}, {}), ({"a": -MS}, {}), INFINITE]),  # the first is 1970-01-20
        ("millis", [({"a": MS * 1000}, {}), ({"a": MS // 1000}, {}),
                    ({"a": 19000}, {"a": "io.debezium.time.Date"})]),
        ({"a": "seconds"}, [({"a": MS}, {}), ({"b": MS}, {})]),
        (None, [({"a": MS}, {}), ({"d": MS}, {}), ({"d": MS // 1000}, {}),
                ({"d": 19000}, {"d": "io.debezium.time.Timestamp"}), INFINITE]),
    ],
    ids=["micros", "millis", "by column", "none"],
)  # fmt: skip
def test_a_number_of_another_unit_is_unreadable(spark: SparkSession, how: Any, cases: Any) -> None:
    changes = [described({"id": 1, **values}, **types) for values, types in cases]
    changes += [
        change["payload"] for change, (_, types) in zip(changes, cases, strict=True) if not types
    ]
    found = rows(spark, *changes, schema=TIMES, numeric_timestamps=how)
    assert [row.op for row in found] == ["unreadable"] * len(changes)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"schema": "id BIGNUM"}, "schema is 'id BIGNUM', which is no list"),
        ({"schema": "id INT, ID INT"}, "each once"),
        ({"schema": "id INT, m MAP<INT, INT>"}, "which Spark cannot read from JSON: "),
        ({"keys": []}, r"keys is \[\]; give the table's key columns"),
        ({"keys": "number"}, "keys is 'number'; give"),
        ({"keys": None}, "keys is None; give"),
        ({"keys": [["id"]]}, r"keys is \[\['id'\]\]; give"),
        ({"df": sm.KafkaSource("h:1", "clicks")}, "df is of type KafkaSource; give the DataFrame"),
        ({"op": "NAME"}, "op is 'NAME'; give a name that no column"),
        ({"numeric_timestamps": "hours"}, "numeric_timestamps is 'hours'"),
        ({"numeric_timestamps": {"at": "hours"}}, "numeric_timestamps of 'at' is 'hours'"),
        (
            {"numeric_timestamps": {"born": "millis"}},
            "a column in numeric_timestamps is 'born'; allowed are 'at'",
        ),
    ],
)
def test_wrong_settings(spark: SparkSession, how: dict[str, Any], match: str) -> None:
    df = spark.createDataFrame([(None, b"{}")], "key BINARY, value BINARY")
    with pytest.raises(ConfigurationError, match=match):
        sm.debezium(**{"df": df, "schema": SCHEMA, "keys": ["id"], **how})


def test_another_dataframe(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"no column .value. .it has id"):
        sm.debezium(spark.range(1).toDF("id"), SCHEMA, "id")
