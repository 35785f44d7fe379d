"""Every Spark type into its column type, and back through the server's own eyes.

How: Arrow batches as Spark makes them, written by the sink into a table of its own or of the
test's, and read with psycopg. `nulls` and the edges of each type are in every column.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import WriteRefusedError
from seamark.model.schema import Column
from seamark.sinks.postgres import copy_format
from seamark.sinks.postgres.types import ColumnType
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer

UTC = dt.timezone.utc
D = Decimal
BIG = D("99999999999999999999999999999.999999999")  # 38 digits
LOW = BIG.copy_negate()
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any], str]] = {
    # name: Spark type, Arrow type, values, the server's name of the column's type
    "flag": ("boolean", pa.bool_(), [True, False, None], "boolean"),
    "tiny": ("tinyint", pa.int8(), [-128, 127, None], "smallint"),
    "small": ("smallint", pa.int16(), [-(2**15), 2**15 - 1, None], "smallint"),
    "mid": ("int", pa.int32(), [-(2**31), 2**31 - 1, None], "integer"),
    "big": ("bigint", pa.int64(), [-(2**63), 2**63 - 1, None], "bigint"),
    "real": ("float", pa.float32(), [1.5, -math.inf, None], "real"),
    "dbl": ("double", pa.float64(), [0.1, math.inf, None], "double precision"),
    "money": (
        "decimal(10,2)", pa.decimal128(10, 2), [D("-12345678.90"), D("0.01"), None],
        "numeric(10,2)",
    ),
    "long": ("decimal(38,9)", pa.decimal128(38, 9), [BIG, LOW, None], "numeric(38,9)"),
    "tail": ("decimal(18,18)", pa.decimal128(18, 18), [D("1e-18"), D("-0.5"), None],
             "numeric(18,18)"),
    "whole": ("decimal(20,0)", pa.decimal128(20, 0), [D(10**19), D(0), None], "numeric(20,0)"),
    "text": ("string", pa.string(), ["", "tab\t \\. \n\"quoted\" ☃ 𝄞", None], "text"),
    "wide": ("string", pa.large_string(), ["a", "", None], "text"),
    "raw": ("binary", pa.binary(), [b"", bytes(range(256)), None], "bytea"),
    "day": ("date", pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None], "date"),
    "at": (
        "timestamp", pa.timestamp("us", "Europe/Berlin"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(9999, 1, 1, tzinfo=UTC),
         None],
        "timestamp with time zone",
    ),
    "local": (
        "timestamp_ntz", pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(2026, 3, 29, 2, 30),
         None], "timestamp without time zone",
    ),
    "ints": ("array<int>", pa.list_(pa.int32()), [[1, None, -3], [], None], "integer[]"),
    "texts": ("array<string>", pa.list_(pa.string()), [["a,b", '"', None], ["NULL"], None],
              "text[]"),
    "sums": ("array<decimal(10,2)>", pa.list_(pa.decimal128(10, 2)), [[D("1.10")], [], None],
             "numeric(10,2)[]"),
    "days": ("array<timestamp>", pa.list_(pa.timestamp("us", "UTC")),
             [[dt.datetime(2026, 1, 1, tzinfo=UTC), None], [], None],
             "timestamp with time zone[]"),
    "json": ("struct<a:int>", pa.string(), ['{"a":1}', "[]", None], "jsonb"),
    "map": ("map<string,int>", pa.string(), ['{"k":2}', "{}", None], "jsonb"),
    "deep": ("array<array<int>>", pa.string(), ["[[1],[]]", "[]", None], "jsonb"),
}  # fmt: skip


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    with kit.fresh_schema(postgres) as name:
        yield name


def table_types(server: PostgresServer, table: str) -> dict[str, str]:
    return dict(
        server.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            f"WHERE attrelid = '{table}'::regclass AND attnum > 0"
        )
    )


@pytest.mark.parametrize("mode", kit.MODES)
def test_every_type_comes_back_from_a_table_that_the_sink_made(
    postgres: PostgresServer, schema: str, mode: str
) -> None:
    shape = (Column("id", "int"), *(Column(n, c[0]) for n, c in COLUMNS.items()))
    sink = kit.sink_on(postgres, schema, mode, create_table=True)
    assert len(sink.select_expressions(shape)) == len(shape)
    committer = sink.create_committer(kit.driver(schema=shape))
    committer.preflight()
    committer.preflight()  # a restart finds the table
    found = table_types(postgres, f"{schema}.orders")
    assert found == {"id": "integer", **{name: c[3] for name, c in COLUMNS.items()}}

    values = {name: pa.array(c[2], c[1]) for name, c in COLUMNS.items()}
    batch = pa.record_batch({"id": pa.array([1, 2, 3], pa.int32()), **values})
    padded = pa.concat_batches([batch, batch])  # and a slice of it, with an offset
    assert padded.num_rows == 6
    committables = kit.write(sink, kit.attempt(), padded.slice(3, 3))
    assert list(committer.commit(committables)) == [CommitOutcome.COMMITTED]
    committer.close()

    with postgres.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        cursor = connection.execute(f"SELECT * FROM {schema}.orders ORDER BY id")
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    for name, (spark, _, expected, _) in COLUMNS.items():
        if sink.select_expressions((Column("id", "int"), Column(name, spark)))[1].startswith("to_"):
            expected = [None if text is None else json.loads(text) for text in expected]
        assert [row[name] for row in rows] == expected, name


def test_one_after_another_all_numbers_are_what_they_were(
    postgres: PostgresServer, schema: str
) -> None:
    # Digits in base 10,000 have edges where their groups begin, and a text of its own to compare.
    shape = (Column("id", "bigint"), Column("n", "decimal(38,18)"), Column("m", "decimal(17,3)"))
    sink = kit.sink_on(postgres, schema, create_table=True)
    committer = sink.create_committer(kit.driver(schema=shape))
    committer.preflight()
    n = [sign * D(10) ** e * m for e in range(-18, 19) for m in (1, 9) for sign in (1, -1)]
    m = [D(v % 10**17) / 1000 * (-1) ** v for v in range(3, 10**18, 10**18 // len(n))][: len(n)]
    batch = pa.record_batch(
        {
            "id": pa.array(range(len(n)), pa.int64()),
            "n": pa.array(n, pa.decimal128(38, 18)),
            "m": pa.array(m, pa.decimal128(17, 3)),
        }
    )
    committer.commit(kit.write(sink, kit.attempt(), batch))
    rows = postgres.execute(f"SELECT n, m FROM {schema}.orders ORDER BY id")
    assert rows == list(zip(n, m, strict=True))


def test_a_declared_table_may_have_wider_types_and_other_columns(
    postgres: PostgresServer, schema: str
) -> None:
    postgres.execute(f"CREATE TYPE {schema}.mood AS ENUM ('good', 'bad')")
    postgres.execute(f"CREATE DOMAIN {schema}.short AS varchar(5)")
    postgres.execute(
        f'CREATE TABLE {schema}.orders (serial bigserial, "Key" uuid, amount numeric, n bigint, '
        f"state {schema}.mood, code {schema}.short, doc jsonb, plain json, f float8, "
        "tags varchar(3)[], made timestamptz NOT NULL DEFAULT now(), "
        "twice bigint GENERATED ALWAYS AS (n * 2) STORED)"
    )
    shape = tuple(
        Column(name, type_)
        for name, type_ in {
            "key": "string", "amount": "bigint", "N": "int", "state": "string", "code": "string",
            "doc": "string", "plain": "string", "f": "float", "tags": "array<string>",
        }.items()
    )  # fmt: skip
    key = uuid.uuid4()
    batch = pa.record_batch(
        {
            "key": [str(key), key.hex.upper()], "amount": pa.array([2**62, -1], pa.int64()),
            "N": pa.array([1, 2], pa.int32()), "state": ["good", "bad"], "code": ["abcde", None],
            "doc": ['{"a": [1]}', None], "plain": ['{"b":  2}', "null"],
            "f": pa.array([0.5, 1.5], pa.float32()), "tags": [["a", "b"], []],
        }
    )  # fmt: skip
    for mode in ("prepared", "staged"):
        sink = kit.sink_on(postgres, schema, mode)
        committer = sink.create_committer(kit.driver(schema=shape))
        committer.preflight()
        committer.commit(kit.write(sink, kit.attempt(), batch))
        rows = postgres.execute(
            'SELECT "Key", amount, n, state, code, doc, plain::text, f, tags, twice, made IS NULL '
            f"FROM {schema}.orders ORDER BY n"
        )
        assert rows == [
            (key, 2**62, 1, "good", "abcde", {"a": [1]}, '{"b":  2}', 0.5, ["a", "b"], 2, False),
            (key, -1, 2, "bad", None, None, "null", 1.5, [], 4, False),
        ]
        postgres.execute(f"TRUNCATE {schema}.orders")


@pytest.mark.parametrize("mode", ["prepared", "staged"])
@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("text varchar(3)", "long", "too long"),
        ("text text NOT NULL", None, "null value"),
        ("text text CHECK (text <> 'bad')", "bad", "check constraint"),
        ("text text", "nul \0", "0x00"),
        ("text jsonb", "{no json", "invalid input syntax"),
        ("text uuid", "4711", "32 hexadecimal digits"),
        ("text varchar(3)", "abc ", "spaces that character varying.3. does not keep"),
        ("text char(3)", "a ", "spaces that character.3. does not keep"),
    ],
)
def test_a_row_that_the_table_refuses_fails_the_epoch_before_its_decision(
    postgres: PostgresServer, schema: str, mode: str, column: str, value: Any, reason: str
) -> None:
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, {column})")
    sink = kit.sink_on(postgres, schema, mode)
    committer = sink.create_committer(kit.driver())
    committer.preflight()
    batch = pa.record_batch({"id": [1], "text": pa.array([value], pa.string())})
    with pytest.raises(WriteRefusedError, match=reason):
        kit.write(sink, kit.attempt(), batch)
    assert list(committer.list_lingering()) == []
    assert kit.visible(postgres, schema) == []
    committer.close()


def test_a_declared_length_or_scale_changes_no_row(postgres: PostgresServer, schema: str) -> None:
    """In place of an error the server cuts spaces off, and rounds."""
    postgres.execute(f"CREATE DOMAIN {schema}.code AS varchar(2)")
    postgres.execute(
        f"CREATE TABLE {schema}.orders (id {schema}.code UNIQUE, c char(2), cs varchar(2)[], "
        "n numeric(5,2), at timestamptz(6), sums numeric(9,3)[])"
    )
    types = ("string", "string", "array<string>", "decimal(9,2)", "timestamp",
             "array<decimal(9,2)>")  # fmt: skip
    names = ("id", "c", "cs", "n", "at", "sums")
    shape = tuple(Column(*pair) for pair in zip(names, types, strict=True))
    sink = kit.sink_on(postgres, schema, "upsert")
    committer = sink.create_committer(kit.driver(schema=shape))
    committer.preflight()
    at = dt.datetime(2026, 1, 1, 0, 0, 0, 1, UTC)
    rows = [("a ", "x", ["é "], "1.25"), ("ab ", "x", [], "1"), ("b", "x ", [], "1"),
            ("c", "x", ["é  "], "1"), ("d", "x", [], "1000"), ("a", "xy", [], "2")]  # fmt: skip
    ids, chars, texts, numbers = zip(*rows, strict=True)
    arrays = [pa.array(ids), pa.array(chars), pa.array(texts, pa.list_(pa.string())),
              pa.array(map(D, numbers), pa.decimal128(9, 2)),
              pa.array([at] * 6, pa.timestamp("us", "UTC")),
              pa.array([[D("0.25")]] * 6, pa.list_(pa.decimal128(9, 2)))]  # fmt: skip
    writer = sink.create_selective_writer(kit.attempt())
    refused = writer.write_accepted(pa.record_batch(arrays, names=names))
    assert [row.index for row in refused] == [1, 2, 3, 4]
    assert "numeric field overflow" in refused[3].reason
    committer.commit(writer.prepare_commit())
    committer.close()
    found = postgres.execute(f"SELECT * FROM {schema}.orders ORDER BY id DESC")
    assert found == [("a ", "x ", ["é "], D("1.25"), at, [D("0.25")]),
                     ("a", "xy", [], D(2), at, [D("0.25")])]  # fmt: skip


def test_an_upsert_refuses_a_row_without_its_key(postgres: PostgresServer, schema: str) -> None:
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint UNIQUE, text text)")
    sink = kit.sink_on(postgres, schema, "upsert")
    sink.create_committer(kit.driver()).preflight()
    batch = pa.record_batch({"id": pa.array([None], pa.int64()), "text": ["x"]})
    with pytest.raises(WriteRefusedError, match="null value"):
        kit.write(sink, kit.attempt(), batch)


def test_the_stream_is_what_the_documentation_says() -> None:
    batch = pa.record_batch(
        {"a": pa.array([1, None], pa.int32()), "b": pa.array(["xy", None], pa.string())}
    )
    columns = [ColumnType("int4", 23, "integer"), ColumnType("text", 25, "text")]
    first = b"\0\2" + b"\0\0\0\4" + b"\0\0\0\1" + b"\0\0\0\2" + b"xy"
    second = b"\0\2" + b"\xff\xff\xff\xff" * 2
    assert bytes(copy_format.rows(batch, columns)) == first + second
