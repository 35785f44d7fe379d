"""A table altered while the job runs: staged rows are not changed, and wait until it is altered
back."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from seamark.model.errors import CommitFailedError
from seamark.model.schema import Column
from seamark.sinks.internal.staged_files import StagedFile
from seamark.sinks.sqlite import SQLiteSink

SCHEMA = (Column("id", "string"), Column("big", "bigint"))
ROW = ("01", 2**53 + 1)
HARMFUL = ["id NUMERIC PRIMARY KEY, big BIGINT", "id TEXT PRIMARY KEY, big REAL"]


def staged(sink: SQLiteSink) -> list[StagedFile]:
    writer = sink.create_writer(WriterContext("job", "out", 1, 0, 0, 0, -1))
    writer.write(pa.record_batch({"id": [ROW[0]], "big": [ROW[1]]}))
    return list(writer.prepare_commit())


def execute(path: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path, isolation_level=None) as connection:
        return [row for one in sql.split(";") for row in connection.execute(one)]


@pytest.mark.parametrize("keys", [(), ("id",)])
@pytest.mark.parametrize(
    "columns", [*HARMFUL, "id TEXT COLLATE NOCASE PRIMARY KEY, big BIGINT", "id TEXT, big BIGINT"]
)
def test_staged_rows_wait_until_the_table_is_altered_back(
    tmp_path: Path, columns: str, keys: tuple[str, ...]
) -> None:
    sink = SQLiteSink(tmp_path / "a.db", table="t", keys=keys)
    committer = sink.create_committer(SinkContext("job", "job", "out", 1, 5.0, SCHEMA))
    committer.preflight()
    path = Path(sink.path)
    rows = staged(sink)
    execute(path, f"DROP TABLE t; CREATE TABLE t ({columns})")
    if not keys and columns not in HARMFUL:
        assert list(committer.commit(rows)) == [CommitOutcome.COMMITTED]
        assert execute(path, "SELECT * FROM t") == [ROW]
        return
    with pytest.raises(CommitFailedError, match=r"altered while the job ran|ON CONFLICT"):
        committer.commit(rows)
    assert execute(path, "SELECT * FROM t") == []
    execute(path, "DROP TABLE t; CREATE TABLE t (id TEXT PRIMARY KEY, big BIGINT)")
    assert list(committer.commit(rows)) == [CommitOutcome.COMMITTED]
    assert execute(path, "SELECT * FROM t") == [ROW]
    committer.close()


@pytest.mark.parametrize("create_table", [True, False])
def test_no_table_is_made_under_a_running_job(tmp_path: Path, create_table: bool) -> None:
    """One that was renamed, or is about to be made anew: rows would lie in a third one."""
    path = tmp_path / "a.db"
    execute(path, "CREATE TABLE t (id TEXT, big BIGINT)")
    sink = SQLiteSink(path, table="t", create_table=create_table)
    committer = sink.create_committer(SinkContext("job", "job", "out", 1, 5.0, SCHEMA))
    committer.preflight()
    rows = staged(sink)
    execute(path, "ALTER TABLE t RENAME TO other")
    with pytest.raises(CommitFailedError, match="does not exist any more; make it again"):
        committer.commit(rows)
    execute(path, "ALTER TABLE other RENAME TO t")
    assert list(committer.commit(rows)) == [CommitOutcome.COMMITTED]
    assert execute(path, "SELECT * FROM t") == [ROW]
    committer.close()


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_rows_staged_before_the_sink_got_another_table_go_into_theirs(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    first = SQLiteSink(tmp_path / "a.db", table="first", keys=keys)
    context = SinkContext("job", "job", "out", 1, 5.0, SCHEMA)
    first.create_committer(context).preflight()
    rows = staged(first)
    committer = dataclasses.replace(first, table="second").create_committer(context)
    committer.preflight()
    assert list(committer.commit(rows)) == [CommitOutcome.COMMITTED]
    assert execute(Path(first.path), "SELECT * FROM first") == [ROW]
    assert execute(Path(first.path), "SELECT * FROM second") == []
    committer.close()
