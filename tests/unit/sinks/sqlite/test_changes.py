"""SQLiteSink with keys and op: `tests/changes_suite.py`, tables of every kind, wrong settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seamark as sm
from seamark.contracts.read_back import ReadBack
from seamark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from seamark.model.errors import (
    CommitFailedError,
    ConfigurationError,
    PreflightError,
    WriteRefusedError,
)
from seamark.model.schema import Column
from seamark.sinks.sqlite import SQLiteSink, database, merging
from seamark.verify.conformance.steps import attempt
from tests.changes_suite import SCHEMA, ChangesSuite, ChangesUnderTest, commit, driver, write


def sql(sink: SQLiteSink, statement: str) -> list[Any]:
    with database.connect(sink.path) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if statement.startswith("SELECT") else []


class TestSQLite(ChangesSuite):
    @pytest.fixture(params=["id INTEGER PRIMARY KEY,", "id TEXT UNIQUE,", "id INT PRIMARY KEY,"])
    def under(self, request: pytest.FixtureRequest, tmp_path: Path) -> ChangesUnderTest:
        sink = SQLiteSink(tmp_path / "a.db", "orders", keys=["id"], op="op")
        text = "text TEXT CONSTRAINT text NOT NULL"
        sql(sink, f"CREATE TABLE orders ({request.param} {text}, note TEXT DEFAULT 'new')")
        return ChangesUnderTest(
            sink,
            lambda: {int(k): (t, n) for k, t, n in sql(sink, "SELECT id, text, note FROM orders")},
            lambda: sql(sink, "UPDATE orders SET note = 'seen'") is not None,
            "new",
        )

    def test_a_null_that_the_table_refuses(self, under: ChangesUnderTest) -> None:
        """A table's own constraints are met at the commit; see `test_dead_letters`."""


def test_a_missing_table_gets_its_key(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "a.db", "orders", keys=["id", "text"], op="op")
    committer = sink.create_committer(driver())
    committer.preflight()
    rows = [(1, "a", "insert"), (1, "b", "insert"), (1, "a", "update"), (1, "b", "delete")]
    commit(sink, write(sink, rows, 0))
    assert sql(sink, "SELECT id, text FROM orders") == [(1, "a")]
    committer.preflight()


ARROW = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(),
    "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "binary": pa.binary(),
    "string": pa.string(), "decimal(38,2)": pa.decimal128(38, 2), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    "array<int>": pa.list_(pa.int32()), "struct<a:int>": pa.struct({"a": pa.int32()}),
}  # fmt: skip


def test_a_start_makes_the_table_that_the_first_rows_would_make(tmp_path: Path) -> None:
    """By the schema, and by rows alone: without a schema no table is made at the start."""
    made = {}
    for name in ("start", "rows"):
        sink = SQLiteSink(tmp_path / f"{name}.db", "t", keys=["int"], op="op")
        schema = tuple(Column(kind, kind) for kind in [*ARROW, "interval day to second"])
        schema = (*schema, Column("op", "string")) if name == "start" else ()
        sink.create_committer(SinkContext("job", "job", "out", 1, 5.0, schema)).preflight()
        find = "SELECT sql FROM sqlite_master WHERE name = 't'"
        assert bool(sql(sink, find)) == (name == "start")
        if name == "rows":
            fields = {**ARROW, "interval day to second": pa.duration("us"), "op": pa.string()}
            rows = pa.RecordBatch.from_pylist([], pa.schema(fields))
            staged = pa.Table.from_batches([merging.described(rows, sink.target)])
            with database.transaction(sink.path) as cursor:
                merging.move(cursor, sink.target, staged)
        made[name] = sql(sink, find)
    assert made["start"] == made["rows"]


def test_rows_replace_without_op(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "a.db", "orders", keys=["id"])
    sink.create_committer(SinkContext("job", "job", "out", 1, 5.0, SCHEMA[:2])).preflight()
    for epoch in (0, 1):
        writer = sink.create_writer(WriterContext("job", "out", 1, epoch, 0, 0, epoch - 1))
        for text in ("a", "b"):
            writer.write(pa.record_batch({"id": [1, 2, epoch], "text": [f"{text}{epoch}"] * 3}))
        commit(sink, list(writer.prepare_commit()))
    assert sorted(sql(sink, "SELECT * FROM orders")) == [(0, "b0"), (1, "b1"), (2, "b1")]


def test_of_rows_of_one_key_the_last_wins(tmp_path: Path) -> None:
    """Within a batch, over the batches of a task, and over the tasks of a commit."""
    sink = SQLiteSink(tmp_path / "a.db", "orders", keys=["id"])
    committer = sink.create_committer(driver())
    committer.preflight()
    staged = list[Any]()
    for part in range(3):
        writer = sink.create_writer(attempt(partition=part))
        for ids, text in (([1, 2, 1], "a"), ([2], "b"), ([3, 1], "c")):
            texts = [f"{text}{part} {number}" for number in range(len(ids))]
            writer.write(pa.record_batch({"id": ids, "text": texts}))
        staged += writer.prepare_commit()
    assert set(committer.commit(staged)) == {CommitOutcome.COMMITTED}
    found = sql(sink, "SELECT id, text FROM orders ORDER BY id")
    assert found == [(1, "c2 1"), (2, "b2 0"), (3, "c2 0")]


def test_rows_staged_with_op_move_as_such_after_the_setting_has_gone(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "a.db", "orders", keys=["id"], op="op")
    sink.create_committer(driver()).preflight()
    staged = write(sink, [(1, "a", "insert"), (2, "b", "insert"), (1, None, "delete")], 0)
    commit(SQLiteSink(tmp_path / "a.db", "orders"), staged)
    assert sql(sink, "SELECT * FROM orders") == [(2, "b")]


@pytest.mark.parametrize(
    "table",
    [
        "id INTEGER, text TEXT",
        "id TEXT COLLATE NOCASE PRIMARY KEY, text TEXT",
        "id INTEGER, text TEXT, PRIMARY KEY (id, text)",
        "id INTEGER, text TEXT); CREATE UNIQUE INDEX i ON orders (id, lower(text)",
        "id INTEGER, text TEXT); CREATE UNIQUE INDEX i ON orders (id) WHERE (id > 0",
    ],
)
def test_a_table_without_the_key(tmp_path: Path, table: str) -> None:
    sink = SQLiteSink(tmp_path / "a.db", "orders", keys=["id"], op="op")
    with database.connect(sink.path) as cursor:
        cursor.executescript(f"CREATE TABLE orders ({table})")
    with pytest.raises(PreflightError, match=r'CREATE UNIQUE INDEX "orders_by_key" ON "orders"'):
        sink.create_committer(driver()).preflight()


def test_a_second_index_that_takes_two_keys_for_one(tmp_path: Path) -> None:
    """ON CONFLICT goes by it too: `A` would replace `a`."""
    sink = SQLiteSink(tmp_path / "a.db", "orders", keys=["text"], op="op")
    sql(sink, "CREATE TABLE orders (id INTEGER, text TEXT PRIMARY KEY)")
    sink.create_committer(driver()).preflight()
    staged = write(sink, [(1, "a", "insert"), (2, "A", "insert")], 0)
    sql(sink, "CREATE UNIQUE INDEX second ON orders (text COLLATE NOCASE)")
    with pytest.raises(PreflightError, match="or has a second index on them that does not"):
        sink.create_committer(driver()).preflight()
    with pytest.raises(CommitFailedError, match="or has a second index on them that does not"):
        commit(sink, staged)
    sql(sink, "DROP INDEX second")
    commit(sink, staged)
    assert sql(sink, "SELECT * FROM orders ORDER BY id") == [(1, "a"), (2, "A")]


def test_a_text_that_is_not_utf8_has_no_place_in_utf16(tmp_path: Path) -> None:
    """SQLite would put U+FFFD into it, and cut others of its column at NUL."""
    sink = SQLiteSink(tmp_path / "a.db", "orders")
    with database.connect(sink.path) as cursor:
        cursor.executescript("PRAGMA encoding = 'UTF-16le'; CREATE TABLE orders (text TEXT)")
    texts = pa.array([b"z\0z", b"a\xffb"], pa.binary()).view(pa.string())
    rows = pa.record_batch({"text": texts})
    sink.create_committer(SinkContext("job", "job", "out", 1, 5.0)).preflight()
    attempt = WriterContext("job", "out", 1, 0, 0, 0, -1)
    with pytest.raises(WriteRefusedError, match="'text' has a text that the database would alter"):
        sink.create_writer(attempt).write(rows)
    writer = sink.create_selective_writer(attempt)
    assert [row.index for row in writer.write_accepted(rows)] == [1]
    commit(sink, list(writer.prepare_commit()))
    assert sql(sink, "SELECT * FROM orders") == [("z\0z",)]


def test_a_mode_left_out_follows_from_the_keys(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "a.db", "orders")
    assert "mode" not in sm.sink_options(sink)
    assert replace(sink, keys=["id"]).output_modes == ("append", "update", "complete")
    assert sm.sink_options(replace(sink, keys=["id"])).keys() == {"sink", "path", "table", "keys"}


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"op": "op"}, r"op is 'op', and there is no key.*give mode='upsert' and keys="),
        ({"keys": ["id"], "op": ""}, "op is ''; give the name"),
        ({"keys": ["id"], "op": 3}, "op is 3; give the name"),
        ({"keys": ["id"], "op": "ID"}, "op is 'ID', which is a key column"),
        ({"keys": ["id", "Id"]}, "twice"),
        ({"keys": "id"}, "keys is 'id'; give a list"),
        ({"mode": "upsert"}, r"mode is 'upsert' and keys is \(\); mode='upsert' needs the key"),
        ({"mode": "append", "keys": ["id"]}, "mode is 'append' and keys is .'id'"),
        ({"mode": "merge", "keys": ["id"]}, "mode is 'merge'; allowed are 'append', 'upsert'"),
        ({"create_table": "no"}, "create_table is 'no'"),
    ],
)
def test_wrong_settings(tmp_path: Path, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        SQLiteSink(tmp_path / "a.db", "orders", **settings)


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        (SCHEMA[:2], "the op column 'op' is not in the DataFrame, which has id, text"),
        ((*SCHEMA[:2], Column("op", "int")), "the op column 'op' has type int; give a string"),
        (SCHEMA[1:], "the key column 'id' is not in the DataFrame"),
    ],
)
def test_wrong_columns(tmp_path: Path, schema: tuple[Column, ...], match: str) -> None:
    sink = SQLiteSink(tmp_path / "a.db", "orders", keys=["id"], op="op")
    with pytest.raises(ConfigurationError, match=match):
        sink.select_expressions(schema)


NAMES = ["rowid", "ROWID", "oid", "_rowid_", "excluded", "c0", "c1", "v0", "n0", "place", "epoch",
         "s0", "select", 'a"b', "%s", "?", ":x", "", " a ", "x" * 200]  # fmt: skip
TABLES = ["", "id INTEGER PRIMARY KEY, {} ", "id INT, {}, UNIQUE (id)",
          "id INTEGER PRIMARY KEY, {}) WITHOUT ROWID --"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "made"),
    [(n, t) for i, n in enumerate(NAMES) for t in (TABLES if n == "rowid" else [TABLES[i % 4]])],
)
@pytest.mark.parametrize("op", ["op", None])
def test_names_that_mean_something_to_sqlite(
    tmp_path: Path, name: str, made: str, op: str | None
) -> None:
    """A user's `rowid` hides the number by which a stage's rows are in order."""
    sink = SQLiteSink(tmp_path / "a.db", "excluded", keys=["id"], op=op)
    if made:
        sql(sink, f"CREATE TABLE excluded ({made.format(database.quoted(name))})")
    schema = tuple(Column(n, t) for n, t in (("id", "bigint"), (name, "bigint"), ("op", "string")))
    schema = schema if op else schema[:2]
    context = SinkContext("job", "job", "out", 1, 5.0, schema)
    sink.create_committer(context).preflight()
    rows = [(1, 9, "insert"), (1, 5, "insert"), (2, None, "insert"), (3, 5, "insert"),
            (4, 1, "insert"), (4, 0, "delete" if op else "update")]  # fmt: skip
    ids, values, ops = zip(*rows, strict=True)
    batch = pa.record_batch([pa.array(v) for v in (ids, values, ops)], ["id", name, "op"])
    writer = sink.create_writer(WriterContext("job", "out", 1, 0, 0, 0, -1))
    writer.write(batch if op else batch.drop_columns(["op"]))
    commit(sink, list(writer.prepare_commit()))
    right = [(1, 5), (2, None), (3, 5), *([] if op else [(4, 0)])]
    assert sorted(sql(sink, "SELECT * FROM excluded")) == right
    asked = ReadBack(context, pa.schema([("id", pa.int64()), (name, pa.int64())]), ())
    found = [row for part in sink.read_back(asked) for row in part.rows.to_pylist()]
    assert sorted(found, key=lambda row: row["id"]) == [{"id": i, name: v} for i, v in right]


def test_nan_is_no_key(tmp_path: Path) -> None:
    """It becomes NULL, and no NULL is the same key as another."""
    sink = SQLiteSink(tmp_path / "a.db", "t", keys=["d"])
    rows = pa.record_batch({"d": [float("nan"), 1.5], "v": [float("nan")] * 2})
    sink.create_committer(SinkContext("job", "job", "out", 1, 5.0)).preflight()
    attempt = WriterContext("job", "out", 1, 0, 0, 0, -1)
    with pytest.raises(WriteRefusedError, match="its key column 'd' is null"):
        sink.create_writer(attempt).write(rows)
    (refused,) = sink.create_selective_writer(attempt).write_accepted(rows)
    assert refused.index == 0


def test_a_delete_compares_every_byte_as_the_index_does(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "a.db", "t", keys=["id"], op="op")
    sql(sink, "CREATE TABLE t (id TEXT COLLATE NOCASE, text TEXT)")
    sql(sink, "CREATE UNIQUE INDEX by_id ON t (id COLLATE BINARY)")
    schema = tuple(Column(name, "string") for name in ("id", "text", "op"))
    sink.create_committer(SinkContext("job", "job", "out", 1, 5.0, schema)).preflight()
    for epoch, ops in enumerate((["insert", "insert"], ["insert", "delete"])):
        writer = sink.create_writer(WriterContext("job", "out", 1, epoch, 0, 0, epoch - 1))
        writer.write(pa.record_batch({"id": ["B", f"{'aA'[epoch]}"], "text": ["", ""], "op": ops}))
        commit(sink, list(writer.prepare_commit()))
    assert sorted(sql(sink, "SELECT id FROM t")) == [("B",), ("a",)]


def test_a_key_that_nothing_fills_must_be_given(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "a.db", "t")
    sql(sink, "CREATE TABLE t (id INTEGER PRIMARY KEY, text) WITHOUT ROWID")
    context = SinkContext("job", "job", "out", 1, 5.0, (Column("text", "string"),))
    with pytest.raises(PreflightError, match="column 'id' is NOT NULL, has no default"):
        sink.create_committer(context).preflight()
