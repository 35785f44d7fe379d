"""What PySpark's own tests of streaming show that users rely on, with `sm.write_stream(df)` in the
place of `df.writeStream`; `twins.py` says how. What differs is in docs/write-stream.md."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

import seamark as sm
from tests.spark.streaming.twins import Twin, both

WAIT_S = 120.0


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def to_files(twin: Twin, frame: DataFrame, **how: str) -> Any:
    return twin.write(frame).format("json").option("path", str(twin.directory / "out"))


def ids(twin: Twin, directory: str = "out") -> list[int]:
    rows = twin.spark.read.schema("id BIGINT").json(str(twin.directory / directory))
    return sorted(row.id for row in rows.collect())


def kind(call: Callable[[], Any]) -> list[str]:
    """Return the names of the kinds of error that a program may catch here."""
    with pytest.raises(Exception) as found:
        call()
    known = (ValueError, TypeError, StreamingQueryException)
    return [one.__name__ for one in known if isinstance(found.value, one)]


class Listener(StreamingQueryListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.started: list[Any] = []
        self.progress: list[Any] = []
        self.ended: list[Any] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        self.started.append(event)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.progress.append(event.progress)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.ended.append(event)


def of(query: Any, events: list[Any]) -> list[Any]:
    return [event for event in events if str(event.id) == query.id]


def test_a_querys_names(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    def scenario(twin: Twin) -> Any:
        spark.streams.resetTerminated()
        query = to_files(twin, twin.read()).queryName("this_query").start()
        try:
            none_yet = query.awaitTermination(0.2), query.exception(), query.isActive
            twin.add(1, 2)
            query.processAllAvailable()
            until(lambda: query.lastProgress is not None and query.recentProgress)
            last = query.lastProgress
            query.explain()
            printed = capsys.readouterr().out
            query.explain(True)
            extended = capsys.readouterr().out
            active = spark.streams.get(query.id)
            assert active is not None
            shown = {
                "none yet": none_yet,
                "name": query.name,
                "ids": all(re.fullmatch(r"[0-9a-f-]{36}", i) for i in (query.id, query.runId)),
                "progress": (last.name, str(last.id) == query.id, str(last.runId) == query.runId),
                "by key": (last["name"], str(last["id"]) == query.id),
                "in recent": any(one.batchId == last.batchId for one in query.recentProgress),
                "status": sorted(query.status),
                "explain": ("Physical Plan" in printed, "Analyzed Logical Plan" in extended),
                "active": (active.runId == query.runId, active.name),
                "among": query.id in [one.id for one in spark.streams.active],
                "any": spark.streams.awaitAnyTermination(0.2),
                "bad wait": [kind(partial(query.awaitTermination, w)) for w in ("hello", 0, -1)],
            }
        finally:
            query.stop()
        query.stop()
        return shown, {
            "active": query.isActive,
            "exception": query.exception(),
            "awaited": (query.awaitTermination(), query.awaitTermination(1)),
            "get": spark.streams.get(query.id),
            "last": query.lastProgress.name,
            "rows": ids(twin),
        }

    shown, after = both(scenario, tmp_path, spark)
    assert shown["none yet"] == (False, None, True)
    assert shown["progress"] == ("this_query", True, True)
    assert shown["bad wait"] == [["ValueError"]] * 3
    assert after["rows"] == [1, 2]


ODD_NAMES = ["Orders by minute", "a/b", "日本", "_hidden", "50%41", "x" * 200, " blank ", 'q"uo?#']


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_query_may_have_any_name(tmp_path: Path, spark: SparkSession, name: str) -> None:
    """And a location any last part. The second run goes on where the first one ended."""

    def scenario(twin: Twin) -> Any:
        seen = []
        for number in (1, 2):
            twin.add(number)
            writer = to_files(twin, twin.read()).queryName(name)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination(60)
            seen.append((query.name, query.lastProgress.name, ids(twin)))
        twin.add(3)
        of_the_location = twin.write(twin.read(), name.strip()[:100]).format("json")
        query = of_the_location.trigger(availableNow=True).start(str(twin.directory / "other"))
        query.awaitTermination(60)
        return *seen, (query.name, ids(twin, "other"))

    first, second, third = both(scenario, tmp_path, spark)
    assert (first[2], second[2], third[1]) == ([1], [1, 2], [1, 2, 3])


@pytest.mark.parametrize("name", ["", " ", None, 7])
def test_a_name_that_is_none(tmp_path: Path, spark: SparkSession, name: Any) -> None:
    def scenario(twin: Twin) -> Any:
        with pytest.raises(Exception, match=r"(?i)queryName"):
            to_files(twin, twin.read()).queryName(name)

    both(scenario, tmp_path, spark)


def test_a_name_that_is_taken_is_refused_and_its_query_goes_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    """A notebook's cell runs once more, by mistake."""

    def scenario(twin: Twin) -> Any:
        query = to_files(twin, twin.read()).queryName("taken").start()
        try:
            twin.add(1, 2)
            query.processAllAvailable()
            elsewhere = twin.write(twin.read(), "elsewhere").format("json").queryName("taken")
            for again in (
                to_files(twin, twin.read()).queryName("taken"),
                elsewhere.option("path", str(twin.directory / "elsewhere")),
            ):
                with pytest.raises(Exception, match="taken"):
                    again.start()
            twin.add(3, 4)
            query.processAllAvailable()
            shown = query.isActive, query.exception(), ids(twin)
        finally:
            query.stop()
        return shown

    assert both(scenario, tmp_path, spark) == (True, None, [1, 2, 3, 4])
    assert not (tmp_path / "seamark/store/elsewhere").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"once": True, "processingTime": "5 seconds"},
        {"processingTime": "5 seconds", "continuous": "1 second"},
        {"processingTime": ""},
        {"processingTime": 5},
        {"once": False},
        {"availableNow": False},
    ],
)
def test_a_wrong_trigger_is_a_value_error(
    arguments: dict[str, Any], tmp_path: Path, spark: SparkSession, rate: DataFrame
) -> None:
    both(lambda twin: kind(lambda: twin.write(rate).trigger(**arguments)), tmp_path, spark)


def test_a_trigger_has_a_name(tmp_path: Path, spark: SparkSession, rate: DataFrame) -> None:
    found = both(lambda twin: kind(lambda: twin.write(rate).trigger("5 seconds")), tmp_path, spark)
    assert found == ["TypeError"]


def test_options_and_arguments_of_start(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        twin.add(1, 2)
        fake = twin.directory / "fake"
        query = (
            twin.write(twin.read().withColumn("part", F.lit(7)))
            .option("checkpointLocation", str(fake))
            .queryName("fake_query")
            .format("parquet")
            .outputMode("complete")
            .start(
                path=str(twin.directory / "out"),
                format="json",
                outputMode="append",
                partitionBy=["part"],
                queryName="this_query",
                checkpointLocation=twin.directory / "store/query",
            )
        )
        query.processAllAvailable()
        query.stop()
        places = [path.name for path in (twin.directory / "out").iterdir()]
        made = (twin.directory / "store/query/commits/0").exists(), fake.exists()
        return query.name, ids(twin), "part=7" in places, made

    assert both(scenario, tmp_path, spark) == ("this_query", [1, 2], True, (True, False))


def test_a_path_given_twice(tmp_path: Path, spark: SparkSession) -> None:
    """Spark refuses it; here that of `start` holds, as every other argument of it."""
    for side, error in (("spark", AnalysisException), ("seamark", None)):
        twin = Twin(side, tmp_path / side, spark)
        twin.add(1)
        writer = to_files(twin, twin.read()).option("path", str(tmp_path / "fake"))
        start = partial(writer.trigger(availableNow=True).start, str(twin.directory / "out"))
        if error is not None:
            with pytest.raises(error):
                start()
        else:
            assert start().awaitTermination(WAIT_S) is True
            assert (ids(twin), (tmp_path / "fake").exists()) == ([1], False)


def test_a_failing_row_ends_the_query(tmp_path: Path, spark: SparkSession) -> None:
    """Its listener hears of it too."""

    def scenario(twin: Twin) -> Any:
        twin.add(0)
        listener = Listener()
        spark.streams.addListener(listener)
        bad = twin.read().select(F.udf(lambda i: 1 // i, "long")("id").alias("id"))
        query = to_files(twin, bad).start()
        try:
            raised = kind(query.processAllAvailable)
            with pytest.raises(StreamingQueryException, match="ZeroDivisionError") as failed:
                query.awaitTermination()
            error = query.exception()
            until(lambda: of(query, listener.ended))
        finally:
            query.stop()
            spark.streams.removeListener(listener)
        return (
            raised,
            failed.value.getCondition(),
            type(error).__name__,
            "ZeroDivisionError" in str(error),
            query.isActive,
            ["ZeroDivisionError" in event.exception for event in of(query, listener.ended)],
        )

    found = both(scenario, tmp_path, spark)
    assert found[:2] == (["StreamingQueryException"], "STREAM_FAILED")


def test_a_listener_hears_of_the_same_query(tmp_path: Path, spark: SparkSession) -> None:
    """With state and observed metrics."""

    def scenario(twin: Twin) -> Any:
        twin.add(1, 2, 3)
        rows = twin.read().observe("seen", F.count(F.lit(1)).alias("rows"), F.max("id").alias("m"))
        rows = rows.withColumn("at", F.timestamp_seconds("id")).withWatermark("at", "1 second")
        listener = Listener()
        spark.streams.addListener(listener)
        try:
            query = to_files(twin, rows.dropDuplicatesWithinWatermark(["id"]).select("id"))
            query = query.queryName("test").trigger(processingTime="1 second").start()
            query.processAllAvailable()
            query.stop()
            until(lambda: of(query, listener.ended))
        finally:
            spark.streams.removeListener(listener)
        (started,), (ended,) = of(query, listener.started), of(query, listener.ended)
        ids_ = {(str(event.id), str(event.runId)) for event in (started, ended)}
        progress = of(query, listener.progress)
        ids_ |= {(str(one.id), str(one.runId)) for one in progress}
        first = next(one for one in progress if one.numInputRows)
        return {
            "one query": ids_ == {(query.id, query.runId)},
            "name": (started.name, first.name, query.name),
            "ended": (ended.exception, ended.errorClassOnException),
            "observed": [first.observedMetrics["seen"][name] for name in ("rows", "m")],
            "rows": (first.batchId, first.numInputRows),
            "state": [(one.operatorName, one.numRowsUpdated) for one in first.stateOperators],
            "event time": sorted(first.eventTime),
            "durations": sorted(first.durationMs),
            "sources": [re.sub("file:.*", "", one.description) for one in first.sources],
            "offsets": [(one.startOffset, one.endOffset) for one in first.sources],
            "out": ids(twin),
        }

    shown = both(scenario, tmp_path, spark)
    assert shown["one query"] is True
    assert shown["observed"] == [3, 3]


def test_a_table_a_view_and_a_table_again(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        source, view = f"source_of_{twin.side}", f"view_of_{twin.side}"
        spark.sql(f"DROP TABLE IF EXISTS {source}")
        spark.sql(f"CREATE TABLE {source} (id BIGINT) USING parquet")
        try:
            spark.sql(f"INSERT INTO {source} VALUES (1), (2), (3)")
            spark.readStream.table(source).createOrReplaceTempView(view)
            rows = spark.sql(f"SELECT id * 10 AS id FROM {view}")
            query = to_files(twin, rows).trigger(availableNow=True).start()
            return rows.isStreaming, query.awaitTermination(WAIT_S), ids(twin)
        finally:
            spark.catalog.dropTempView(view)
            spark.sql(f"DROP TABLE IF EXISTS {source}")

    assert both(scenario, tmp_path, spark) == (True, True, [10, 20, 30])


@pytest.mark.parametrize("trigger", ["availableNow", "once"])
def test_a_bounded_query_of_sparks_ends_when_its_function_has_returned(
    trigger: str, tmp_path: Path, spark: SparkSession
) -> None:
    """A program may ask `spark.streams` or a listener for its end, and read the target then."""

    def scenario(twin: Twin) -> Any:
        twin.add(1)
        twin.add(2)
        got: list[int] = []

        def function(rows: DataFrame, batch: int) -> None:
            if batch == last:  # of an ended query the end is seen within this time
                deadline = time.monotonic() + 3
                while time.monotonic() < deadline and spark.streams.active:
                    time.sleep(0.05)
            got.extend(row.id for row in rows.collect())
            if fails and batch == last:
                raise KeyError("of the last batch")

        raised = []
        for fails in (False, True):
            writer = twin.write(twin.read(), f"fails-{fails}").foreachBatch(function)
            writer.trigger(**{trigger: True}).start()
            for one in spark.streams.active:
                try:
                    one.awaitTermination()
                except StreamingQueryException as error:
                    raised.append("of the last batch" in str(error))
            assert sorted(got) == [1, 2]
            got.clear()
        until(lambda: len(listener.ended) == 2)
        said = ["of the last batch" in str(event.exception) for event in listener.ended]
        listener.ended.clear()
        return raised, said

    last = 1 if trigger == "availableNow" else 0
    listener = Listener()
    spark.streams.addListener(listener)
    try:
        assert both(scenario, tmp_path, spark) == ([True], [False, True])
    finally:
        spark.streams.removeListener(listener)


def test_a_stop_waits_for_the_function_and_is_no_error(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        called = threading.Event()

        def function(frame: DataFrame, epoch: int) -> None:
            called.set()
            assert frame.sparkSession._jvm is not None
            frame.sparkSession._jvm.java.lang.Thread.sleep(2000)

        twin.add(1)
        query = twin.write(twin.read()).foreachBatch(function).start()
        assert called.wait(WAIT_S)
        query.stop()
        return query.exception(), query.isActive

    assert both(scenario, tmp_path, spark) == (None, False)


def test_an_error_of_the_function_ends_the_query_in_a_class_of_its_own(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The one difference: Spark raises StreamingQueryException. A listener hears of it too."""

    def function(frame: DataFrame, epoch: int) -> None:
        raise RuntimeError("this should fail the query")

    for side, known in (("spark", StreamingQueryException), ("seamark", sm.SendRefusedError)):
        twin = Twin(side, tmp_path / side, spark)
        twin.add(1)
        listener = Listener()
        spark.streams.addListener(listener)
        try:
            query = twin.write(twin.read()).foreachBatch(function).start()
            with pytest.raises(known, match="this should fail the query"):
                query.processAllAvailable()
            assert isinstance(query.exception(), known)
            query.stop()
            until(partial(of, query, listener.ended))
        finally:
            spark.streams.removeListener(listener)
        (event,) = of(query, listener.ended)
        assert "this should fail the query" in event.exception, side


def test_a_collation_reaches_the_function(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        seen: list[Any] = []

        def function(frame: DataFrame, epoch: int) -> None:
            kinds = [field.dataType.simpleString() for field in frame.schema]
            seen.append((kinds, frame.columns, frame.filter("k = 'x'").count()))

        twin.add(1, 2, 3)
        letter = "IF(id = 2, 'X', 'x') COLLATE UTF8_LCASE"
        rows = twin.read().selectExpr(
            "id", f"{letter} AS k", f"array(named_struct('b ~`', {letter})) AS `a.b~`", "id AS ID"
        )
        query = twin.write(rows).foreachBatch(function).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S) is True
        return seen

    ((kinds, _, rows),) = both(scenario, tmp_path, spark)
    assert kinds[1:3] == [
        "string collate UTF8_LCASE", "array<struct<b ~`:string collate UTF8_LCASE>>",
    ]  # fmt: skip
    assert rows == 3


def test_a_vector_reaches_a_function_as_it_is(tmp_path: Path, spark: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        seen: list[Any] = []

        def function(frame: DataFrame, epoch: int) -> None:
            kinds = [field.dataType.simpleString() for field in frame.schema]
            found = frame.select("id", "v", vector_to_array("v").alias("a"), F.size("of it"))
            seen.append((kinds, sorted(map(tuple, found.collect()))))
            seen.append(sorted(frame.rdd.map(lambda row: float(row["of it"][0][1])).collect()))

        twin.add(1, 2, 3)
        rows = twin.read().select("id", array_to_vector(F.array("id", F.lit(0.5))).alias("v"))
        rows = rows.withColumn("of it", F.array("v"))
        query = twin.write(rows).foreachBatch(function).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S) is True
        named = twin.write(rows, "view").format("memory").queryName(f"vectors_{twin.side}")
        named.trigger(availableNow=True).start().awaitTermination(WAIT_S)
        view = spark.table(f"vectors_{twin.side}").orderBy("id").collect()
        return seen, [row.v for row in view]

    seen, view = both(scenario, tmp_path, spark)
    assert seen[0][0] == ["bigint", "vector", "array<vector>"]
    assert seen[0][1][0] == (1, Vectors.dense(1.0, 0.5), [1.0, 0.5], 1)
    assert view[2] == Vectors.dense(3.0, 0.5)


def test_a_collation_reaches_the_function_of_one_of_several_sinks(
    tmp_path: Path, spark: SparkSession
) -> None:
    twin, seen = Twin("job", tmp_path, spark), list[int]()
    twin.add(1, 2)
    job = sm.Job("collated", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    files = sm.FileSource(str(twin.directory / "in"), "json", "id BIGINT", ending="latest")
    rows = job.source(files, "in").selectExpr("IF(id = 1, 'X', 'x') COLLATE UTF8_LCASE AS k")
    sink = sm.WriteAheadSink.foreach_batch(
        lambda frame, _: seen.append(frame.filter("k = 'x'").count())
    )
    job.sink(rows.filter("k = 'x'"), sm.FileSink(str(tmp_path / "out"), format="json"), "files")
    job.sink(rows, sink, "function")
    job.run()
    assert seen == [2]
