"""A query of ``format("seamark")`` from batch to batch and from start to start, on real files and
sinks; Spark's workers are played: a planner, a task and a committer, each with a memory of its own
that Spark may keep or end."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, StructField, StructType

from seamark.contracts.write_ahead import EpochToken
from seamark.datasource import location, writers
from seamark.model.errors import CheckpointError, ConfigurationError
from seamark.protocol.batches import Decided, Try
from seamark.sinks.write_ahead.sink import WriteAheadSink
from tests.chaos.driver import wait_until
from tests.unit.datasource.played import IDS, Query, log_of


@dataclass(frozen=True)
class Appending(WriteAheadSink):
    """Appends its rows to a file, as a target that cannot tell what it has."""

    out: str = ""

    def describe(self) -> str:
        return "a file"

    def send(self, batches: Any, token: EpochToken) -> None:
        with Path(self.out).open("a") as file:
            for batch in batches:
                file.writelines(f"{token} {row['id']}\n" for row in batch.to_pylist())


def appending(at: Path, **more: str) -> Query:
    sink = f"{__name__}:Appending"
    return Query(sink=sink, out=f"{at}/out", checkpointlocation=f"{at}/checkpoint", **more)


def lines(at: Path) -> list[str]:
    return (at / "out").read_text().splitlines()


def ids(at: Path) -> list[str]:
    return [line.rpartition(" ")[2] for line in lines(at)]


def test_a_target_that_cannot_tell_is_asked_once(tmp_path: Path) -> None:
    query = appending(tmp_path)
    query.run(0, 1, 2)
    query.run(1, 3)
    query.end_spark()
    query.run(1, 3)  # Spark died before its commit log had it
    query.run(2, 4)
    query.run(2, 4)  # the same in one Spark: it was stopped within commit()
    assert ids(tmp_path) == ["1", "2", "3", "4"]
    assert not [*(tmp_path / "checkpoint/seamark").glob("wal/*/*")]


def test_files_that_a_consumer_has_taken_away_stop_nothing(tmp_path: Path) -> None:
    query = Query(
        sink="files", path=f"{tmp_path}/out", format="parquet",
        checkpointlocation=f"{tmp_path}/checkpoint",
    )  # fmt: skip
    query.run(0, 1)
    for file in (tmp_path / "out").glob("*.parquet"):
        file.unlink()
    query.end_spark()
    query.run(1, 2)
    assert len([*(tmp_path / "out").glob("*.parquet")]) == 1


@pytest.mark.parametrize("sink", ["files", "delta"])
@pytest.mark.parametrize("option", ["checkpointlocation", "location"])
def test_a_target_that_shows_checkpoint_or_location_to_its_readers_is_refused(
    sink: str, option: str, tmp_path: Path
) -> None:
    query = Query(sink=sink, path=f"{tmp_path}/out", checkpointlocation=f"{tmp_path}/checkpoint")
    if sink == "delta":
        query.options["create_table"] = "true"
    hidden = dict(query.options)
    query.options[option] = f"{tmp_path}/out/state"
    with pytest.raises(ConfigurationError, match=r"where the job's checkpoint is.*SK008"):
        query.plan(IDS)
    assert not [*tmp_path.rglob("log")]
    shutil.rmtree(tmp_path / "out/state")  # no table is made beside it
    query.options = hidden | {option: f"{tmp_path}/out/_state"}
    query.run(0, 1)
    query.end_spark()


def test_deleted_and_begun_anew_in_one_spark(tmp_path: Path) -> None:
    """No other rows under a token that its target has seen."""
    query = appending(tmp_path)
    query.run(0, 1)
    shutil.rmtree(tmp_path / "checkpoint")
    query.run(0, 7, query="another")
    assert ids(tmp_path) == ["1", "7"]
    first, second = (line.partition(" ")[0] for line in lines(tmp_path))
    assert first != second
    query.end_spark()
    query.run(1, 8, query="another")
    assert ids(tmp_path) == ["1", "7", "8"]


def test_what_may_still_be_asked_for_is_not_settled(tmp_path: Path) -> None:
    """A Kafka producer takes a transactional id again when its last transaction is settled."""
    query = appending(tmp_path)
    assert query.plan(IDS).this.settled == -1
    query.run(0, 1)
    assert query.plan(IDS).this.settled == 0
    decided = Decided(4, "q", 1, 1, None)
    assert Try(9, 1, decided).settled == 3  # stopped within commit(), in one Spark
    assert Try(9, 1, replace(decided, committed=True)).settled == 4


def test_other_columns_are_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is started again in the same Spark with another select."""
    seen: list[Any] = []
    take_over = location._Sinks.take_over

    def look(sinks: Any, generation: int) -> None:
        seen.append(sinks._place.job.schemas["sink"])
        take_over(sinks, generation)

    monkeypatch.setattr(location._Sinks, "take_over", look)
    query = Query(
        sink="sqlite", path=f"{tmp_path}/t.db", table="t",
        checkpointlocation=f"{tmp_path}/checkpoint",
    )  # fmt: skip
    for number, scale in enumerate((2, 4)):
        schema = StructType([StructField("a", DecimalType(10, scale))])
        values = pa.array([Decimal("1.5")], pa.decimal128(10, scale))
        query.run(number, schema=schema, rows=pa.record_batch({"a": values}))
    assert [columns[0].type for columns in seen] == ["decimal(10,2)", "decimal(10,4)"]
    assert query.committing(schema).job.schemas["sink"][0].type == "decimal(10,4)"


def test_a_checkpoint_out_of_reach_is_spark_s_own_business(tmp_path: Path) -> None:
    query = appending(tmp_path, location=f"{tmp_path}/log")
    query.options["checkpointlocation"] = "abfss://c@account.dfs.core.windows.net/checkpoint"
    query.run(0, 1)
    assert ids(tmp_path) == ["1"]


def test_a_log_that_is_away_after_the_commit_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = appending(tmp_path)
    query.run(0, 1)
    place = query.committing()
    monkeypatch.setattr(place, "_swept_at", 0.0)

    def away(*_: Any) -> Mapping[str, Any]:
        raise ConnectionError("the store is away for a second")

    monkeypatch.setattr(place.log, "tidy", away)
    monkeypatch.setattr(place._sinks, "lingering", away)
    query.run(1, 2)
    assert ids(tmp_path) == ["1", "2"]


def test_what_an_attempt_flushes_while_the_query_is_idle_is_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that was cut off goes on with its task, long after the batch was committed."""
    monkeypatch.setattr(location, "SWEEP_S", 0.05)
    query = Query(
        sink="sqlite", path=f"{tmp_path}/t.db", table="t",
        checkpointlocation=f"{tmp_path}/checkpoint",
    )  # fmt: skip
    writer = query.plan(IDS)
    place = query.committing()
    writers.BatchCommit(place).commit([query.write(writer, 0, 1, 2)], 0)
    time.sleep(0.5)
    query.write(writer, 0, 1, 2)
    wait_until("nothing is open", lambda: not place.open_transactions(), 10)
    with sqlite3.connect(tmp_path / "t.db") as connection:
        assert connection.execute("SELECT id FROM t").fetchall() == [(1,), (2,)]
    query.end_spark()


def test_a_mistaken_start_in_a_kept_worker_fences_nobody(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    (checkpoint / "offsets/0").touch()
    query = appending(tmp_path, location=f"{tmp_path}/location")
    query.run(0, 1)
    before = sorted(log_of(tmp_path / "location").iterdir())
    (checkpoint / "metadata").write_text('{"id": "another"}')
    with pytest.raises(CheckpointError, match="belongs to query q, and this is query another"):
        query.plan(IDS)
    assert sorted(log_of(tmp_path / "location").iterdir()) == before


def test_a_batch_that_spark_has_committed_is_not_planned(tmp_path: Path) -> None:
    """By its continuous trigger, after a run by another one: it would write to Spark's checkpoint,
    and stand still."""
    checkpoint = tmp_path / "checkpoint"
    query = appending(tmp_path, location=f"{tmp_path}/location")
    for directory in ("offsets", "commits"):
        (checkpoint / directory).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    (checkpoint / "offsets/0").touch()
    query.run(0, 1)
    (checkpoint / "commits/0").touch()
    before = sorted(log_of(tmp_path / "location").iterdir())
    with pytest.raises(CheckpointError, match="the trigger is continuous"):
        query.plan(IDS)
    assert sorted(log_of(tmp_path / "location").iterdir()) == before
