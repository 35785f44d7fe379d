"""Spark's sinks for trials: memory, console, noop and `foreach`, beside plain Spark's own
(`twins.py` says how). What differs is in docs/write-stream.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.model.errors import ConfigurationError
from tests.spark.streaming.twins import WRITERS, Twin, both

CONSOLE = """
import sys
from seamark.spark.session import spark_session
from tests.spark.streaming.twins import WRITERS
spark = spark_session("console")
read = spark.readStream.schema("id BIGINT, text STRING").option("maxFilesPerTrigger", 1)
for truncate in ("true", "false"):
    for side, write in WRITERS.items():
        writer = write(read.json(sys.argv[1]).coalesce(1)).format("console")
        writer.option("numRows", 2).option("truncate", truncate).trigger(availableNow=True)
        writer.start().awaitTermination()
        sys.stdout.flush()
        print("=== end of", side, flush=True)
"""


def view(twin: Twin, frame: DataFrame, mode: str) -> list[Any]:
    name = f"held_{twin.side}_{mode}"
    writer = twin.write(frame, name).format("memory").queryName(name).outputMode(mode)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(tuple(row) for row in twin.spark.sql(f"SELECT * FROM {name}").collect())


def test_memory_is_a_view_of_the_querys_name(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        twin.add(1, 2)
        twin.add(3)
        counts = twin.read().groupBy((F.col("id") % 2).alias("odd")).count()
        return view(twin, twin.read(), "append"), view(twin, counts, "complete")

    assert both(scenario, tmp_path, spark) == ([(1,), (2,), (3,)], [(0, 1), (1, 2)])


def test_memory_needs_a_name_and_a_new_checkpoint(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        twin.add(1)
        with pytest.raises(Exception, match="queryName"):
            twin.write(twin.read()).format("memory").start()
        view(twin, twin.read(), "append")
        with pytest.raises(Exception, match=r"[Dd]elete .*to start over"):
            view(twin, twin.read(), "append")

    both(scenario, tmp_path, spark)


def test_a_name_that_is_none_of_a_view_leaves_no_server_behind(
    tmp_path: Path, spark: SparkSession
) -> None:
    twin = Twin("seamark", tmp_path, spark)
    twin.add(1)
    before = {*threading.enumerate()}
    with pytest.raises(AnalysisException, match=r"held-rows"):
        twin.write(twin.read()).format("memory").queryName("held-rows").start()
    left = [one.name for one in {*threading.enumerate()} - before]
    assert not [name for name in left if name.startswith("seamark-rest")]


def test_console_prints_as_sparks(tmp_path: Path) -> None:
    """With long texts cut, and whole."""
    for number in range(2):
        rows = [{"id": number * 10 + i, "text": "a long text " * 3} for i in range(3)]
        (tmp_path / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
    done = subprocess.run(
        [sys.executable, "-c", CONSOLE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    parts = (part.strip() for part in done.stdout.split("=== end of"))
    cut, cut_by_us, whole, whole_by_us, _ = parts
    whole = whole.removeprefix("seamark\n")
    assert cut_by_us.removeprefix("spark\n") == cut
    assert whole_by_us.removeprefix("spark\n") == whole
    assert cut.count("only showing top 2 rows") == whole.count("only showing top 2 rows") == 2
    assert ("a long text a lon..." in cut, "a long text " * 3 in whole) == (True, True)


def test_noop_takes_every_row_without_a_location(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        twin.add(1, 2)
        twin.add(3)
        writer = WRITERS[twin.side](twin.read()).format("noop").trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        return query.lastProgress["batchId"]

    assert both(scenario, tmp_path, spark) == 1


class Told:
    """Writes down what it is called with; refuses the rows of epoch 1."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lines: list[str] = []

    def open(self, partition: int, epoch: int) -> bool:
        self.lines = [f"open {partition} {epoch}"]
        return epoch != 1

    def process(self, row: Row) -> None:
        self.lines.append(f"row {row.id}")

    def close(self, error: Exception | None) -> None:
        self.lines.append(f"close {error}")
        self.directory.mkdir(exist_ok=True)
        name = self.lines[0].replace(" ", "-")
        (self.directory / name).write_text("\n".join(self.lines))


def test_foreach_with_an_object(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        for number in range(3):
            twin.add(number)
            file = twin.directory / f"in/{number}.json"
            os.utime(file, (1_700_000_000 + number,) * 2)  # the oldest is read first
        told = Told(twin.directory / "told")
        query = twin.write(twin.read()).foreach(told).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(file.read_text().splitlines() for file in told.directory.iterdir())

    assert both(scenario, tmp_path, spark) == [
        ["open 0 0", "row 0", "close None"],
        ["open 0 1", "close None"],
        ["open 0 2", "row 2", "close None"],
    ]


def test_foreach_with_a_function(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        twin.add(1, 2)
        directory = twin.directory / "rows"
        directory.mkdir()

        def write(row: Row) -> None:
            (directory / str(row.id)).touch()

        query = twin.write(twin.read()).foreach(write).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(file.name for file in directory.iterdir())

    assert both(scenario, tmp_path, spark) == ["1", "2"]


def test_foreach_takes_its_function_as_it_is(tmp_path: Path, spark: SparkSession) -> None:
    """When given: PySpark pickles it then. A function made in a loop keeps the loop's variable of
    its turn. It may have broadcast variables and accumulators."""

    def scenario(twin: Twin) -> Any:
        twin.add(1, 2)
        queries, sizes = [], spark.sparkContext.broadcast({"a": 10, "b": 20})
        seen = spark.sparkContext.accumulator(0)
        directory = twin.directory
        for name in ("a", "b"):
            (directory / name).mkdir()

            def write(row: Row) -> None:
                (directory / name / str(row.id + sizes.value[name])).touch()  # noqa: B023
                seen.add(1)

            writer = twin.write(twin.read(), name).foreach(write)
            queries.append(writer.trigger(processingTime="0 seconds").start())
        for query in queries:
            query.processAllAvailable()
        twin.add(3)
        name = "none"
        for query in queries:
            query.processAllAvailable()
            query.stop()
        files = {n: sorted(f.name for f in (directory / n).iterdir()) for n in ("a", "b")}
        return files, seen.value

    files = {"a": ["11", "12", "13"], "b": ["21", "22", "23"]}
    assert both(scenario, tmp_path, spark) == (files, 6)


@pytest.mark.parametrize("form", ["function", "object"])
def test_foreach_fails_where_rows_would_not_be_done(
    tmp_path: Path, spark: SparkSession, form: str
) -> None:
    """Spark passes over the generator. The epoch would be recorded as sent."""
    twin = Twin("seamark", tmp_path, spark)
    twin.add(1)

    def later(*_: Any) -> Any:
        return (n for n in [1])

    f = later if form == "function" else type("Later", (), {"process": later})()
    query = twin.write(twin.read()).foreach(f).trigger(availableNow=True).start()
    with pytest.raises(Exception, match=r"foreach.* has returned a generator, which nobody runs"):
        query.awaitTermination()


class NotCallable:
    process = 1


@pytest.mark.parametrize("wrong", [object(), NotCallable()])
def test_foreach_refuses_what_pyspark_refuses(
    tmp_path: Path, spark: SparkSession, wrong: object
) -> None:
    def scenario(twin: Twin) -> Any:
        twin.add(1)
        with pytest.raises(AttributeError) as refused:
            twin.write(twin.read()).foreach(wrong)
        return str(refused.value)

    assert "process" in both(scenario, tmp_path, spark)


def test_their_guarantee_is_said(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = Twin("seamark", tmp_path, spark)
    twin.add(1)
    job = sm.Job("console", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    rows = job.source(sm.FileSource(str(tmp_path / "in"), "json", schema="id BIGINT"), uid="in")
    job.sink(rows, sm.ConsoleSink(num_rows=5), uid="out")
    job.explain()
    assert "into out: at-least-once" in capsys.readouterr().out
    with pytest.raises(ConfigurationError, match="num_rows"):
        sm.ConsoleSink(num_rows=-1)
