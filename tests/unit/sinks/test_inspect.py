"""Sinks without a server, asked from outside of a job: by ``explain --preflight`` (each fault gives
its code, a sound target none, and nothing is changed), by ``seamark txn`` for the age of what is
open."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import seamark as sm
from seamark.contracts.sink import InspectedSink, SinkContext, WriterContext
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding
from seamark.model.schema import Column

ROWS = (Column("id", "bigint"), Column("text", "string"))
CONTEXT = SinkContext("", "job", "out", 0, 1.0, schema=ROWS)


def asked(sink: Any, root: Path) -> list[Finding]:
    """Return the findings; what lies below `root` is the same before and after."""
    assert isinstance(sink, InspectedSink)
    before = [(path, path.stat().st_mtime_ns) for path in sorted(root.rglob("*"))]
    found = list(sink.inspect(CONTEXT))
    assert [(path, path.stat().st_mtime_ns) for path in sorted(root.rglob("*"))] == before
    return found


def codes(found: list[Finding]) -> list[str]:
    assert all(one.subject.startswith(("sink `out`", "sink 'out'")) for one in found), found
    return [one.code.name for one in found]


def test_files(tmp_path: Path) -> None:
    assert asked(sm.FileSink(tmp_path / "new/dir"), tmp_path) == []
    (tmp_path / "file").touch()
    assert codes(asked(sm.FileSink(tmp_path / "file/below"), tmp_path)) == ["SV005"]
    (tmp_path / "spark/_spark_metadata").mkdir(parents=True)
    (tmp_path / "spark/_spark_metadata/0").touch()
    (found,) = asked(sm.FileSink(tmp_path / "spark"), tmp_path)
    assert found.code.name == "SV005" and "_spark_metadata" in found.found


def test_sqlite(tmp_path: Path) -> None:
    assert codes(asked(sm.SQLiteSink(tmp_path / "missing/a.db", "t"), tmp_path)) == ["SV004"]
    assert asked(sm.SQLiteSink(tmp_path / "new.db", "t"), tmp_path) == []
    (tmp_path / "text.db").write_text("no database\n" * 1000)
    assert codes(asked(sm.SQLiteSink(tmp_path / "text.db", "t"), tmp_path)) == ["SV002"]
    absent = sm.SQLiteSink(tmp_path / "absent.db", "t", create_table=False)
    assert codes(asked(absent, tmp_path)) == ["SV004"]
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("CREATE TABLE t (id INTEGER, more TEXT NOT NULL)")
        database.execute("CREATE TABLE fits (id INTEGER PRIMARY KEY, text TEXT)")
    database.close()
    found = asked(sm.SQLiteSink(tmp_path / "a.db", "t", keys=["id"]), tmp_path)
    assert codes(found) == ["SV005"] * 3
    wanted = ("has no column 'text'", "'more' is NOT NULL", "has no primary key")
    assert all(what in one.found for one, what in zip(found, wanted, strict=True)), found
    assert asked(sm.SQLiteSink(tmp_path / "a.db", "fits", keys=["id"]), tmp_path) == []
    given = sm.SQLiteSink(tmp_path / "a.db", "fits", keys=["id"], create_table=False)
    assert asked(given, tmp_path) == []


def test_delta(tmp_path: Path) -> None:
    path = tmp_path / "table"
    assert codes(asked(sm.DeltaSink(str(path)), tmp_path)) == ["SV004"]
    assert asked(sm.DeltaSink(str(path), create_table=True), tmp_path) == []
    schema = pa.schema([("id", pa.int32()), ("day", pa.string()), pa.field("n", pa.int64(), False)])
    DeltaTable.create(str(path), schema, partition_by=["day"])
    found = asked(sm.DeltaSink(str(path)), tmp_path)
    assert codes(found) == ["SV005"] * 4
    wanted = ("is partitioned by", "'id' is bigint", "no column 'text'", "'n' of the table is NOT")
    assert all(what in one.found for one, what in zip(found, wanted, strict=True)), found
    (tmp_path / "file").touch()
    assert codes(asked(sm.DeltaSink(str(tmp_path / "file/below")), tmp_path)) == ["SV005"]
    fits = tmp_path / "fits"
    DeltaTable.create(str(fits), pa.schema([("id", pa.int64()), ("text", pa.string())]))
    assert asked(sm.DeltaSink(str(fits)), tmp_path) == []


def test_iceberg(tmp_path: Path) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/a.db",
        "warehouse": f"file://{tmp_path}",
    }
    sink = sm.IcebergSink("shop.t", catalog)
    assert codes(asked(sink, tmp_path)) == ["SV004"]
    made = sm.IcebergSink("shop.t", catalog, create_table=True)
    assert asked(made, tmp_path) == []
    columns = (Column("id", "int"), Column("day", "date"), Column("text", "string"))
    by_day = replace(made, partition_by=["month(day)"])
    by_day.create_committer(replace(CONTEXT, job_id="job", schema=columns)).preflight()
    (id_, day) = asked(sink, tmp_path)
    assert codes([id_, day]) == ["SV005"] * 2
    assert "partitioned by column 'day', which is not in" in id_.found
    assert "'id' is bigint in the DataFrame and int in the table" in day.found
    other = sm.IcebergSink("shop.other", catalog)
    assert codes(asked(other, tmp_path)) == ["SV004"]
    replace(other, create_table=True).create_committer(replace(CONTEXT, job_id="j")).preflight()
    assert asked(other, tmp_path) == []
    away = sm.IcebergSink("shop.t", {"type": "rest", "uri": "http://127.0.0.1:9"})
    assert codes(asked(away, tmp_path)) == ["SV001"]


class Sender(sm.WriteAheadSink):
    def describe(self) -> str:
        return "a pager"

    def send(self, batches: Iterator[pa.RecordBatch], token: sm.EpochToken) -> None: ...


class CheckedSender(Sender):
    def check_target(self) -> None:
        raise PreflightError("the pager is off; switch it on")


def test_write_ahead(tmp_path: Path) -> None:
    (found,) = asked(sm.WriteAheadSink.http("http://127.0.0.1:9/"), tmp_path)
    assert codes([found]) == ["SV001"] and "no server answers" in found.found
    assert codes(asked(Sender(), tmp_path)) == ["SK005"]
    with pytest.raises(PreflightError, match="is off"):  # `explain` makes SV002 of it
        asked(CheckedSender(), tmp_path)


@pytest.mark.parametrize("kind", ["files", "sqlite", "delta", "iceberg"])
def test_the_age_of_what_is_open(tmp_path: Path, kind: str) -> None:
    sink: Any = {
        "files": lambda: sm.FileSink(tmp_path / "out"),
        "sqlite": lambda: sm.SQLiteSink(tmp_path / "a.db", "t"),
        "delta": lambda: sm.DeltaSink(str(tmp_path / "table"), create_table=True),
        "iceberg": lambda: sm.IcebergSink(
            "shop.t",
            {"type": "sql", "uri": f"sqlite:///{tmp_path}/a.db", "warehouse": f"file://{tmp_path}"},
            create_table=True,
        ),
    }[kind]()
    context = replace(CONTEXT, job_id="job", generation=1)
    committer = sink.create_committer(context)
    committer.preflight()
    before = time.time() - 1  # file systems may round down
    writer = sink.create_writer(WriterContext("job", "out", 1, 0, 0, 0, -1))
    writer.write(pa.record_batch({"id": [1], "text": ["a"]}))
    writer.prepare_commit()
    (found,) = [one.committable for one in committer.list_lingering()]
    (facts,) = committer.describe_open([found])
    assert before <= facts.started_at <= time.time()
    assert facts.expires_at is None
    committer.abort([found])
    assert [one.started_at for one in committer.describe_open([found])] == [None]
    committer.close()
