"""`format("seamark")` in a session that lives on: each kind of sink, replays, and what is refused.

The batch run of Spark is the judge of what a sink holds. Kills are in `integration/data_source`.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import seamark as sm
from tests.chaos.driver import wait_until
from tests.unit.datasource.played import log_of

SCHEMA = "id long, name string, price decimal(12,8), day date"


def add(directory: Path, number: int) -> None:
    (directory / "in").mkdir(exist_ok=True)
    rows = [
        {"id": 10 * number + row, "name": f"n{row}", "price": "0.00000012", "day": "2026-01-02"}
        for row in range(10)
    ]
    text = "\n".join(map(json.dumps, rows))
    (directory / "in" / f"{number}.json").write_text(text + "\n")


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    for number in range(3):
        add(tmp_path, number)
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.json(str(tmp_path / "in"))


def run(frame: DataFrame, at: Path, *, mode: str = "append", **options: str) -> None:
    writer = frame.writeStream.format("seamark").options(**options).outputMode(mode)
    writer = writer.option("checkpointLocation", str(at / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def refusal(frame: DataFrame, at: Path, **options: Any) -> str:
    with pytest.raises(Exception) as error:
        run(frame, at, **options)
    assert "Traceback" not in str(error.value)
    return str(error.value)


def in_sqlite(path: Path) -> list[Any]:
    with sqlite3.connect(path) as connection:
        return connection.execute("SELECT id FROM t ORDER BY id").fetchall()


@pytest.mark.parametrize(
    "sink",
    [
        lambda at: sm.FileSink(f"{at}/out", "parquet", partition_by=["day"]),
        lambda at: sm.FileSink(f"{at}/out", "json"),
        lambda at: sm.DeltaSink(f"{at}/out", create_table=True),
        lambda at: sm.SQLiteSink(f"{at}/t.db", table="t", keys=["id"]),
    ],
    ids=["parquet", "json", "delta", "sqlite"],
)
def test_a_sink_holds_what_the_batch_gives(
    spark: SparkSession, stream: DataFrame, tmp_path: Path, sink: Any
) -> None:
    made = sink(tmp_path)
    options = sm.sink_options(made)
    rows = stream
    if options.get("format") == "json":  # needs SQL: the error's own words are what to write
        said = refusal(stream, tmp_path, **options)
        assert '("selected", "true")' in said
        expressions = said.partition("df.selectExpr(")[2].partition("\n)")[0]
        rows = stream.selectExpr(*eval(f"({expressions})"))
        options["selected"] = "true"
    run(rows, tmp_path, **options)
    add(tmp_path, 3)
    run(rows, tmp_path, **options)
    batch = spark.read.schema(SCHEMA).json(str(tmp_path / "in"))
    wanted = [str(row) for row in batch.orderBy("id").collect()]
    if isinstance(made, sm.SQLiteSink):
        assert in_sqlite(tmp_path / "t.db") == [(number,) for number in range(40)]
        with sqlite3.connect(tmp_path / "t.db") as connection:
            assert {row[0] for row in connection.execute("SELECT price FROM t")} == {"0.00000012"}
        return
    if isinstance(made, sm.DeltaSink):
        from deltalake import DeltaTable

        found = spark.createDataFrame(DeltaTable(f"{tmp_path}/out").to_pyarrow_table().to_pylist())
    else:
        reader = spark.read.schema(SCHEMA).format(made.format)
        found = reader.load(f"{tmp_path}/out")
    columns = found.selectExpr("id", "name", "CAST(price AS DECIMAL(12,8)) price", "day")
    assert [str(row) for row in columns.orderBy("id").collect()] == wanted


def test_a_decided_batch_is_not_written_again(stream: DataFrame, tmp_path: Path) -> None:
    """Spark's commit log lacks the last batch: as after a death behind Seamark's decision."""
    options = {"sink": "sqlite", "path": f"{tmp_path}/t.db", "table": "t"}
    run(stream, tmp_path, **options)
    before = sorted(log_of(tmp_path / "checkpoint/seamark").iterdir())
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint/commits" / name).unlink(missing_ok=True)
    run(stream, tmp_path, **options)
    assert in_sqlite(tmp_path / "t.db") == [(number,) for number in range(30)]
    after = sorted(log_of(tmp_path / "checkpoint/seamark").iterdir())
    assert len(after) == len(before) + 1  # a try, and no second decision


def test_a_batch_without_rows_is_decided_too(stream: DataFrame, tmp_path: Path) -> None:
    options = {"sink": "sqlite", "path": f"{tmp_path}/t.db", "table": "t"}
    run(stream.where("id NOT BETWEEN 10 AND 19"), tmp_path, **options)
    wanted = [(number,) for number in range(30) if not 10 <= number < 20]
    assert in_sqlite(tmp_path / "t.db") == wanted


def test_log_and_checkpoint_of_different_moments(stream: DataFrame, tmp_path: Path) -> None:
    options = {
        "sink": "sqlite", "path": f"{tmp_path}/t.db", "table": "t", "location": f"{tmp_path}/log",
    }  # fmt: skip
    run(stream, tmp_path, **options)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "kept")
    for number in (3, 4):
        add(tmp_path, number)
    run(stream, tmp_path, **options)

    entries = sorted(log_of(tmp_path / "log").iterdir())
    shutil.move(tmp_path / "checkpoint", tmp_path / "new")
    assert "the location belongs to query" in refusal(stream, tmp_path, **options)

    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "kept", tmp_path / "checkpoint")
    said = refusal(stream, tmp_path, **options)
    assert "Spark runs batch 3, and the newest batch decided here is 4" in said
    assert sorted(log_of(tmp_path / "log").iterdir()) == entries, "a mistaken start fences nobody"

    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "new", tmp_path / "checkpoint")
    add(tmp_path, 5)
    elsewhere = {**options, "location": f"{tmp_path}/other"}
    assert "no batch was ever decided here" in refusal(stream, tmp_path, **elsewhere)
    assert in_sqlite(tmp_path / "t.db") == [(number,) for number in range(50)]
    run(stream, tmp_path, **elsewhere, adopt="true")
    assert in_sqlite(tmp_path / "t.db") == [(number,) for number in range(60)]


def test_a_decided_batch_that_spark_plans_anew_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its checkpoint lacks the batch's offsets, as after a backup's restore or a machine's sudden
    end: to pass over what it plans now would lose the rows that have come since."""
    options = {
        "sink": "sqlite", "path": f"{tmp_path}/t.db", "table": "t", "location": f"{tmp_path}/log",
    }  # fmt: skip
    add(tmp_path, 0)
    stream = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
    run(stream, tmp_path, **options)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "kept")
    add(tmp_path, 1)
    run(stream, tmp_path, **options)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "kept", tmp_path / "checkpoint")
    add(tmp_path, 2)
    said = refusal(stream, tmp_path, **options)
    assert "Spark has planned batch 1 anew, and it is decided already" in said
    assert "Job aborted due to stage failure" not in said
    assert in_sqlite(tmp_path / "t.db") == [(number,) for number in range(20)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sink": "sqlite", "table": "t"}, "needs the option 'path'"),
        ({"sink": "sqlite", "path": "/t.db", "table": "t", "location": "log"}, "absolute path"),
        ({"sink": "sqllite"}, "the option sink is 'sqllite'; did you mean 'sqlite'?"),
        ({"sink": "sqlite", "path": "/no/where/t.db", "table": "t"}, "/no/where"),
    ],
)
def test_a_mistake_is_told_before_a_task_runs(
    stream: DataFrame, tmp_path: Path, given: dict[str, str], said: str
) -> None:
    found = refusal(stream, tmp_path, **given)
    assert said in found
    assert "Job aborted due to stage failure" not in found


@pytest.mark.parametrize("day", ["", "/day=2026-01-02"])
def test_files_into_the_directory_that_is_read_are_refused(
    spark: SparkSession, stream: DataFrame, tmp_path: Path, day: str
) -> None:
    if day:
        (tmp_path / f"in{day}").mkdir()
        (tmp_path / "in/0.json").rename(tmp_path / f"in{day}/0.json")
        stream = spark.readStream.schema(SCHEMA).json(str(tmp_path / f"in{day}"))
    before = sorted((tmp_path / "in").rglob("*"))
    options = sm.sink_options(
        sm.FileSink(str(tmp_path / "in"), partition_by=["day"] if day else [])
    )
    found = refusal(stream, tmp_path, **options)
    assert re.search(rf"reads file://{tmp_path}/in{day}/\d.json, in the directory to whi", found)
    assert sorted((tmp_path / "in").rglob("*")) == before


def test_complete_mode_is_refused(stream: DataFrame, tmp_path: Path) -> None:
    counted = stream.groupBy("name").count()
    options = {"sink": "sqlite", "path": f"{tmp_path}/t.db", "table": "t"}
    assert 'outputMode is "complete"' in refusal(counted, tmp_path, mode="complete", **options)
    assert not (tmp_path / "t.db").exists()


def test_the_continuous_trigger_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes it, ignores its own error at the first commit, and stands still."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    writer = rows.writeStream.format("seamark").option("sink", "sqlite").option("table", "t")
    writer = writer.option("path", f"{tmp_path}/t.db").option("checkpointLocation", f"{tmp_path}/c")
    query = writer.trigger(continuous="1 second").start()
    try:
        with pytest.raises(Exception, match="the trigger is continuous"):
            query.awaitTermination(60)
        query = writer.trigger(processingTime="0 seconds").start()
        wait_until("a batch", lambda: [*tmp_path.glob("c/commits/1")], 60)
    finally:
        query.stop()


def test_columns_that_need_sql_say_what_to_select(stream: DataFrame, tmp_path: Path) -> None:
    nested = stream.selectExpr("id", "struct(name, day) AS who")
    options = {"sink": "sqlite", "path": f"{tmp_path}/t.db", "table": "t"}
    assert "df.selectExpr(" in refusal(nested, tmp_path, **options)


def test_a_second_run_fences_the_first(spark: SparkSession, tmp_path: Path) -> None:
    """Two queries over one location at once, each with a checkpoint of its own copy."""
    options = {
        "sink": "sqlite", "path": f"{tmp_path}/t.db", "table": "t", "location": f"{tmp_path}/log",
    }  # fmt: skip
    add(tmp_path, 0)
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    stream = reader.json(str(tmp_path / "in"))
    run(stream, tmp_path, **options)
    (tmp_path / "other").mkdir()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "other/checkpoint")
    add(tmp_path, 1)
    run(stream, tmp_path / "other", **options)
    add(tmp_path, 2)
    run(stream, tmp_path / "other", **options)
    said = refusal(stream, tmp_path, **options)
    assert "checkpoint and location are of different moments" in said
    assert in_sqlite(tmp_path / "t.db") == [(number,) for number in range(30)]
