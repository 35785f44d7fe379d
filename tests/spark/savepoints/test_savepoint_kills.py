"""Savepoints of killed drivers: while a sink cannot commit, and while one is written.

How: a driver writes datagen's rows into a SQLite database and into files. The test locks the
database, so an epoch is decided and not committed; takes a savepoint, and kills the driver. The
restored job commits the savepoint's transactions: in the end every row is in each sink once.
Another driver kills itself when all of a savepoint but its last file is written.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.driver import Driver, wait_until
from tests.spark.savepoints.test_savepoint_verbs import home, seamark, start, started  # noqa: F401

PROGRAM = """
import json, sys
import seamark as sm

options = json.loads(sys.argv[1])
name = options["name"]
job = sm.Job(name, sm.CheckpointConfig(storage="store", interval="300ms"))
rows = job.source(sm.DatagenSource(rows_per_second=100), uid="rows").select("row")
if options.get("database", True):
    job.sink(rows, sm.SQLiteSink("rows.db", "rows"), uid="database")
job.sink(rows, sm.FileSink("out", format="json"), uid="files")
if __name__ == "__main__":
    job.run()
"""


def in_files(home: Path) -> list[int]:  # noqa: F811
    return sorted(
        json.loads(line)["row"]
        for path in (home / "out").glob("*.json")
        for line in path.read_text().splitlines()
    )


def in_database(home: Path) -> list[int]:  # noqa: F811
    with sqlite3.connect(home / "rows.db") as database:
        return sorted(row for (row,) in database.execute("SELECT row FROM rows"))


def make(home: Path) -> None:  # noqa: F811
    """The program, and its table."""
    (home / "app.py").write_text(PROGRAM)
    with sqlite3.connect(home / "rows.db") as database:
        database.execute("CREATE TABLE rows (row INTEGER)")


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:  # noqa: F811
    """Rows have been written; meanwhile the database takes no more commits."""
    wait_until("rows", lambda: in_files(home), 120)
    database = sqlite3.connect(home / "rows.db", isolation_level=None, timeout=60)
    database.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        database.execute("ROLLBACK")
        database.close()


def take(home: Path) -> str:  # noqa: F811
    """The path of a native savepoint of the job `first`."""
    taken = seamark(home, "savepoint", "first", "savepoints", "--type", "native")
    return taken.split("Path: ")[1].strip()


@pytest.mark.chaos
def test_decided_transactions_travel_in_the_savepoint(
    home: Path,  # noqa: F811
    started: list[Driver],  # noqa: F811
) -> None:
    make(home)
    first = start(home, started, "first")
    with locked(home):
        path = take(home)
        first.kill_tree()
    sinks = json.loads(seamark(home, "savepoint", "inspect", path, "--json"))["sinks"]
    assert [(s["uid"], s["type"]) for s in sinks] == [
        ("database", "SQLiteSink"), ("files", "FileSink"),
    ]  # fmt: skip
    assert sinks[0]["committables"] > 0 and sinks[0]["rows"] > 0
    before = in_database(home)

    restore = {"SEAMARK_RESTORE": path}
    less = {"name": "less", "database": False}
    refused = Driver(home / "app.py", less, home / "less.log", environment=restore)
    assert refused.wait(240) != 0
    assert "sink 'database' (" in refused.tail() and "transactions to commit" in refused.tail()
    assert not (home / "store" / "less").exists()

    # Killed while it restores, and done again.
    log = home / "killed.log"
    Driver(home / "app.py", {"name": "second"}, log, "restore-copied", environment=restore).die()
    second = start(home, started, "second", **restore)
    wait_until("later rows", lambda: len(in_database(home)) > len(before) + sinks[0]["rows"], 120)
    seamark(home, "stop", "second")
    assert second.wait(60) == 0, second.tail()
    written = in_database(home)
    assert written == list(range(len(written))), "a row is lost or doubled"
    assert in_files(home) == written


@pytest.mark.chaos
def test_of_a_savepoint_that_is_older_than_the_ledger_nobody_claims_that_rows_are_lost(
    home: Path,  # noqa: F811
    started: list[Driver],  # noqa: F811
) -> None:
    """The job has committed the savepoint's transactions, gone on for long, and is deleted."""
    make(home)
    first = start(home, started, "first")
    with locked(home):
        path = take(home)
    seamark(home, "stop", "first")
    assert first.wait(60) == 0, first.tail()
    with sqlite3.connect(home / "rows.db") as database:  # as 5,000 epochs later
        database.execute(
            "INSERT INTO _seamark_ledger SELECT 'late', job_id, sink_uid, generation, "
            "max(epoch) + 5000, 1, 'committed' FROM _seamark_ledger"
        )
        database.execute("DELETE FROM _seamark_ledger WHERE handle != 'late'")
    shutil.rmtree(home / "store" / "first")
    before = in_database(home)

    second = Driver(
        home / "app.py", {"name": "second"}, home / "second.log",
        environment={"SEAMARK_RESTORE": path},
    )  # fmt: skip
    started.append(second)
    assert second.wait(240) != 0
    assert "the system cannot tell any more what became of them" in second.text(), second.tail()
    assert "Look for them in the sink first" in second.text()
    assert in_database(home) == before == list(range(len(before)))


@pytest.mark.chaos
def test_a_savepoint_that_was_cut_off_is_recognised(
    home: Path,  # noqa: F811
    started: list[Driver],  # noqa: F811
) -> None:
    make(home)
    first = Driver(home / "app.py", {"name": "first"}, home / "first.log", "savepoint-written")
    started.append(first)
    wait_until("rows", lambda: in_files(home), 240)
    seamark(home, "savepoint", "first", "savepoints", code=3)
    assert first.wait(60) != 0
    (left,) = (home / "savepoints").iterdir()
    assert "is not a whole savepoint" in seamark(home, "savepoint", "inspect", str(left), code=2)
    refused = seamark(home, "savepoint", "-d", str(left), code=2)
    assert "taking it was cut off" in refused and "--incomplete" in refused
    restore = {"SEAMARK_RESTORE": str(left)}
    second = Driver(home / "app.py", {"name": "second"}, home / "second.log", environment=restore)
    assert second.wait(240) != 0
    assert not (home / "store" / "second").exists()
    seamark(home, "savepoint", "dispose", "--incomplete", str(left))
    assert not left.exists()
