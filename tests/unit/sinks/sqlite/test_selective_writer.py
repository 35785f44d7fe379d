"""How: a real database with constraints on its table, written to through the sink alone."""

from __future__ import annotations

import dataclasses
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import CommitFailedError, WriteRefusedError
from seamark.sinks.sqlite import SQLiteSink, database
from seamark.verify.conformance.steps import attempt, driver


def sink_on(path: Path, *statements: str) -> SQLiteSink:
    connection = sqlite3.connect(path / "target.db")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    sink = SQLiteSink(path / "target.db", "Orders")
    sink.create_committer(driver()).preflight()
    return sink


def rows(ids: list[int | None], texts: list[str] | None = None) -> pa.RecordBatch:
    texts = texts or [str(number) for number in ids]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "text": pa.array(texts)})


def refused(writer: Any, batch: pa.RecordBatch) -> dict[int, str]:
    return {row.index: row.reason for row in writer.write_accepted(batch)}


def committed(sink: SQLiteSink, writer: Any) -> list[Any]:
    """Commit, and return another program's view."""
    outcomes = sink.create_committer(driver()).commit(writer.prepare_commit())
    assert set(outcomes) == {CommitOutcome.COMMITTED}
    code = f"import sqlite3; print(sqlite3.connect({sink.path!r})"
    code += ".execute('SELECT id, text FROM orders').fetchall())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return eval(found.stdout)


def test_a_key_is_used_once_in_an_attempt(tmp_path: Path) -> None:
    sink = sink_on(
        tmp_path,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, text TEXT)",
        "CREATE UNIQUE INDEX by_text ON orders (text)",
    )
    writer = sink.create_selective_writer(attempt())
    assert refused(writer, rows([1, 2, 1])) == {2: "UNIQUE constraint failed: orders.id"}
    assert refused(writer, rows([3, 4], ["2", "4"])) == {0: "UNIQUE constraint failed: orders.text"}
    assert committed(sink, writer) == [(1, "1"), (2, "2"), (4, "4")]


@pytest.mark.parametrize(
    "columns",
    [
        "text TEXT CHECK (text ->> '$.a' IS NOT NULL)",
        "text TEXT, a AS (text ->> '$.a') STORED",
        "text TEXT); CREATE INDEX i ON orders (id, text ->> '$.a'",
        "text TEXT); CREATE INDEX i ON orders (id) WHERE (text ->> '$.a' > 0",
    ],
)
def test_a_row_at_which_a_function_of_the_table_fails_is_refused(
    tmp_path: Path, columns: str
) -> None:
    """Its error is none of a constraint's."""
    sink = sink_on(tmp_path, *f"CREATE TABLE orders (id INTEGER, {columns})".split(";"))
    writer = sink.create_selective_writer(attempt())
    assert refused(writer, rows([1, 2], ['{"a": 1}', "no JSON"])) == {1: "malformed JSON"}
    assert committed(sink, writer) == [(1, '{"a": 1}')]


def test_a_constraint_that_ends_transactions_refuses_its_row_alone(tmp_path: Path) -> None:
    sink = sink_on(
        tmp_path, "CREATE TABLE orders (id INTEGER UNIQUE ON CONFLICT ROLLBACK, text TEXT)"
    )
    writer = sink.create_selective_writer(attempt())
    assert refused(writer, rows([1, 1, 2])) == {1: "UNIQUE constraint failed: orders.id"}
    assert refused(writer, rows([2, 3])) == {0: "UNIQUE constraint failed: orders.id"}
    assert committed(sink, writer) == [(1, "1"), (2, "2"), (3, "3")]


def test_two_zeros_are_one_key(tmp_path: Path) -> None:
    sink = sink_on(tmp_path, "CREATE TABLE orders (id REAL PRIMARY KEY, text TEXT)")
    sink = dataclasses.replace(sink, keys=["id"])
    writer = sink.create_selective_writer(attempt())
    batch = pa.record_batch({"id": [0.0, -0.0, 1.5], "text": ["a", "b", "c"]})
    assert refused(writer, batch) == {}
    assert committed(sink, writer) == [(0.0, "b"), (1.5, "c")]


def test_a_key_that_is_in_the_table_still_stops_the_commit(tmp_path: Path) -> None:
    """The documented limit: the owner of each key is known after the decision only."""
    sink = sink_on(
        tmp_path,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, text TEXT)",
        "INSERT INTO orders VALUES (1, 'was here')",
    )
    writer = sink.create_selective_writer(attempt())
    assert refused(writer, rows([1])) == {}
    with pytest.raises(CommitFailedError, match=r"UNIQUE constraint failed: orders\.id"):
        sink.create_committer(driver()).commit(writer.prepare_commit())


@pytest.mark.parametrize("statements", [(), ("CREATE TABLE orders (id INTEGER, text TEXT)",)])
def test_a_table_without_constraints_is_not_copied(
    statements: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_on(tmp_path, *statements)
    monkeypatch.setattr(database, "open_scratch", lambda: pytest.fail("copied"))
    writer = sink.create_selective_writer(attempt())
    assert refused(writer, rows([1, None], ["a", "b"])) == {}
    assert committed(sink, writer) == [(1, "a"), (None, "b")]


def test_a_database_of_utf16_keeps_texts_or_refuses_them(tmp_path: Path) -> None:
    """SQLite would cut a byte off every text beside one that is not UTF-8, and replace letters."""
    sink = sink_on(tmp_path, "PRAGMA encoding='UTF-16le'", "CREATE TABLE orders (id, text TEXT)")
    texts = pa.array([b"odd", b"\xff", "\ufffe".encode(), "\U0001f600\ufeff".encode()]).view(
        pa.string()
    )
    batch = pa.record_batch({"id": pa.array(range(4)), "text": texts})
    writer = sink.create_selective_writer(attempt())
    why = "its column 'text' has a text that the database would alter, as it keeps UTF-16le"
    assert refused(writer, batch) == dict.fromkeys((1, 2), why)
    assert committed(sink, writer) == [(0, "odd"), (3, "\U0001f600\ufeff")]
    with pytest.raises(WriteRefusedError, match="would alter"):
        sink.create_writer(attempt(1)).write(batch)


def test_a_text_beside_one_that_is_not_utf8_stays_a_text(tmp_path: Path) -> None:
    sink = sink_on(tmp_path, "CREATE TABLE orders (id, text TEXT)")
    texts = pa.array([b"one", b"\xff", None], pa.binary()).view(pa.string())
    writer = sink.create_selective_writer(attempt())
    assert not refused(writer, pa.record_batch({"id": pa.array(range(3)), "text": texts}))
    sink.create_committer(driver()).commit(writer.prepare_commit())
    found = sqlite3.connect(sink.path).execute("SELECT hex(text), typeof(text) FROM orders")
    assert found.fetchall() == [("6F6E65", "text"), ("FF", "text"), ("", "null")]
