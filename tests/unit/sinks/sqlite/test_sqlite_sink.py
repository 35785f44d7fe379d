"""SQLiteSink beyond the conformance suite: types, locks, tombstones, tables of the user's own.

How: writers and committers on a real database. Other programs are other processes, but for one that
reads in the committer's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome, SinkContext, WriterContext
from seamark.model.errors import (
    CommitFailedError,
    ConfigurationError,
    PreflightError,
    WriteRefusedError,
)
from seamark.model.schema import Column
from seamark.sinks.internal.outcomes import LEDGER_EPOCHS
from seamark.sinks.internal.staged_files import StagedFile
from seamark.sinks.sqlite import SQLiteSink
from seamark.sinks.sqlite.committer import SQLiteCommitter
from seamark.verify.conformance.steps import DONE, answered

REPO = Path(__file__).parents[4]
DRIVER = SinkContext("job", "job", "out", 1, 5.0)


@pytest.fixture
def sink(tmp_path: Path) -> SQLiteSink:
    return SQLiteSink(tmp_path / "a.db", table="t")


@pytest.fixture
def committer(sink: SQLiteSink) -> SQLiteCommitter:
    made = sink.create_committer(DRIVER)
    made.preflight()
    return made


def stage(sink: SQLiteSink, data: dict[str, Any], epoch: int = 0, partition: int = 0) -> StagedFile:
    writer = sink.create_writer(WriterContext("job", "out", 1, epoch, partition, 0, epoch - 1))
    writer.write(pa.record_batch(data))
    (committable,) = writer.prepare_commit()
    return committable


def elsewhere(sink: SQLiteSink, *statements: str) -> list[Any]:
    """Run statements in another process, as another program would; return the last one's rows."""
    program = """
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for statement in sys.argv[2:]:
    rows = db.execute(statement).fetchall()
db.commit()
print(json.dumps(rows))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, sink.path, *statements],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- configuration


@pytest.mark.parametrize("path", [":memory:", "file::memory:?cache=shared", ""])
def test_a_database_in_memory_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"SQLiteSink: path.*give a file"):
        SQLiteSink(path, table="t")


@pytest.mark.parametrize("table", ["", None, 7, "a\0b", "sqlite_x", "_seamark_ledger"])
def test_table_names_that_cannot_be_are_refused(table: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"SQLiteSink /x\.db: table is"):
        SQLiteSink("/x.db", table=table)


def test_expressions(sink: SQLiteSink) -> None:
    schema = (
        Column("n", "bigint"),
        Column("price", "decimal(10,2)"),
        Column("at", "timestamp"),
        Column("window", "struct<start:timestamp,end:timestamp>"),
        Column("a`b", "array<int>"),
    )
    found = sink.select_expressions(schema)
    assert found[:3] == ["`n`", "CAST(`price` AS STRING) AS `price`", "`at`"]
    assert found[3].startswith("to_json(`window`, map('timeZone', 'UTC',")
    assert found[3].endswith(" AS `window`")
    assert found[4].startswith("to_json(`a``b`, ")
    with pytest.raises(
        ConfigurationError, match=r"SQLite table t in .*column 'd' has type interval"
    ):
        sink.select_expressions((Column("d", "interval day"),))


@pytest.mark.parametrize(
    ("place", "says"),
    [("missing/a.db", "directory .*/missing does not exist"), ("text.db", "cannot be used")],
)
def test_preflight_refuses_what_cannot_be_a_database(tmp_path: Path, place: str, says: str) -> None:
    (tmp_path / "text.db").write_text("no database\n" * 1000)
    committer = SQLiteSink(tmp_path / place, table="t").create_committer(DRIVER)
    with pytest.raises(PreflightError, match=f"sink 'out': SQLite database .*{says}"):
        committer.preflight()


def test_a_python_with_an_old_sqlite_is_refused(
    committer: SQLiteCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    with pytest.raises(PreflightError, match=r"has SQLite 3\.34\.1; take one with SQLite 3\.37"):
        committer.preflight()


# --- rows


def test_values_as_another_program_reads_them(sink: SQLiteSink, committer: SQLiteCommitter) -> None:
    instant = 1_782_921_600_123_456  # 2026-07-01T16:00:00.123456Z
    committable = stage(
        sink,
        {
            "tiny": pa.array([1, None], pa.int8()),
            "big": pa.array([2**63 - 1, -(2**63)], pa.int64()),
            "real": pa.array([1.5, float("nan")], pa.float32()),
            "flag": pa.array([True, False]),
            "text": ["a'\"\0ü🙂", ""],
            "day": pa.array([0, None], pa.date32()),
            "at": pa.array([instant, None], pa.timestamp("us", "America/New_York")),
            "local": pa.array([instant, None], pa.timestamp("us")),
            'odd "`name': ["x", None],
        },
    )
    assert committer.commit([committable]) == [CommitOutcome.COMMITTED]
    first, second = elsewhere(sink, "SELECT * FROM t")
    assert first == [1, 2**63 - 1, 1.5, 1, "a'\"\0ü🙂", "1970-01-01",
                     "2026-07-01 16:00:00.123456Z", "2026-07-01 16:00:00.123456", "x"]  # fmt: skip
    assert second == [None, -(2**63), None, 0, "", None, None, None, None]
    assert elsewhere(sink, 'SELECT "odd ""`name", typeof(flag), typeof(big) FROM t')[0] == [
        "x", "integer", "integer",
    ]  # fmt: skip
    assert elsewhere(sink, "SELECT datetime(at) FROM t")[0] == ["2026-07-01 16:00:00"]


def test_a_table_of_the_users_own_keeps_its_shape(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    elsewhere(
        sink,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, B TEXT, a INTEGER, c TEXT DEFAULT 'd')",
        "INSERT INTO t (a, B) VALUES (0, 'own')",
    )
    assert committer.commit([stage(sink, {"a": [1, 2], "b": ["x", "y"]})]) == [
        CommitOutcome.COMMITTED
    ]
    assert elsewhere(sink, "SELECT * FROM t ORDER BY id") == [
        [1, "own", 0, "d"],
        [2, "x", 1, "d"],
        [3, "y", 2, "d"],
    ]


def test_a_table_without_the_column_is_found_before_the_decision(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    elsewhere(sink, "CREATE TABLE t (a INTEGER)")
    with pytest.raises(WriteRefusedError, match=r"has no column 'b' \(it has a\).*ALTER TABLE"):
        stage(sink, {"a": [1], "b": ["x"]})
    assert list(committer.list_lingering()) == []


@pytest.mark.parametrize(
    ("kind", "spark", "fits"),
    [
        ("TEXT", "double", False), ("VARCHAR(9)", "double", False), ("TEXT", "float", True),
        *((kind, "double", True) for kind in ("REAL", "NUMERIC", "INTEGER", "BLOB", "")),
    ],
)  # fmt: skip
def test_a_text_keeps_fifteen_digits_of_a_double(
    sink: SQLiteSink, kind: str, spark: str, fits: bool
) -> None:
    elsewhere(sink, f"CREATE TABLE t (a {kind})")
    context = dataclasses.replace(DRIVER, schema=(Column("a", spark),))
    committer = sink.create_committer(context)
    if not fits:
        with pytest.raises(
            PreflightError, match=r"affinity TEXT alters .* double; declare it REAL"
        ):
            committer.preflight()
        return
    committer.preflight()
    number = 123456789.12345679 if spark == "double" else 0.1
    arrow = pa.float64() if spark == "double" else pa.float32()
    committer.commit([stage(sink, {"a": pa.array([number], arrow)})])
    ((found,),) = elsewhere(sink, "SELECT a FROM t")
    assert pa.scalar(float(found), arrow) == pa.scalar(number, arrow)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("a INTEGER", r"has no column 'b' \(it has a\).*ALTER TABLE"),
        ("a INTEGER, B TEXT, c TEXT NOT NULL", "column 'c' is NOT NULL, has no default"),
        ("id INTEGER PRIMARY KEY NOT NULL, A INTEGER, b TEXT, c TEXT NOT NULL DEFAULT 'd'", ""),
        ("a REAL, b TEXT", "column 'a' is declared REAL, .*affinity REAL.*bigint; declare it INT"),
        *(
            (f"a BIGINT, b {kind}", f"column 'b' is declared {kind}, .*string; declare it TEXT")
            for kind in ("STRING", "INTEGER", "REAL", "NUMERIC", "uuid", "CHARINT", "ANY")
        ),
        *(
            (f"a {whole}, b {kind}", "")
            for whole, kind in (
                ("NUMERIC", "VARCHAR(9)"),
                ("DECIMAL(9,2)", "clob"),
                ("DATE", "BLOB"),
                ("TEXT", ""),
            )
        ),
        ("a ANY, b ANY) STRICT --", ""),
        ("a REAL, b TEXT) STRICT --", "column 'a' is declared REAL, .*affinity REAL.*bigint"),
        ("a INT, b BLOB) STRICT --", "declared BLOB, which refuses .*string; declare it TEXT"),
        ("a BLOB, b TEXT) STRICT --", "'a' is declared BLOB, .*bigint; declare it INTEGER"),
        ("a TEXT, b TEXT) STRICT --", ""),
        ("a INTEGER, b TEXT CHECK (elsewhere(b)))--", "take no row: .* function: elsewhere"),
    ],
)
def test_preflight_finds_a_table_that_the_rows_do_not_fit(
    sink: SQLiteSink, table: str, says: str
) -> None:
    create = f"CREATE TABLE t ({table})"
    made = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); "
    made += "db.create_function('elsewhere', 1, bool); db.execute(sys.argv[2])"
    subprocess.run([sys.executable, "-c", made, sink.path, create], check=True)
    schema = (Column("a", "bigint"), Column("b", "string"))
    committer = sink.create_committer(dataclasses.replace(DRIVER, schema=schema))
    if not says:
        committer.preflight()
        return
    with pytest.raises(PreflightError, match=f"sink 'out': SQLite table t in .*{says}"):
        committer.preflight()
    # Nothing was written.
    assert elsewhere(sink, "SELECT name FROM sqlite_master") == [["t"]]


def test_a_view_is_refused(sink: SQLiteSink) -> None:
    elsewhere(sink, "CREATE TABLE r (a INTEGER)", "CREATE VIEW t AS SELECT a FROM r")
    schema = (Column("a", "bigint"),)
    committer = sink.create_committer(dataclasses.replace(DRIVER, schema=schema))
    with pytest.raises(PreflightError, match=r"SQLite table t in .* is a view; give the table"):
        committer.preflight()


@pytest.mark.parametrize("kind", ["rtree(id, low, high)", "fts5(a)"])
def test_a_virtual_table_is_refused(sink: SQLiteSink, kind: str) -> None:
    """An R-tree keeps 32 bits of a double."""
    elsewhere(sink, f"CREATE VIRTUAL TABLE t USING {kind}")
    schema = tuple(Column(name, "double") for name in ("id", "low", "high"))
    committer = sink.create_committer(dataclasses.replace(DRIVER, schema=schema))
    with pytest.raises(PreflightError, match=r"SQLite table t in .* is a virtual table; give"):
        committer.preflight()


@pytest.mark.parametrize("kind", ["date", "timestamp", "binary", "array<int>", "double"])
@pytest.mark.parametrize("table", ["(a INTEGER) STRICT", "(a INTEGER PRIMARY KEY, b)"])
def test_a_column_that_would_refuse_every_value_is_found_at_the_start(
    sink: SQLiteSink, table: str, kind: str
) -> None:
    elsewhere(sink, f"CREATE TABLE t {table}")
    schema = (Column("a", kind),)
    committer = sink.create_committer(dataclasses.replace(DRIVER, schema=schema))
    with pytest.raises(PreflightError, match="declared INTEGER, which refuses the"):
        committer.preflight()


@pytest.mark.parametrize("said", ["the door is locked", "database is locked", "disk is full"])
def test_a_trigger_that_refuses_a_row_is_no_lock(
    sink: SQLiteSink, committer: SQLiteCommitter, said: str
) -> None:
    """Else the commit would be asked again, to its end."""
    elsewhere(
        sink,
        "CREATE TABLE t (a INTEGER)",
        f"CREATE TRIGGER no BEFORE INSERT ON t BEGIN SELECT RAISE(ABORT, '{said}'); END",
    )
    with pytest.raises(CommitFailedError, match=said):
        committer.commit([stage(sink, {"a": [1]})])


def test_a_strict_table_refuses_a_value_of_another_type_in_one_line(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    elsewhere(sink, "CREATE TABLE t (a INTEGER) STRICT")
    with pytest.raises(CommitFailedError, match="cannot store REAL value in INTEGER column") as why:
        committer.commit([stage(sink, {"a": [1.5]})])
    assert "\n" not in str(why.value).strip()


def test_rows_that_the_table_refuses_stop_the_job_and_none_is_visible(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    elsewhere(sink, "CREATE TABLE t (a INTEGER UNIQUE)")
    parts = [stage(sink, {"a": [1, 2]}, partition=0), stage(sink, {"a": [2, 3]}, partition=1)]
    with pytest.raises(CommitFailedError, match=r"table t.*epoch 0.*UNIQUE constraint failed"):
        committer.commit(parts)
    assert elsewhere(sink, "SELECT * FROM t") == []
    elsewhere(sink, "DROP TABLE t")
    assert committer.commit(parts) == [CommitOutcome.COMMITTED] * 2
    assert sorted(elsewhere(sink, "SELECT a FROM t")) == [[1], [2], [2], [3]]


def test_two_sinks_share_a_database(tmp_path: Path) -> None:
    for uid, table in (("one", "t1"), ("two", "t2")):
        sink = SQLiteSink(tmp_path / "a.db", table=table)
        context = SinkContext("job", "job", uid, 1, 5.0)
        committer = sink.create_committer(context)
        committer.preflight()
        writer = sink.create_writer(WriterContext("job", uid, 1, 0, 0, 0, -1))
        writer.write(pa.record_batch({"uid": [uid]}))
        committables = writer.prepare_commit()
        assert [f.committable.handle for f in committer.list_lingering()] == [
            c.handle for c in committables
        ]
        committer.commit(committables)
        assert elsewhere(sink, f"SELECT * FROM {table}") == [[uid]]


# --- locks


def test_a_locked_database_answers_retry_within_seconds(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    lost, kept = stage(sink, {"a": [1]}), stage(sink, {"a": [2]}, partition=1)
    program = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, sink.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        started = time.monotonic()
        assert answered(committer.commit, [kept], CommitOutcome.RETRY) == [CommitOutcome.RETRY]
        assert answered(committer.abort, [lost], AbortOutcome.RETRY) == [AbortOutcome.RETRY]
        assert len(list(committer.list_lingering())) == 2  # reading goes on
        assert time.monotonic() - started < 60
        other.communicate(b"\n", timeout=300)
    assert committer.commit([kept]) == [CommitOutcome.COMMITTED]
    assert committer.abort([lost]) == [AbortOutcome.ABORTED]
    assert elsewhere(sink, "SELECT * FROM t") == [[2]]


def test_a_reader_in_the_middle_of_reading_does_not_stop_a_commit(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    committer.commit([stage(sink, {"a": [1]})])
    program = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN")
print(db.execute("SELECT count(*) FROM t").fetchone()[0], flush=True)
sys.stdin.readline()
print(db.execute("SELECT count(*) FROM t").fetchone()[0], flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, sink.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"1\n"
        assert committer.commit([stage(sink, {"a": [2]}, epoch=1)]) == [CommitOutcome.COMMITTED]
        assert reader.communicate(b"\n", timeout=300)[0] == b"1\n"
    assert elsewhere(sink, "SELECT count(*) FROM t") == [[2]]


def test_a_program_reads_its_table_in_the_committers_own_process(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    """As in a notebook. Each close drops the process's POSIX locks, if another copy of SQLite does
    not know of it: readers found "disk image is malformed", commits "disk I/O error"."""
    committer.commit([stage(sink, {"a": [0]})])
    ended = threading.Event()

    def read() -> int:
        reads = 0
        while not ended.is_set():
            with contextlib.closing(sqlite3.connect(sink.path, timeout=60)) as connection:
                found = connection.execute("SELECT count(*), count(DISTINCT a) FROM t").fetchone()
            assert found[0] == found[1]
            reads += 1
        return reads

    with ThreadPoolExecutor(2) as readers:
        asked = [readers.submit(read) for _ in range(2)]
        try:
            for epoch in range(1, 200):
                committable = stage(sink, {"a": [epoch]}, epoch)
                assert committer.commit([committable]) == [CommitOutcome.COMMITTED]
                committer.preflight()
        finally:
            ended.set()
        assert all(reads.result() > 10 for reads in asked)
    assert elsewhere(sink, "SELECT count(*), sum(a) FROM t") == [[200, sum(range(200))]]
    assert elsewhere(sink, "PRAGMA integrity_check") == [["ok"]]


# --- staged files and the ledger


def staged(sink: SQLiteSink, committable: StagedFile) -> Path:
    return sink.staging_root / committable.handle


def test_a_tombstone_refuses_a_commit_even_if_the_rows_are_still_there(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    committable = stage(sink, {"a": [1]})
    data = staged(sink, committable).read_bytes()
    assert committer.abort([committable]) == [AbortOutcome.ABORTED]
    staged(sink, committable).write_bytes(data)  # as after a deletion undone by a power failure
    assert committer.commit([committable]) == [CommitOutcome.LOST]
    assert list(committer.list_lingering()) == []
    assert not staged(sink, committable).exists()


def test_files_of_ended_transactions_are_cleaned_up_and_not_listed(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    committable = stage(sink, {"a": [1]})
    data = staged(sink, committable).read_bytes()
    committer.commit([committable])
    staged(sink, committable).write_bytes(data)  # as after a crash between commit and deletion
    assert list(committer.list_lingering()) == []
    assert not staged(sink, committable).exists()
    assert elsewhere(sink, "SELECT * FROM t") == [[1]]


def test_no_staged_file_outlives_its_end(sink: SQLiteSink, committer: SQLiteCommitter) -> None:
    kept, dropped = stage(sink, {"a": [1]}), stage(sink, {"a": [2]}, partition=1)
    committer.commit([kept])
    committer.abort([dropped])
    assert [p for p in sink.staging_root.rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("damage", ["missing", "torn", "empty", "another"])
def test_rows_that_are_gone_are_lost_and_the_others_still_visible(
    sink: SQLiteSink, committer: SQLiteCommitter, damage: str
) -> None:
    bad, good = stage(sink, {"a": [1, 2]}), stage(sink, {"a": [3]}, partition=1)
    path = staged(sink, bad)
    if damage == "missing":
        path.unlink()
    else:
        whole = path.read_bytes()
        other = staged(sink, good).read_bytes()
        path.write_bytes({"torn": whole[:-9], "empty": b"", "another": other}[damage])
    assert committer.commit([bad, good]) == [CommitOutcome.LOST, CommitOutcome.COMMITTED]
    assert elsewhere(sink, "SELECT * FROM t") == [[3]]
    assert committer.commit([bad, good]) == [CommitOutcome.LOST, CommitOutcome.ALREADY_COMMITTED]


def test_the_ledger_forgets_epochs_that_are_long_settled(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    parts = [stage(sink, {"a": [epoch]}, epoch=epoch) for epoch in (0, 1, 500)]
    committer.commit(parts)
    committer.commit([stage(sink, {"a": [9]}, epoch=LEDGER_EPOCHS + 1)])
    ledger = elsewhere(sink, "SELECT epoch, rows, outcome FROM _seamark_ledger ORDER BY epoch")
    assert ledger == [[1, 1, "committed"], [500, 1, "committed"], [1001, 1, "committed"]]
    assert committer.commit(parts[1:]) == [CommitOutcome.ALREADY_COMMITTED] * 2


def test_a_commit_killed_at_any_moment_is_ended_by_the_next(
    sink: SQLiteSink, committer: SQLiteCommitter
) -> None:
    # 60,000 rows take some 100 ms to insert; the child says when it starts.
    program = """
import pickle, sys
sink, context, committables = pickle.load(sys.stdin.buffer)
committer = sink.create_committer(context)
committer.list_lingering()
print("start", flush=True)
committer.commit(committables)
print("done", flush=True)
"""
    moments = random.Random(11)
    expected, cut = 0, 0
    for epoch in range(8):
        rows = {"a": list(range(20_000)), "s": ["x" * 80] * 20_000}
        parts = [stage(sink, rows, epoch=epoch, partition=p) for p in range(3)]
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPO,
        ) as child:  # fmt: skip
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(pickle.dumps((sink, DRIVER, parts)))
            child.stdin.close()
            assert child.stdout.readline() == b"start\n"
            time.sleep(moments.uniform(0, 0.15))
            child.send_signal(signal.SIGKILL)
            cut += child.stdout.read() == b""
        assert set(committer.commit(parts)) <= DONE
        expected += 60_000
        assert elsewhere(sink, "SELECT count(*) FROM t") == [[expected]]
    assert cut > 0, "every child ended before it was killed: shorten the pauses"
    assert list(committer.list_lingering()) == []
    assert elsewhere(sink, "PRAGMA integrity_check") == [["ok"]]
