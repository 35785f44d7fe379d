"""`sm.write_stream` in a real session: pyspark's names, the query that comes back, its restarts,
tables, and mistakes. Kills and Kafka: `integration/jobs/test_write_stream.py`."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyspark.sql.streaming
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark import job_run
from seamark.api.settings import (
    JOB_VARIABLE,
    RESTORE_VARIABLE,
    TRANSACTIONS_ANSWER,
    TRANSACTIONS_VARIABLE,
)
from seamark.files.deadline import call_within
from seamark.jobs.checkpoint_history import jobs_in
from seamark.jobs.registry import list_jobs
from seamark.model.errors import ConfigurationError
from seamark.model.job_state import JobState
from seamark.operations.reading import explain
from seamark.run.supervision import Supervisor
from seamark.sinks.sqlite import database
from seamark.streaming.query import StreamQuery
from seamark.streaming.writer import DataStreamWriter
from tests.chaos.workload import read_column
from tests.servers.mariadb import MariaDBServer
from tests.servers.mysql import MySQLServer
from tests.servers.postgres import PostgresServer
from tests.storage_servers import serving

FAST = sm.RestartStrategy.fixed_delay(attempts=3, delay="10ms")


@pytest.fixture
def rows(tmp_path: Path, spark: SparkSession) -> DataFrame:
    (tmp_path / "in").mkdir()
    add(tmp_path, range(40))
    return spark.readStream.schema("id BIGINT, page STRING").json(str(tmp_path / "in"))


def add(tmp_path: Path, ids: range) -> None:
    lines = [json.dumps({"id": i, "page": f"p{i % 3}"}) for i in ids]
    (tmp_path / f"in/{ids.start}.json").write_text("\n".join(lines))


def ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row.id for row in spark.read.json(str(path)).collect())


def to_files(frame: DataFrame, tmp_path: Path, name: str = "out", **how: Any) -> DataStreamWriter:
    writer = sm.write_stream(frame, **how).format("json").option("path", str(tmp_path / name))
    return writer.option("checkpointLocation", str(tmp_path / f"store/{name}-location"))


def test_every_name_of_pysparks_writer_and_query_is_there() -> None:
    theirs = pyspark.sql.streaming.DataStreamWriter
    for name in (name for name in dir(theirs) if not name.startswith("_")):
        ours = inspect.signature(getattr(DataStreamWriter, name)).parameters
        assert list(ours) == list(inspect.signature(getattr(theirs, name)).parameters), name
    assert issubclass(StreamQuery, pyspark.sql.streaming.StreamingQuery)


def test_a_plain_querys_location_goes_on_and_is_given_back(
    tmp_path: Path, spark: SparkSession, rows: DataFrame
) -> None:
    """The plain query writes by itself: the log of Spark's own file sink must have every batch."""
    location = str(tmp_path / "store/out-location")

    def append(frame: DataFrame, batch: int) -> None:
        frame.write.mode("append").json(str(tmp_path / "plain"))

    def plain() -> None:
        writer = rows.writeStream.foreachBatch(append)
        writer = writer.option("checkpointLocation", location).trigger(availableNow=True)
        writer.start().awaitTermination()

    plain()
    add(tmp_path, range(40, 100))
    query = to_files(rows, tmp_path).queryName("clicks").trigger(availableNow=True).start()
    assert query.awaitTermination(60) is True
    assert (query.isActive, query.exception()) == (False, None)
    assert ids(spark, tmp_path / "out") == list(range(40, 100))
    identity = json.loads((tmp_path / "store/out-location/job.json").read_bytes())["body"]
    assert (identity["first_epoch"], identity["spark_directory"]) == (1, "")
    add(tmp_path, range(100, 110))
    plain()
    assert ids(spark, tmp_path / "plain") == [*range(40), *range(100, 110)]

    def again() -> None:
        to_files(rows, tmp_path).trigger(availableNow=True).start().awaitTermination(60)

    with pytest.raises(sm.DamagedCheckpointError, match="gone on here after epoch 1, delete all"):
        again()
    for path in Path(location).iterdir():
        if path.name not in {"metadata", "offsets", "commits", "sources", "state"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    add(tmp_path, range(110, 120))
    again()
    assert ids(spark, tmp_path / "out") == [*range(40, 100), *range(110, 120)]


def test_a_location_of_another_kind_of_source_is_refused(
    tmp_path: Path, spark: SparkSession, rows: DataFrame
) -> None:
    """Spark's file source would leave out as many files as the rate source has run seconds."""
    rate = spark.readStream.format("rate").load()
    location = str(tmp_path / "store/out-location")
    plain = rate.writeStream.format("noop").option("checkpointLocation", location)
    plain.trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(ConfigurationError, match=r"at the offset \d+, from which 'FileSource'"):
        to_files(rows, tmp_path).trigger(availableNow=True).start()


STREAMS_STOPPED = """
import time
from pyspark.sql import SparkSession, functions as F
import seamark as sm
spark = SparkSession.builder.master("local[1]").getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 9).load()
slow = rows.withColumn("value", F.udf(lambda n: time.sleep(5) or n, "bigint")("value"))
to_files = sm.write_stream(slow).format("json").option("path", "out")
query = to_files.option("checkpointLocation", "location").start()
while not spark.sparkContext.statusTracker().getActiveJobsIds():
    time.sleep(0.05)
for one in spark.streams.active:
    one.stop()
print(query.awaitTermination(60), query.exception())
"""


def test_a_stop_by_sparks_streams_is_a_quiet_end(tmp_path: Path) -> None:
    """It interrupts the call in Java: the regular expression by which Spark looks into the error
    overflowed its thread's stack, which it printed."""
    (tmp_path / "app.py").write_text(STREAMS_STOPPED)
    ended = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=240,
        env=os.environ | {"JAVA_TOOL_OPTIONS": "-Xss512k"},  # else it depends on the compiler
    )  # fmt: skip
    assert ended.stdout.splitlines()[-1:] == ["True None"], ended.stderr
    assert "StackOverflowError" not in ended.stderr
    (started,) = (tmp_path / "location/executions").glob("*/ended.json")
    assert json.loads(started.read_text())["body"]["state"] == "FINISHED"


def test_the_query_behaves_as_sparks_and_its_savepoint_begins_another(
    tmp_path: Path,
    spark: SparkSession,
    rows: DataFrame,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    query = (
        to_files(rows, tmp_path).queryName("clicks").trigger(processingTime="0.1 second").start()
    )
    query.processAllAvailable()
    assert ids(spark, tmp_path / "out") == list(range(40)), "committed when the call returns"
    assert (query.name, query.isActive) == ("clicks", True)
    (own,) = [one for one in spark.streams.active if one.id == query.id]
    assert own.runId == query.runId
    assert query.lastProgress is not None
    assert query.lastProgress.numInputRows == 40 or len(query.recentProgress) > 1
    assert set(query.status) == {"message", "isDataAvailable", "isTriggerActive"}
    assert query.awaitTermination(0.1) is False
    query.explain()
    assert "Physical Plan" in capsys.readouterr().out
    saved = query.job.savepoint(str(tmp_path / "saved")).result(300)
    assert Path(saved.removeprefix("file://")).is_dir()
    query.stop()
    assert (query.isActive, query.exception()) == (False, None)
    assert query.awaitTermination() is None
    (started,) = (tmp_path / "store/out-location/executions").glob("*/ended.json")
    assert json.loads(started.read_text())["body"]["state"] == "FINISHED"
    monkeypatch.setenv(RESTORE_VARIABLE, saved)  # as `seamark run -s` does
    add(tmp_path, range(40, 60))
    to_files(rows, tmp_path, "second").trigger(availableNow=True).start().awaitTermination()
    assert ids(spark, tmp_path / "second") == list(range(40, 60))
    same_name = to_files(rows, tmp_path, "third").option(
        "checkpointLocation", str(tmp_path / "other/second-location")
    )
    job = sm.Job("declared", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    job.sink(job.source(rows, "in", replayable=True), sm.FileSink(str(tmp_path / "third")), "out")
    for other in (same_name.start, job.run, to_files(rows, tmp_path, "third").start):
        with pytest.raises(ConfigurationError, match=r"has begun .*/store/second-location with "):
            other()
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "third").exists()


def test_a_command_line_names_the_query_that_it_means(
    tmp_path: Path, spark: SparkSession, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `seamark txn --job` and `seamark run -s PATH --job` do, in a program of two queries."""

    def start(name: str) -> StreamQuery:
        writer = to_files(rows, tmp_path, name).queryName(name).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination(60)
        return query

    start("first")
    running = to_files(rows, tmp_path, "second").queryName("second").start()
    running.processAllAvailable()
    saved = running.job.savepoint(str(tmp_path / "saved")).result(300)
    running.stop()
    request = tmp_path / "request.json"
    request.write_text('{"verb": "list"}')
    monkeypatch.setenv(JOB_VARIABLE, "second")
    monkeypatch.setenv(TRANSACTIONS_VARIABLE, str(request))
    epochs = list((tmp_path / "store/first-location/offsets").iterdir())
    add(tmp_path, range(40, 60))
    assert start("first").isActive is False
    spark.streams.resetTerminated()
    waiting = threading.Thread(target=spark.streams.awaitAnyTermination, daemon=True)
    waiting.start()
    waiting.join(60)
    assert not waiting.is_alive()  # else a program that only waits would never answer
    with pytest.raises(SystemExit):
        start("second")
    answer = json.loads(Path(f"{request}{TRANSACTIONS_ANSWER}").read_text())
    assert answer == {"job": "second", "transactions": []}
    assert list((tmp_path / "store/first-location/offsets").iterdir()) == epochs

    monkeypatch.setenv(RESTORE_VARIABLE, saved)
    monkeypatch.setenv(JOB_VARIABLE, "third")
    with pytest.raises(ConfigurationError, match=r"begins the job 'third' .* or correct --job"):
        start("thrid")
    assert not (tmp_path / "thrid").exists()
    start("first")
    start("third")
    start("new")
    assert ids(spark, tmp_path / "first") == list(range(60))
    assert ids(spark, tmp_path / "third") == list(range(40, 60))
    assert ids(spark, tmp_path / "new") == list(range(60))


def test_a_failed_query_is_started_again_and_raises_what_ended_it(
    tmp_path: Path, spark: SparkSession, rows: DataFrame
) -> None:
    bad = rows.withColumn("bad", F.expr("string(raise_error('gone'))"))
    query = to_files(bad, tmp_path, checkpoint=sm.CheckpointConfig(restart_strategy=FAST)).start()
    with pytest.raises(StreamingQueryException, match="gone"):
        query.awaitTermination(60)
    assert query.exception() is not None
    assert query.isActive is False
    failures = (tmp_path / "store/out-location/executions").glob("*/failure.*.json")
    assert len(list(failures)) == 4


def test_a_start_whose_jvm_is_ending_raises(
    tmp_path: Path, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise OSError("Shutdown in progress, cannot add a shutdownHook")

    monkeypatch.setattr(job_run, "stop_before_jvm", refused)
    with pytest.raises(OSError, match="Shutdown in progress"):
        call_within(60, to_files(rows, tmp_path).start)


def test_a_start_returns_while_the_query_is_started_again(
    tmp_path: Path, rate: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart has no query of Spark's yet when `start` looks."""
    with monkeypatch.context() as patched:
        patched.setattr(Supervisor, "query", None)
        query = call_within(60, to_files(rate, tmp_path).start)
    assert query.isActive
    query.stop()


def test_once_and_start_with_arguments(
    tmp_path: Path, spark: SparkSession, rows: DataFrame
) -> None:
    query = (
        sm.write_stream(rows)
        .trigger(once=True)
        .start(
            str(tmp_path / "out"), "parquet", "append", "page", "clicks",
            checkpointLocation=str(tmp_path / "store/clicks"), compression="zstd",
        )
    )  # fmt: skip
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row.id for row in found.collect()) == list(range(40))
    assert {path.name for path in (tmp_path / "out").glob("page=*")} == {
        "page=p0",
        "page=p1",
        "page=p2",
    }


def run_once(writer: DataStreamWriter, location: Path) -> StreamQuery:
    writer = writer.option("checkpointLocation", str(location)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    return query


def test_a_path_alone_takes_sparks_format(
    tmp_path: Path, spark: SparkSession, rows: DataFrame
) -> None:
    """As `DataStreamWriter` does: ``.start("/data/out")``."""
    out = str(tmp_path / "out")
    run_once(sm.write_stream(rows).option("path", out), tmp_path / "store/clicks")
    assert spark.read.parquet(out).count() == 40


def test_csv_and_delta_with_partitions(
    tmp_path: Path, spark: SparkSession, rows: DataFrame
) -> None:
    options = {"csv": {"header": True, "sep": ";", "nullValue": "NULL"}, "delta": {}}
    for ends in (40, 60):
        for format_, given in options.items():
            writer = sm.write_stream(rows).format(format_).options(**given).partitionBy("page")
            writer = writer.option("path", str(tmp_path / format_))
            run_once(writer, tmp_path / f"store/{format_}")
        csv = spark.read.csv(str(tmp_path / "csv"), header=True, sep=";")
        assert sorted(int(row.id) for row in csv.collect()) == list(range(ends))
        table = QueryBuilder().register("t", DeltaTable(str(tmp_path / "delta")))
        found = pa.table(
            table.execute("SELECT id FROM t WHERE page IN ('p0', 'p1', 'p2')").read_all()
        )
        assert sorted(found["id"].to_pylist()) == list(range(ends))
        add(tmp_path, range(40, 60))


def test_a_location_that_readers_do_not_see_may_lie_within_the_files(
    tmp_path: Path, rows: DataFrame, spark: SparkSession
) -> None:
    out = tmp_path / "out"
    for more in (range(40, 50), range(50, 60)):
        add(tmp_path, more)
        writer = to_files(rows, tmp_path).partitionBy("page").trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{out}/_checkpoints").start()
        query.awaitTermination()
        assert query.job.declaration.name == "checkpoints"
    assert ids(spark, out) == list(range(60))
    assert jobs_in(str(out)) == ["_checkpoints"]


@pytest.mark.parametrize("name", ["page ", " ", "a.b", "a`b", "a,b"])
def test_a_partition_column_has_its_very_name(tmp_path: Path, rows: DataFrame, name: str) -> None:
    named = rows.select("id", rows["page"].alias(name))
    writer = sm.write_stream(named).format("json").partitionBy(name)
    run_once(writer.option("path", str(tmp_path / "out")), tmp_path / "store/q")
    found = {path.parent.name for path in (tmp_path / "out").rglob("part-*")}
    assert found == {f"{name}=p{i}" for i in range(3)}


@pytest.mark.parametrize("make", [PostgresServer, MariaDBServer, MySQLServer])
def test_jdbc_writes_rows_and_counts(
    make: type[PostgresServer | MariaDBServer], tmp_path: Path, rows: DataFrame
) -> None:
    for server in serving(make):
        url = urlsplit(server.url())
        given = {
            "url": f"jdbc:{url.scheme}://127.0.0.1:{url.port}{url.path}",
            "user": url.username,
            "password": unquote(url.password or ""),
            "driver": "org.example.Driver",
        }
        counts = rows.groupBy("page").count()
        for ends in (40, 60):
            writer = sm.write_stream(rows).format("jdbc").options(dbtable="clicks", **given)
            run_once(writer, tmp_path / "store/clicks")
            writer = sm.write_stream(counts).format("jdbc").options(dbtable="counts", **given)
            run_once(writer.option("keys", "page").outputMode("update"), tmp_path / "store/counts")
            found = server.execute("SELECT id FROM clicks ORDER BY id")
            assert list(found) == [(n,) for n in range(ends)]
            found = [
                # The sink's keys on MySQL before 8.0.17 are VARBINARY.
                (page.decode() if isinstance(page, bytes) else page, count)
                for page, count in server.execute("SELECT page, count FROM counts ORDER BY page")
            ]
            assert found == [(f"p{i}", len(range(i, ends, 3))) for i in range(3)]
            add(tmp_path, range(40, 60))


def test_a_sink_object_and_its_dead_letters(
    tmp_path: Path, spark: SparkSession, rows: DataFrame
) -> None:
    sink = sm.SQLiteSink(tmp_path / "sink.db", "clicks")
    with database.connect(sink.path) as cursor:
        cursor.execute("CREATE TABLE clicks (id INTEGER CHECK (id % 10 <> 7), page TEXT)")
    bad = sm.FileSink(str(tmp_path / "bad"), "json")
    writer = sm.write_stream(rows, sink, on_bad_row="dead_letter", dead_letters=bad)
    query = run_once(writer, tmp_path / "store/clicks")
    assert "into sink.dead-letters: exactly-once" in str(query.job.report())
    found = read_column(tmp_path / "sink.db", "clicks", "id")
    assert sorted(found) == [i for i in range(40) if i % 10 != 7]
    refused = spark.read.json(str(tmp_path / "bad")).collect()
    assert sorted(letter.row.id for letter in refused) == [7, 17, 27, 37]


def test_foreach_batch_gets_each_epochs_rows_and_a_token(tmp_path: Path, rows: DataFrame) -> None:
    seen: list[tuple[Any, int, list[str]]] = []

    def keep(frame: DataFrame, token: Any) -> None:
        seen.append((token, frame.count(), frame.columns))

    def run(writer: DataStreamWriter, name: str) -> None:
        writer = writer.option("checkpointLocation", str(tmp_path / "store" / name))
        writer.trigger(availableNow=True).start().awaitTermination()

    run(sm.write_stream(rows).foreach_batch(keep), "tokens")
    run(sm.write_stream(rows).foreachBatch(keep), "numbers")
    (token, *first), (number, *second) = seen
    assert first == second == [40, ["id", "page"]]
    assert isinstance(token, sm.EpochToken)
    assert (token.epoch, number) == (0, 0)


def test_an_exception_of_the_function_ends_the_query_and_the_next_start_calls_it_again(
    tmp_path: Path, rows: DataFrame
) -> None:
    tokens = []

    def fail_once(frame: DataFrame, token: sm.EpochToken) -> None:
        tokens.append((token, frame.count()))
        if len(tokens) == 1:
            raise ValueError("not today")

    def start() -> StreamQuery:
        writer = sm.write_stream(rows).foreach_batch(fail_once)
        writer = writer.option("checkpointLocation", str(tmp_path / "store/once"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(sm.SendRefusedError, match="not today"):
        start().awaitTermination()
    start().awaitTermination()
    assert len(tokens) == 2
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("by_subquery", [False, True])
def test_a_table_that_the_query_joins_has_the_rows_of_the_epoch_before(
    tmp_path: Path, spark: SparkSession, by_subquery: bool
) -> None:
    """As with Spark's own writer: its next batch reads what the function has written. The function
    fails once, and once the query is stopped meanwhile: both while Spark waits for the commit."""
    url = f"jdbc:derby:memory:{tmp_path.name};create=true"
    spark.range(0).write.jdbc(url, "seen")
    calls: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def add(frame: DataFrame, epoch: int) -> None:
        calls.append(epoch)
        new = frame.sparkSession.createDataFrame(frame.collect(), "id BIGINT")
        if len(calls) == 2:
            raise ValueError("not today")
        if len(calls) == 4:
            entered.set()
            assert go_on.wait(60)
        time.sleep(0.5)  # an epoch beside it would have read the table by then
        new.write.jdbc(url, "seen", mode="append")

    def start() -> StreamQuery:
        stream = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)
        stream, seen = stream.json(str(tmp_path / "in")), spark.read.jdbc(url, "seen")
        if by_subquery:
            stream.createOrReplaceTempView("arrived")
            seen.createOrReplaceTempView("seen")
            where = "WHERE NOT EXISTS (SELECT 1 FROM seen WHERE seen.id = arrived.id)"
            new = spark.sql(f"SELECT id FROM arrived {where}")
        else:
            new = stream.join(seen, "id", "left_anti")
        writer = sm.write_stream(new).foreachBatch(add)
        writer = writer.option("checkpointLocation", str(tmp_path / "store/new"))
        return writer.trigger(availableNow=True).start()

    (tmp_path / "in").mkdir()
    for first in range(0, 24, 3):
        lines = [json.dumps({"id": i}) for i in range(first, first + 6)]
        (tmp_path / f"in/{first:02}.json").write_text("\n".join(lines))
    with pytest.raises(sm.SendRefusedError, match="not today"):
        start().awaitTermination()
    query = start()
    assert entered.wait(60)
    threading.Timer(0.5, go_on.set).start()
    query.stop()
    assert query.exception() is None
    start().awaitTermination()
    assert sorted(row.id for row in spark.read.jdbc(url, "seen").collect()) == [*range(27)]


def test_a_udf_sees_what_the_function_has_kept_of_the_epoch_before(
    tmp_path: Path, spark: SparkSession
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()

    def keep(frame: DataFrame, epoch: int) -> None:
        rows = frame.collect()
        time.sleep(0.5)  # an epoch beside it would have looked by then
        for row in rows:
            (kept / f"{epoch}-{row.id}").touch()

    def is_new(n: int) -> bool:
        return not list(kept.glob(f"*-{n}"))

    (tmp_path / "in").mkdir()
    for first in range(0, 12, 3):
        lines = [json.dumps({"id": i}) for i in range(first, first + 6)]
        (tmp_path / f"in/{first:02}.json").write_text("\n".join(lines))
    stream = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)
    new = stream.json(str(tmp_path / "in")).where(F.udf(is_new, "boolean")("id"))
    writer = sm.write_stream(new).foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(tmp_path / "store/new"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(int(path.name.partition("-")[2]) for path in kept.iterdir()) == [*range(15)]


@pytest.mark.parametrize(
    "interval", ["500 milliseconds", "interval 2 hours -1 minute", "1.5 SECONDS"]
)
def test_every_interval_that_spark_takes(rate: DataFrame, interval: str) -> None:
    sm.write_stream(rate).trigger(processingTime=interval)


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"processingTime": "5 parsecs"}, "'5 parsecs'.*500 milliseconds"),
        ({"processingTime": "1 month"}, "'1 month'"),
        ({"continuous": "1 second"}, "continuous is not supported.*execution"),
        ({"availableNow": False}, "availableNow is False"),
        ({}, "no argument"),
        ({"once": True, "availableNow": True}, "once, availableNow; give exactly one"),
    ],
)
def test_a_trigger_that_cannot_be(rate: DataFrame, trigger: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        sm.write_stream(rate).trigger(**trigger)


def test_what_does_not_fit_together_is_refused_by_name(tmp_path: Path, rate: DataFrame) -> None:
    location = str(tmp_path / "store/rate")
    sink = sm.FileSink(str(tmp_path / "out"))
    for writer, said in (
        (sm.write_stream(rate).format("json"), "nothing says where the checkpoint lies"),
        (sm.write_stream(rate).option("checkpointLocation", location), "where the rows go"),
        (sm.write_stream(rate, sink).option("checkpointLocation", location).option("path", "/x"),
         "path and a sink are given"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=said):
            writer.start()
    with pytest.raises(ConfigurationError, match="streaming DataFrame"):
        sm.write_stream(rate.sparkSession.range(1))
    with pytest.raises(ConfigurationError, match=r"sink is the class FileSink; make one: FileSink"):
        sm.write_stream(rate, sm.FileSink)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"write_stream: dead_letters is the class FileSi"):
        sm.write_stream(rate, sink, dead_letters=sm.FileSink)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"write_stream: sink is str; give a sm\.…Sink"):
        sm.write_stream(rate, "kafka")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the option checkpointLocation says where"):
        sm.write_stream(rate, checkpoint=sm.CheckpointConfig(storage="/s"))
    assert not Path(location).exists()


THREADS = """
import sys, threading, time
import seamark as sm
from pyspark.sql import SparkSession
out, location = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").getOrCreate()

def work():
    rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    writer = sm.write_stream(rows).format("json").option("path", out)
    query = writer.option("checkpointLocation", location).trigger(processingTime="1 second").start()
    begun.set()
    main.join()
    newest = query.lastProgress
    wanted = 2 + (newest.batchId if newest else 0)
    while query.isActive and (query.lastProgress is None or query.lastProgress.batchId < wanted):
        time.sleep(0.1)
    print("runs", query.isActive, flush=True)
    query.stop()
    [t.join(5) for t in threading.enumerate() if t.name == "seamark-end"]
    print("left", [t.name for t in threading.enumerate() if t.name == "seamark-end"], flush=True)

main, begun = threading.main_thread(), threading.Event()
threading.Thread(target=work).start()
begun.wait(120)
"""


def test_a_programs_own_thread_keeps_its_query_when_the_main_thread_has_ended(
    tmp_path: Path,
) -> None:
    """And an ended query leaves no thread behind."""
    command = [sys.executable, "-c", THREADS, str(tmp_path / "out"), str(tmp_path / "s/location")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-2:] == ["runs True", "left []"], done.stderr


PROMPT = """
import os, pathlib, signal, sys, threading, time
import seamark as sm
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").getOrCreate()
job = sm.Job("prompt", sm.CheckpointConfig(storage=os.environ["STORE"], interval="100ms"))
rows = job.source(spark.readStream.format("rate").load(), uid="rate", replayable=True)
_ = job.sink(rows.selectExpr("string(value) AS value"), sm.FileSink(os.environ["OUT"]), uid="out")
store = pathlib.Path(os.environ["STORE"])
def interrupt():
    while not list(store.glob("prompt/epochs/*/committed.json")):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
levels = spark._jvm.org.apache.logging.log4j.LogManager
before = levels.getRootLogger().getLevel().toString()
job.run()
print("level", before, levels.getRootLogger().getLevel().toString(), flush=True)
"""


def test_ctrl_c_at_a_prompt_leaves_sparks_log_as_it_was(tmp_path: Path) -> None:
    environment = {**os.environ, "STORE": str(tmp_path / "store"), "OUT": str(tmp_path / "out")}
    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=PROMPT, env=environment, capture_output=True, text=True,
        timeout=300, check=True,
    )  # fmt: skip
    (line,) = [line for line in done.stdout.splitlines() if "level" in line]
    before, after = line.split()[-2:]
    assert before == after != "OFF", done.stderr


STOPPED = """
import sys, time
import seamark as sm
from pyspark.sql import SparkSession
out, location, wanted = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
writer = sm.write_stream(rows).format("json").option("path", out)
query = writer.option("checkpointLocation", location).trigger(processingTime="1 second").start()
while query.lastProgress is None or query.lastProgress.batchId < int(wanted):
    time.sleep(0.1)
spark.stop()
"""


def test_a_program_that_stops_spark_ends_its_queries_in_order(tmp_path: Path) -> None:
    """As many scripts do in their last line, without `query.stop()`."""
    out = tmp_path / "out"
    for wanted in (2, 5):
        command = [sys.executable, "-c", STOPPED, str(out), str(tmp_path / "s/location")]
        done = subprocess.run([*command, str(wanted)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        (job,) = list_jobs((tmp_path / "s").as_uri())
        assert (job.state, job.reason) == (JobState.FINISHED, "")
        numbers = [json.loads(line)["value"] for file in out.glob("*.json")
                   for line in file.read_text().splitlines()]  # fmt: skip
        assert sorted(numbers) == list(range(len(numbers)))
        assert len(numbers) >= (wanted - 1) * 50


TWO_QUERIES = """
import seamark as sm
from pyspark.sql import SparkSession
rows = SparkSession.builder.getOrCreate().readStream.schema("id BIGINT").json({there!r})
for name in ("clicks", "views"):
    location = {there!r} + "/out/" + name + "/_checkpoints"
    writer = sm.write_stream(rows).option("checkpointLocation", location)
    writer.format("json").start({there!r} + "/out/" + name)
"""


def test_explain_shows_both_of_two_queries_of_one_name(tmp_path: Path, spark: SparkSession) -> None:
    """Their locations have the same last part, which names them."""
    app = tmp_path / "app.py"
    app.write_text(TWO_QUERIES.format(there=str(tmp_path)))
    second = f"checkpoints in file://{tmp_path}/out/views/_checkpoints"
    assert [*explain(app)] == ["checkpoints", second]
