"""Rows arrive as they are, by LOAD DATA and by INSERT, or are refused; the findings of a preflight.

How: batches as Spark hands them to a writer, into tables made by the sink or before it, read back
by a client of its own.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import CommitFailedError, PreflightError, WriteRefusedError
from seamark.model.schema import Column, Schema
from seamark.sinks.mysql import MySQLSink
from seamark.sinks.mysql.table import version_of
from seamark.verify.conformance.steps import attempt, until_proved
from tests.integration.mysql.conftest import fresh_database, serving
from tests.integration.mysql.sink_kit import NUMBERS, batch, context, target_on
from tests.servers.mariadb import PASSWORD, MariaDBServer

UTC = dt.timezone.utc
AWKWARD = (
    'it\'s a \\ back\\slash, "quoted", tab\t, new\nline, carriage\r, \0 nul, NULL, \\N, é, 😀 '
)
SCHEMA = (
    Column("flag", "boolean"), Column("tiny", "tinyint"), Column("big", "bigint"),
    Column("real", "float"), Column("double", "double"), Column("price", "decimal(38,10)"),
    Column("day", "date"), Column("at", "timestamp"), Column("local", "timestamp_ntz"),
    Column("text", "string"), Column("bytes", "binary"), Column("nested", "array<string>"),
    Column("we`ird %s", "string"),
)  # fmt: skip
ARROW = pa.schema(
    [
        ("flag", pa.bool_()), ("tiny", pa.int8()), ("big", pa.int64()), ("real", pa.float32()),
        ("double", pa.float64()), ("price", pa.decimal128(38, 10)), ("day", pa.date32()),
        ("at", pa.timestamp("us", "Asia/Tokyo")), ("local", pa.timestamp("us")),
        ("text", pa.string()), ("bytes", pa.binary()), ("nested", pa.string()),
        ("we`ird %s", pa.string()),
    ]
)  # fmt: skip
ROWS: list[Sequence[Any]] = [
    [True, -128, 2**63 - 1, 0.1, 5e-324, Decimal("1E-10"), dt.date(1970, 1, 1),
     dt.datetime(2024, 2, 29, 23, 59, 59, 999999, UTC), dt.datetime(1000, 1, 1),
     AWKWARD, bytes(range(256)), json.dumps(["a\\b", "c\"d", "e'f"]), "x"],
    [False, 127, -(2**63), -1.5, 1.7976931348623157e308,
     Decimal("9999999999999999999999999999.9999999999"), dt.date(9999, 12, 31),
     dt.datetime(1900, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
     "", b"", "[]", "NULL"],
    [None] * 13,
]  # fmt: skip


@pytest.fixture(params=[1, 0], ids=["load-data", "insert"])
def server(request: pytest.FixtureRequest, mariadb: MariaDBServer) -> Iterator[MariaDBServer]:
    """The shared server with `local_infile` on and off."""
    mariadb.execute(f"SET GLOBAL local_infile={request.param}")
    yield mariadb
    mariadb.execute("SET GLOBAL local_infile=1")


def commit(sink: MySQLSink, schema: Schema, rows: pa.RecordBatch, epoch: int = 0) -> None:
    """Preflight, write, commit."""
    committer = sink.create_committer(context(schema=schema))
    committer.preflight()
    writer = sink.create_writer(attempt(epoch=epoch))
    writer.write(rows)
    outcomes = until_proved(committer.commit, list(writer.prepare_commit()))
    assert outcomes == [CommitOutcome.COMMITTED]
    committer.close()


@pytest.mark.parametrize("mode", ["xa", "staged"])
def test_every_type_comes_back(server: MariaDBServer, database: str, mode: str) -> None:
    sink = MySQLSink(server.url(database=database), "all types", mode, create_table=True)  # type: ignore[arg-type]
    columns = [
        pa.array(column, kind)
        for column, kind in zip(zip(*ROWS, strict=True), ARROW.types, strict=True)
    ]
    commit(sink, SCHEMA, pa.record_batch(columns, schema=ARROW))
    found = server.execute("SELECT * FROM `all types`", database=database)
    first, second, nulls = sorted(found, key=lambda row: (row[0] is None, not row[0]))
    assert nulls == (None,) * 13
    for row, sent in ((first, ROWS[0]), (second, ROWS[1])):
        expected = [
            value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value
            for value in sent
        ]
        assert list(row) == expected


def test_nan_is_null_and_infinity_is_refused(server: MariaDBServer, database: str) -> None:
    sink = MySQLSink(server.url(database=database), "t", create_table=True)
    schema = (Column("x", "double"),)
    commit(sink, schema, pa.record_batch({"x": [float("nan"), 1.0]}))
    assert sorted(server.execute("SELECT x FROM t", database=database), key=str) == [
        (1.0,),
        (None,),
    ]
    with pytest.raises(WriteRefusedError, match="'x' holds an infinite number"):
        sink.create_writer(attempt()).write(pa.record_batch({"x": [float("-inf")]}))


def test_text_of_another_character_set(server: MariaDBServer, database: str) -> None:
    server.execute("CREATE TABLE t (v TEXT CHARACTER SET latin1, n INT)", database=database)
    sink = MySQLSink(server.url(database=database), "t")
    rows = pa.record_batch({"v": ["caf\u00e9 'x'", None], "n": [1, 2]})
    commit(sink, (Column("v", "string"), Column("n", "int")), rows)
    found = server.execute("SELECT v, LENGTH(v), n FROM t", database=database)
    assert sorted(found, key=lambda row: row[2]) == [("caf\u00e9 'x'", 8, 1), (None, None, 2)]


def test_a_batch_of_more_than_one_statement(server: MariaDBServer, database: str) -> None:
    target = target_on(server, database)
    rows = pa.record_batch({"id": range(3000), "text": ["x" * 1000] * 3000})
    commit(target.sink, NUMBERS, rows)
    commit(target.sink, NUMBERS, rows.slice(2500, 100), epoch=1)
    assert target.execute("SELECT COUNT(*), SUM(id), SUM(LENGTH(text)) FROM orders") == [
        (3100, 4498500 + sum(range(2500, 2600)), 3_100_000)
    ]


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("VARCHAR(3)", pa.array(["abcd"]), "too long|truncated"),
        ("TINYINT", pa.array([300]), "Out of range"),
        ("DECIMAL(5,1)", pa.array([Decimal("1.25")]), "truncated"),
        ("DATE", pa.array([2_932_897], pa.date32()), "truncated|Incorrect date|Out of range"),
        ("BIGINT NOT NULL", pa.array([None], pa.int64()), "(?i)null"),
        ("INT PRIMARY KEY", pa.array([1, 2, 1]), "Duplicate"),
        ("INT CHECK (v > 5)", pa.array([3]), "(?i)constraint"),
        ("VARCHAR(9) CHARACTER SET latin1", pa.array(["\u20bf"]), "Incorrect string"),
        # Of a table altered since the start, the look tells before the server sees a row.
        ("INT", pa.array(["12x"]), "'v' is int now, and a string there would alter values"),
        ("DATE", pa.array(["2024-02-30"]), "'v' is date now, and a string there would alter"),
        ("TINYINT", pa.array(["300"]), "'v' is tinyint now, and a string there would alter"),
    ],
)  # fmt: skip
def test_what_the_server_would_alter_or_skip_is_refused(
    server: MariaDBServer, database: str, column: str, values: pa.Array, why: str
) -> None:
    """LOAD DATA LOCAL warns of each, in strict mode too, and goes on with another row or none."""
    ((version,),) = server.execute("SELECT VERSION()")
    if "CHECK" in column and (8, 0, 0) <= version_of(version) < (8, 0, 16):
        pytest.skip("this MySQL reads CHECK and keeps none")
    server.execute(f"CREATE TABLE t (v {column})", database=database)
    sink = MySQLSink(server.url(database=database), "t", "xa")
    sink.create_committer(context(schema=())).preflight()
    writer = sink.create_writer(attempt())
    with pytest.raises(WriteRefusedError, match=why):
        writer.write(pa.record_batch({"v": values}))
    writer.abort()
    assert server.execute("SELECT * FROM t", database=database) == []


def test_a_server_that_keeps_no_warnings(server: MariaDBServer, database: str) -> None:
    """A plain user of MySQL 9 may not let it keep any."""
    server.execute("CREATE TABLE t (v VARCHAR(3))", database=database)
    ((kept,),) = server.execute("SELECT @@GLOBAL.max_error_count")
    server.execute("SET GLOBAL max_error_count=0")
    try:
        writer = MySQLSink(server.url(database=database), "t").create_writer(attempt())
        with pytest.raises(WriteRefusedError, match=r"too long|truncated|max_error_count is 0"):
            writer.write(pa.record_batch({"v": ["abcd"]}))
        writer.abort()
    finally:
        server.execute(f"SET GLOBAL max_error_count={kept}")


@pytest.mark.parametrize("mode", ["xa", "staged", "upsert"])
def test_a_zero_asks_for_no_number(server: MariaDBServer, database: str, mode: str) -> None:
    """AUTO_INCREMENT would replace 0 and null; a column that is not written it still fills."""
    server.execute(
        "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, n INT)", database=database
    )
    keys = ["id"] if mode == "upsert" else []
    url = server.url(database=database)
    sink = MySQLSink(url, "t", mode, keys=keys)  # type: ignore[arg-type]
    schema = (Column("id", "bigint"), Column("n", "int"))
    commit(sink, schema, pa.record_batch({"id": [7, 0], "n": [1, 2]}))
    found = "SELECT id, n FROM t ORDER BY n"
    assert server.execute(found, database=database) == [(7, 1), (0, 2)]
    writer = sink.create_selective_writer(attempt(epoch=1))
    rows = pa.record_batch({"id": pa.array([9, None], pa.int64()), "n": [3, 4]})
    assert [row.index for row in writer.write_accepted(rows)] == [1]
    writer.abort()
    if mode != "upsert":
        sink = MySQLSink(url, "t", mode)  # type: ignore[arg-type]
        commit(sink, (Column("n", "int"),), pa.record_batch({"n": [5]}), epoch=2)
        (*_, (made, five)) = server.execute(found, database=database)
        assert made > 7
        assert five == 5


def test_upsert_replaces_rows_of_the_same_key(server: MariaDBServer, database: str) -> None:
    sink = MySQLSink(
        server.url(database=database), "t", "upsert", keys=["k", "day"], create_table=True
    )
    schema = (Column("k", "string"), Column("day", "date"), Column("n", "bigint"))

    def rows(*found: tuple[str, int, int | None]) -> pa.RecordBatch:
        return pa.record_batch(
            [
                pa.array([k for k, _, _ in found]),
                pa.array([dt.date(2024, 1, day) for _, day, _ in found]),
                pa.array([n for _, _, n in found], pa.int64()),
            ],
            names=["k", "day", "n"],
        )

    commit(sink, schema, rows(("a", 1, 1), ("A", 1, 2), ("a ", 1, 3), ("a", 2, 4)))
    commit(sink, schema, rows(("a", 1, 10), ("b", 1, 20), ("a", 2, None), ("b", 1, 21)), epoch=1)
    found = server.execute("SELECT k, DAY(day), n FROM t", database=database)
    # The later row of one task wins; keys that differ in case or spaces are different, as in Spark.
    expected = {("a", 1, 10), ("A", 1, 2), ("a ", 1, 3), ("a", 2, None), ("b", 1, 21)}
    bytes_too = {(k.decode() if isinstance(k, bytes) else k, day, n) for k, day, n in found}
    assert bytes_too == expected  # MySQL before 8.0.17 has no such collation, so the keys are bytes
    writer = sink.create_writer(attempt(epoch=2))
    with pytest.raises(WriteRefusedError, match=r"(?i)null"):
        writer.write(
            pa.record_batch(rows(("a", 1, 1)).columns[1:], names=["day", "n"]).append_column(
                "k", pa.array([None], pa.string())
            )
        )
    writer.abort()


KEYS = ("a", "A", "a ", "é", "e", "e\u0301")


@pytest.mark.parametrize(
    "column", ["VARCHAR(50)", "VARCHAR(50) COLLATE utf8mb4_bin", "CHAR(50)", "BINARY(50)"]
)
@pytest.mark.parametrize("kind", ["mariadb", "mysql8"])
def test_a_key_that_takes_two_values_for_one_is_refused_and_the_remedy_mends_it(
    request: pytest.FixtureRequest, kind: str, column: str
) -> None:
    server: MariaDBServer = request.getfixturevalue(kind)
    schema = (Column("k", "string"), Column("n", "bigint"))
    rows = pa.record_batch({"k": KEYS, "n": range(len(KEYS))})
    with fresh_database(server) as database:
        server.execute(f"CREATE TABLE t (k {column} PRIMARY KEY, n BIGINT)", database=database)
        sink = MySQLSink(server.url(database=database), "t", "upsert", keys=["k"])
        committer = sink.create_committer(context(schema=schema))
        with pytest.raises(PreflightError, match=r"different keys for one|alter values") as refusal:
            committer.preflight()
        committer.close()
        remedy = re.findall("ALTER TABLE .* NOT NULL", str(refusal.value))[0]
        server.execute(remedy, database=database)
        commit(sink, schema, rows)
        found = dict(server.execute("SELECT n, CONVERT(k USING utf8mb4) FROM t", database=database))
        assert found == dict(enumerate(KEYS))


def test_a_row_without_a_key_is_refused(mariadb: MariaDBServer, database: str) -> None:
    """A unique index takes any number of nulls, so each epoch would add a row."""
    mariadb.execute("CREATE TABLE t (k DOUBLE UNIQUE, n BIGINT)", database=database)
    sink = MySQLSink(mariadb.url(database=database), "t", "upsert", keys=["k"])
    committer = sink.create_committer(
        context(schema=(Column("k", "double"), Column("n", "bigint")))
    )
    committer.preflight()
    writer = sink.create_selective_writer(attempt())
    rows = pa.record_batch({"k": [1.0, None, math.nan], "n": [1, 2, 3]})
    assert [row.index for row in writer.write_accepted(rows)] == [1, 2]
    until_proved(committer.commit, list(writer.prepare_commit()))
    committer.close()
    assert mariadb.execute("SELECT k, n FROM t", database=database) == [(1.0, 1)]


def test_a_column_that_looks_like_the_sinks_own(mariadb: MariaDBServer, database: str) -> None:
    mariadb.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, xseamark_op TEXT)",
        database=database,
    )
    sink = MySQLSink(mariadb.url(database=database), "t", "upsert", keys=["id"])
    rows = pa.record_batch({"id": [1], "xseamark_op": ["delete"]})
    commit(sink, (Column("id", "bigint"), Column("xseamark_op", "string")), rows)
    assert mariadb.execute("SELECT id FROM t", database=database) == [(1,)]


def test_staged_rows_that_the_table_refuses_stop_the_job_and_wait(
    mariadb: MariaDBServer, database: str
) -> None:
    target = target_on(mariadb, database, "staged", key=True)
    target.execute("INSERT INTO orders VALUES (5, 'row 5')")
    committer = target.committer()
    committables = target.write([4, 5, 6])
    with pytest.raises(CommitFailedError, match="Duplicate entry '5'"):
        committer.commit(committables)
    assert target.visible() == [5]
    target.execute("DELETE FROM orders")
    assert until_proved(committer.commit, committables) == [CommitOutcome.COMMITTED]
    assert target.visible() == [4, 5, 6]


def test_a_move_that_is_cut_names_the_setting(server: MariaDBServer, database: str) -> None:
    target = target_on(server, database, "staged", timeout="1s")
    committables = target.write([1])
    target.execute("CREATE TRIGGER slow BEFORE INSERT ON orders FOR EACH ROW DO SLEEP(2)")
    committer = target.committer()
    with pytest.raises(pymysql.OperationalError, match=r"of 1 rows .* 1\.0002 s; .*timeout="):
        committer.commit(committables)
    target.execute("DROP TRIGGER slow")
    assert until_proved(committer.commit, committables) == [CommitOutcome.COMMITTED]


@pytest.mark.parametrize(
    ("create", "settings", "why"),
    [
        (None, {"create_table": False},
         "does not exist; create it, .* create_table=True: CREATE TABLE .*`id` BIGINT"),
        ("(id BIGINT, text LONGTEXT) ENGINE=MyISAM", {}, "is MyISAM, and only InnoDB"),
        ("(id BIGINT) ENGINE=InnoDB", {}, "no column 'text'.* ADD COLUMN `text` LONGTEXT"),
        ("(id FLOAT, text TEXT)", {}, "float in .* would alter values"),
        ("(id BIGINT, text TEXT, more INT NOT NULL)", {}, "'more' .* is NOT NULL"),
        ("(id BIGINT, text TEXT GENERATED ALWAYS AS ('x') VIRTUAL)", {}, "is generated"),
        ("(id BIGINT, text TEXT)", {"mode": "upsert", "keys": ["id"]}, "no unique index"),
        ("(id BIGINT PRIMARY KEY, text VARCHAR(9) UNIQUE)", {"mode": "upsert", "keys": ["id"]},
         "second unique index, text"),
        ("(id BIGINT PRIMARY KEY, text TEXT, UNIQUE u (text(3)))",
         {"mode": "upsert", "keys": ["id"]}, r"second unique index, u on \(text\(3\)\)"),
        ("(id BIGINT PRIMARY KEY, text VARCHAR(9), low VARCHAR(9) AS (LOWER(text)) UNIQUE)",
         {"mode": "upsert", "keys": ["id"]}, r"second unique index, low on \(low\)"),
        ("(id BIGINT, text VARBINARY(9), UNIQUE u (text(3)))",
         {"mode": "upsert", "keys": ["text"]}, "no unique index on exactly"),
    ],
)  # fmt: skip
def test_preflight_names_what_is_wrong_with_the_table(
    mariadb: MariaDBServer, database: str, create: str | None, settings: dict[str, Any], why: str
) -> None:
    if create:
        mariadb.execute(f"CREATE TABLE t {create}", database=database)
    sink = MySQLSink(mariadb.url(database=database), "t", **settings)
    with pytest.raises(PreflightError, match=why):
        sink.create_committer(context()).preflight()


def test_preflight_of_times_that_would_be_rounded(mariadb: MariaDBServer, database: str) -> None:
    mariadb.execute("CREATE TABLE t (at DATETIME)", database=database)
    sink = MySQLSink(mariadb.url(database=database), "t")
    with pytest.raises(PreflightError, match=r"round to 0 digits .* MODIFY `at` DATETIME"):
        sink.create_committer(context(schema=(Column("at", "timestamp"),))).preflight()


def test_preflight_names_a_missing_right_and_no_secret(
    mariadb: MariaDBServer, database: str
) -> None:
    mariadb.execute("CREATE TABLE t (id BIGINT, text TEXT)", database=database)
    mariadb.execute("DROP USER IF EXISTS reader@'%'")
    mariadb.execute(f"CREATE USER reader@'%' IDENTIFIED BY '{PASSWORD}'")
    mariadb.execute(f"GRANT SELECT ON {database}.* TO reader@'%'")
    secret = mariadb.url(database=database).replace("seamark:", "reader:")
    for url, why in ((secret, "GRANT CREATE"), (secret.replace(":s3cr3t", ":wrong"), "no conn")):
        sink = MySQLSink(url, "t")
        with pytest.raises(PreflightError, match=why) as caught:
            sink.create_committer(context()).preflight()
        for text in (str(caught.value), repr(sink), sink.describe()):
            assert "s3cr3t" not in text


def test_preflight_of_a_server_that_forgets_commits(mariadb: MariaDBServer, database: str) -> None:
    target = target_on(mariadb, database)
    mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit=0")
    try:
        with pytest.raises(PreflightError, match="innodb_flush_log_at_trx_commit is 0"):
            target.committer()
    finally:
        mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit=1")


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_preflight_of_a_binary_log_that_is_not_synced(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that recovers rolls back what its binary log has not."""
    settings = {"log-bin": "binlog", "server-id": "1", "sync-binlog": "0"}
    with serving(kind, settings) as server:
        target = target_on(server, "test")
        assert "sync_binlog is 0" in caplog.text
        caplog.clear()
        server.execute("SET GLOBAL sync_binlog=1")
        target.committer()
        assert "sync_binlog" not in caplog.text


def test_a_table_that_lost_a_column_refuses_the_epoch(
    mariadb: MariaDBServer, database: str
) -> None:
    target = target_on(mariadb, database)
    target.execute("ALTER TABLE orders DROP COLUMN text")
    with pytest.raises(WriteRefusedError, match="no column 'text'"):
        target.sink.create_writer(attempt()).write(batch([1]))
