"""SqlSink without a database: its settings, what a column holds, and the statements that Oracle and
SQL Server would get, which were run on neither."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql

from seamark.model.errors import ConfigurationError, CorruptRecordError
from seamark.model.redaction import secrets_in
from seamark.model.schema import Column
from seamark.sinks.sql import SqlSink, tables
from seamark.sinks.sql.committable import SqlCommittable
from seamark.sinks.sql.database import is_lasting, refuses_row
from seamark.sinks.sql.types import form_of, holds

URL = "postgresql+psycopg://etl:s3cr3t%2Fone@db:5432/shop?sslpassword=s3cr3t-two"


def test_no_secret_is_shown() -> None:
    sink = SqlSink(URL, "orders")
    error = sa.exc.OperationalError("", None, Exception("no login with s3cr3t/one at\ns3cr3t-two"))
    said = sink.database.said(error)
    assert said == "no login with *** at ***"
    shown = [repr(sink), sink.describe(), *sink.places, sink.database.shown]
    assert not [text for text in shown if "s3cr3t" in text]
    assert sink.describe() == "postgresql table orders in shop at db (staged)"
    odbc = SqlSink("mssql+pyodbc:///?odbc_connect=UID%3Dsa%3BPWD%3Ds3cr3t", "orders")
    assert "s3cr3t" not in repr(odbc) + odbc.database.shown
    assert secrets_in(odbc) == {"s3cr3t"}


def test_a_secret_within_an_option_is_not_shown_in_errors() -> None:
    options = "odbc_connect=DRIVER%3D%7BODBC%7D%3BUID%3Dsa%3BPWD%3Ds3cr3t-one%3B&token=s3cr3t-two"
    database = SqlSink(f"mssql+pyodbc:///?{options}", "orders").database
    error = sa.exc.OperationalError("", None, Exception("no login with s3cr3t-one, s3cr3t-two"))
    assert database.said(error) == "no login with ***, ***"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"url": "postgresql://u:s3cr3t@[::1"}, "cannot be taken apart"),
        ({"url": "postgresql://u:p@s3cr3t@h/d"}, "cannot be taken apart; .* '@'"),
        ({"url": "s3cr3t"}, "cannot be taken apart"),
        ({"url": "clipper://u:s3cr3t@h/d"}, "dialect 'clipper', which SQLAlchemy does not know"),
        ({"url": "sqlite:///orders.db"}, "'orders.db'; give an absolute path"),
        ({"url": "duckdb:///:memory:"}, "':memory:'; give an absolute path"),
        ({"table": "a.b.c"}, "give 'name' or 'schema.name'"),
        ({"table": "shop._seamark_sql_ledger"}, "a name of Seamark's own"),
        ({"mode": "prepared"}, "staged"),
        ({"mode": "upsert"}, "needs the key columns"),
        ({"keys": ["id"]}, "no other mode takes any"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as raised:
        SqlSink(**{"url": URL, "table": "orders", **settings})
    assert "s3cr3t" not in str(raised.value)


def test_names_of_tables() -> None:
    assert SqlSink(URL, "orders").table_name == ("", "orders")
    assert SqlSink(URL, 'shop."Big.Orders"').table_name == ("shop", "Big.Orders")


@pytest.mark.parametrize(
    ("of", "dialect", "fits", "unfit"),
    [
        (sa.BigInteger(), "postgresql", ["bigint", "boolean", "int"], ["decimal(5,0)"]),
        (sa.SmallInteger(), "duckdb", ["tinyint", "smallint"], ["int", "bigint"]),
        (sa.Numeric(10, 2), "postgresql", ["decimal(10,2)", "smallint"], ["int", "decimal(10,3)"]),
        (postgresql.NUMERIC(), "postgresql", ["decimal(38,38)", "bigint"], ["double", "string"]),
        (sa.Numeric(10, 2), "sqlite", [], ["decimal(5,2)", "int"]),
        (sa.REAL(), "postgresql", ["float"], ["double"]),
        (sa.REAL(), "sqlite", ["float", "double"], ["bigint"]),
        (mysql.DOUBLE(10, 2), "mysql", [], ["double"]),
        (mysql.FLOAT(7, 2), "mysql", [], ["float"]),
        (mysql.SET("a", "b"), "mysql", [], ["string"]),
        (sa.String(), "postgresql", [], ["string"]),
        (sa.VARCHAR(9), "postgresql", ["string"], ["bigint"]),
        (mssql.FLOAT(), "mssql", ["double"], ["bigint"]),
        (mssql.XML(), "mssql", [], ["string"]),
        (sa.VARCHAR(9, collation="Latin1_General_BIN2"), "mssql", [], ["string"]),
        (sa.VARCHAR(9, collation="Latin1_General_100_BIN2_UTF8"), "mssql", ["string"], []),
        (mssql.NVARCHAR(9), "mssql", ["string"], ["bigint"]),
        (sa.Text(), "sqlite", ["string", "decimal(5,2)", "date", "map<string,int>"], ["bigint"]),
        (sa.String(), "duckdb", ["string", "array<int>"], ["date", "decimal(5,2)"]),
        (sa.CHAR(5), "postgresql", [], ["string"]),
        (sa.Enum("a"), "postgresql", [], ["string"]),
        (sa.DateTime(timezone=True), "postgresql", ["timestamp"], ["timestamp_ntz", "date"]),
        (sa.DateTime(), "postgresql", ["timestamp", "timestamp_ntz"], ["date"]),
        (mysql.TIMESTAMP(fsp=6), "mysql", [], ["timestamp"]),
        (mssql.DATETIME(), "mssql", [], ["timestamp"]),
        (oracle.DATE(), "oracle", ["date"], ["timestamp"]),
        (oracle.NUMBER(19, 0), "oracle", ["bigint"], ["decimal(20,0)"]),
        (mysql.LONGBLOB(), "mysql", ["binary"], ["string"]),
        (sa.BINARY(5), "mysql", [], ["binary"]),
        (sa.types.NullType(), "postgresql", [], ["string", "bigint"]),
    ],
    ids=repr,
)  # fmt: skip
def test_what_a_column_holds(of: Any, dialect: str, fits: list[str], unfit: list[str]) -> None:
    form = form_of(of, dialect)
    assert [kind for kind in (*fits, *unfit) if holds(form, kind)] == fits


def test_a_key_needs_a_collation_that_tells_texts_apart() -> None:
    assert not holds(form_of(mysql.VARCHAR(9), "mysql"), "string", key=True)
    exact = form_of(mysql.VARCHAR(9, collation="utf8mb4_nopad_bin"), "mysql")
    assert holds(exact, "string", key=True)
    assert not exact.padded
    assert form_of(sa.String(9), "firebird").padded
    assert not holds(form_of(postgresql.CITEXT(), "postgresql"), "string", key=True)


def test_the_digits_of_a_second_that_a_column_has() -> None:
    assert form_of(postgresql.TIMESTAMP(precision=3), "postgresql").tick_us == 1_000
    assert form_of(postgresql.TIMESTAMP(), "postgresql").tick_us == 1
    assert form_of(mssql.DATETIME2(7), "mssql").tick_us == 1
    assert form_of(mssql.DATETIMEOFFSET(0), "mssql").tick_us == 1_000_000
    assert form_of(mysql.DATETIME(), "mysql").tick_us == 1_000_000


class Recorder:
    """Takes statements instead of a database, and keeps their SQL."""

    def __init__(self, dialect: Any) -> None:
        self.dialect = dialect
        self.sql: list[str] = []

    def execute(self, statement: Any) -> None:
        self.sql.append(" ".join(str(statement.compile(dialect=self.dialect)).split()))


def moved(dialect: Any, *keys: str, op: str = "") -> list[str]:
    """Return the statements of a commit for a stage ``s``."""
    recorder = Recorder(dialect)
    columns = ("id", "Day")
    staged = SqlCommittable("j/u/g1-e0-p0-a0-0", "", "", 1, 0, 1, "", "s", "t", columns, keys, op)
    tables.move(recorder, staged)
    return recorder.sql


def test_the_commit_in_oracle() -> None:
    dialect = oracle.dialect()
    handle = 's."_seamark_handle" = :seamark_handle_1'
    assert moved(dialect) == [
        f'INSERT INTO t (id, "Day") SELECT s.id, s."Day" FROM s WHERE {handle} '
        'ORDER BY s."_seamark_row"'
    ]
    delete, insert = moved(dialect, "id", "Day", op="_seamark_op")
    assert delete == (
        f'DELETE FROM t WHERE (t.id, t."Day") IN (SELECT s.id, s."Day" FROM s WHERE {handle})'
    )
    assert insert == (
        f'INSERT INTO t (id, "Day") SELECT s.id, s."Day" FROM s WHERE {handle} '
        'AND s."_seamark_row" IN (SELECT max("_seamark_newest"."_seamark_row") AS max_1 '
        'FROM s "_seamark_newest" WHERE "_seamark_newest"."_seamark_handle" = :seamark_handle_2 '
        'GROUP BY "_seamark_newest".id, "_seamark_newest"."Day") '
        'AND s."_seamark_op" != :seamark_op_1 ORDER BY s."_seamark_row"'
    )


def test_the_commit_in_sql_server() -> None:
    """It has no row values, and an INSERT takes no ORDER BY."""
    delete, insert = moved(mssql.dialect(), "id", "Day")
    assert delete == (
        "DELETE FROM t WHERE EXISTS (SELECT * FROM s WHERE s._seamark_handle = "
        ":seamark_handle_1 AND s.id = t.id AND s.[Day] = t.[Day])"
    )
    assert insert == (
        "INSERT INTO t (id, [Day]) SELECT s.id, s.[Day] FROM s WHERE s._seamark_handle = "
        ":seamark_handle_1 AND s._seamark_row IN (SELECT max(_seamark_newest._seamark_row) AS "
        "max_1 FROM s AS _seamark_newest WHERE _seamark_newest._seamark_handle = "
        ":seamark_handle_2 GROUP BY _seamark_newest.id, _seamark_newest.[Day])"
    )


@pytest.mark.parametrize("dialect", [oracle.dialect(), mssql.dialect()], ids=lambda d: str(d.name))
def test_new_tables(dialect: Any) -> None:
    kinds = ("bigint", "double", "decimal(20,4)", "timestamp", "timestamp_ntz", "string", "binary")
    schema = [Column("id", "string"), *(Column(f"c{n}", kind) for n, kind in enumerate(kinds))]
    target = tables.new_target("shop", "orders", schema, ["id"])
    made = str(sa.schema.CreateTable(target).compile(dialect=dialect))
    assert "TABLE shop.orders" in made
    assert "PRIMARY KEY (id)" in made
    wanted = {
        "oracle": ("BINARY_DOUBLE", "TIMESTAMP WITH TIME ZONE", "NUMBER(19)"),
        "mssql": ("DATETIMEOFFSET", "DATETIME2", "COLLATE Latin1_General_BIN2"),
    }[dialect.name]
    assert [text for text in wanted if text not in made] == []
    assert "_seamark_sql_ledger" in str(
        sa.schema.CreateTable(tables.ledger_table("")).compile(dialect=dialect)
    )


def test_the_meaning_of_errors() -> None:
    class RefusedError(Exception):
        sqlstate = "22001"

    class AwayError(Exception):
        sqlstate = "08006"

    row = sa.exc.DatabaseError("", None, RefusedError())
    away = sa.exc.ProgrammingError("", None, AwayError())
    assert refuses_row(row) and is_lasting(row)
    assert not refuses_row(away) and not is_lasting(away)
    assert refuses_row(sa.exc.IntegrityError("", None, Exception()))
    assert refuses_row(OverflowError())
    assert not is_lasting(sa.exc.OperationalError("", None, Exception()))
    assert not is_lasting(TimeoutError())


@pytest.mark.parametrize("wrong", [{"handle": "../x"}, {"stage": ""}])
def test_a_committable_that_names_no_stage(wrong: dict[str, str]) -> None:
    with pytest.raises(CorruptRecordError):
        SqlCommittable(**{  # type: ignore[arg-type]
            "handle": "j/u/g1-e0-p0-a0-0", "job_id": "", "sink_uid": "", "generation": 1,
            "epoch": 0, "stage": "s", **wrong,
        })  # fmt: skip
