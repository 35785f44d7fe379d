"""The session of a function for each epoch is the query's own, as in Spark; `twins.py` says how.
Recovery by the next driver: `test_an_epoch_sent_by_the_next_start_gets_the_same_session`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.spark.session import spark_session
from tests.spark.streaming.twins import Twin, both

WAIT_S = 120.0


def ids(rows: DataFrame) -> list[int]:
    return sorted(row.id for row in rows.collect())


def run_all(query: Any) -> None:
    assert query.awaitTermination(WAIT_S) is True


def views(spark: SparkSession) -> set[str]:
    return {table.name for table in spark.catalog.listTables() if table.isTemporary}


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of the test's own, with a view, a function and a setting."""
    own = spark.newSession()
    own.range(1).selectExpr("41 AS id").createOrReplaceTempView("programs")
    own.udf.register("next_id", lambda i: i + 1, "long")
    own.conf.set("my.setting", "at the start")
    yield own


def test_views_settings_and_functions_are_those_of_the_declaring_session(
    tmp_path: Path, session: SparkSession
) -> None:
    """Also what the function leaves there: it stays for the next epoch, and reaches nobody else."""

    def scenario(twin: Twin) -> Any:
        seen: list[Any] = []

        def function(frame: DataFrame, epoch: int) -> None:
            own = frame.sparkSession
            found = views(own) - {"declared_late"}
            frame.createOrReplaceTempView("updates")
            own.udf.register(f"of_epoch_{epoch}", lambda i: -i, "long")
            own.sql("SELECT * FROM updates").createOrReplaceTempView(f"seen_{epoch}")
            seen.append(
                (
                    epoch,
                    found,
                    own.conf.get("my.setting"),
                    own.conf.get("the.functions", None),
                    own.sql("SELECT next_id(id) AS id FROM programs").first().id,
                    ids(own.sql("SELECT of_epoch_0(id) AS id FROM updates")),
                    own.streams.active,
                    own is session,
                    own._jsparkSession.equals(session._jsparkSession),
                    own.catalog.currentDatabase(),
                    own.sparkContext is session.sparkContext,
                )
            )
            own.conf.set("the.functions", str(epoch))
            own.conf.set("my.setting", f"by epoch {epoch}")

        twin.add(1, 2)
        query = twin.write(twin.read(session)).foreachBatch(function).start()
        session.conf.set("my.setting", "after the start")
        query.processAllAvailable()
        twin.add(3)
        query.processAllAvailable()
        query.stop()
        left = views(session), session.conf.get("the.functions", None)
        assert session.conf.get("my.setting") == "after the start"
        session.conf.set("my.setting", "at the start")
        assert not session.catalog.functionExists("of_epoch_0")
        return seen, left

    (first, second), left = both(scenario, tmp_path, session)
    assert first[:6] == (0, {"programs"}, "at the start", None, 42, [-2, -1])
    assert second[:5] == (1, {"programs", "updates", "seen_0"}, "by epoch 0", "0", 42)
    assert left == ({"programs"}, None)


def test_two_queries_with_one_views_name_keep_their_rows(
    tmp_path: Path, session: SparkSession
) -> None:
    def scenario(twin: Twin) -> Any:
        together = threading.Barrier(2, timeout=WAIT_S)

        def function(out: str) -> Callable[[DataFrame, int], None]:
            def write(frame: DataFrame, epoch: int) -> None:
                frame.createOrReplaceTempView("updates")
                frame.sparkSession.conf.set("which", out)
                together.wait()  # both views are there
                which = frame.sparkSession.conf.get("which")
                rows = frame.sparkSession.sql("SELECT * FROM updates")
                rows.write.mode("append").json(str(twin.directory / str(which)))

            return write

        twin.add(1, 2, to="a")
        twin.add(3, 4, to="b")
        queries = [
            twin.write(twin.read(session, of), of)
            .foreachBatch(function(f"out-{of}"))
            .trigger(availableNow=True)
            .start()
            for of in ("a", "b")
        ]
        for query in queries:
            run_all(query)
        return [ids(session.read.json(str(twin.directory / f"out-{of}"))) for of in ("a", "b")]

    assert both(scenario, tmp_path, session) == [[1, 2], [3, 4]]


def test_the_functions_thread_has_the_callers_properties_and_tags(
    tmp_path: Path, session: SparkSession
) -> None:
    context = session.sparkContext

    def scenario(twin: Twin) -> Any:
        seen: list[Any] = []

        def function(frame: DataFrame, epoch: int) -> None:
            own, got = frame.sparkSession, context.getLocalProperty
            description = str(got("spark.job.description"))
            active = own._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession()
            seen.append(
                {
                    "pool": got("spark.scheduler.pool"),
                    "own": got("of.the.function"),
                    "batch": got("streaming.sql.batchId"),
                    "query": got("sql.streaming.queryId") == query.id,
                    "description": [
                        line.replace(query.id, "ID").replace(query.runId, "RUN")
                        for line in description.splitlines()
                    ],
                    "callers group": got("spark.jobGroup.id") == "callers",
                    "session tags": own.getTags(),
                    "job tag": "callers" in context.getJobTags(),
                    "active": active.get().equals(own._jsparkSession),
                    "active in Python": SparkSession.getActiveSession() is not None,
                }
            )
            context.setLocalProperty("of.the.function", str(epoch))
            own.addTag(f"of-epoch-{epoch}")

        def start() -> Any:
            context.setLocalProperty("spark.scheduler.pool", "mine")
            context.setJobGroup("callers", "what the caller does")
            context.addJobTag("callers")
            session.addTag("of-session")
            return twin.write(twin.read(session)).queryName("named").foreachBatch(function).start()

        try:
            query = start()
        finally:
            context.setLocalProperty("spark.scheduler.pool", None)
            context._jsc.sc().clearJobGroup()
            context.clearJobTags()
            session.clearTags()
        twin.add(1)
        query.processAllAvailable()
        twin.add(2)
        query.processAllAvailable()
        query.stop()
        assert context.getLocalProperty("of.the.function") is None
        return seen

    first, second = both(scenario, tmp_path, session)
    assert first == {
        "pool": "mine",
        "own": None,
        "batch": "0",
        "query": True,
        "description": ["named", "id = ID", "runId = RUN", "batch = 0"],
        "callers group": False,
        "session tags": {"of-session"},
        "job tag": True,
        "active": True,
        "active in Python": True,
    }
    assert (second["own"], second["session tags"]) == ("0", {"of-session", "of-epoch-0"})


def test_a_function_may_use_its_rows_as_often_as_it_likes(
    tmp_path: Path, session: SparkSession
) -> None:
    def scenario(twin: Twin) -> Any:
        seen: list[Any] = []

        def function(frame: DataFrame, epoch: int) -> None:
            frame.persist()
            made = frame.sparkSession.createDataFrame([(7,)], frame.schema)
            seen.append(
                (
                    epoch,
                    frame.isStreaming,
                    frame.count(),
                    ids(frame.union(made)),
                    ids(frame.sparkSession.read.json(str(twin.directory / "in"))),
                    frame.is_cached,
                )
            )
            frame.unpersist()
            frame.write.mode("append").saveAsTable(f"kept_by_{twin.side}")

        session.sql(f"DROP TABLE IF EXISTS kept_by_{twin.side}")
        twin.add(1, 2)
        try:
            writer = twin.write(twin.read(session)).foreachBatch(function)
            run_all(writer.trigger(availableNow=True).start())
            return seen, ids(session.table(f"kept_by_{twin.side}"))
        finally:
            session.sql(f"DROP TABLE IF EXISTS kept_by_{twin.side}")

    seen, kept = both(scenario, tmp_path, session)
    assert seen[0] == (0, False, 2, [1, 2, 7], [1, 2], True)
    assert kept == [1, 2]


def test_a_job_begun_after_a_function_has_made_a_dataframe_has_the_programs_session(
    tmp_path: Path, spark: SparkSession
) -> None:
    made: list[int] = []

    def function(frame: DataFrame, epoch: int) -> None:
        made.append(frame.sparkSession.createDataFrame([(7,)], "id LONG").count())

    twin = Twin("seamark", tmp_path / "seamark", spark)
    twin.add(1)
    run_all(twin.write(twin.read(spark)).foreachBatch(function).trigger(availableNow=True).start())
    assert made == [1]
    assert spark_session("another")._jsparkSession.equals(spark._jsparkSession)


@pytest.mark.parametrize(
    "columns",
    [
        ["a.id", "b.id", "a.v"],  # one name twice, as a join leaves them
        ["a.id AS Id", "b.id AS iD"],
        ["a.id AS _seamark_epoch", "a.v AS `_Seamark`"],
        ["a.id AS `0~id`", "a.v AS `1~`"],  # as a column is numbered
        ["a.id AS `~`"],
        [],
    ],
    ids=["twice", "by case", "reserved", "numbered", "mark", "none"],
)
def test_columns_of_any_names_come_to_a_function_as_they_are(
    columns: list[str], tmp_path: Path, session: SparkSession
) -> None:
    def scenario(twin: Twin) -> Any:
        seen: list[Any] = []

        def function(frame: DataFrame, epoch: int) -> None:
            rows = sorted(tuple(row) for row in frame.collect())
            seen.append((frame.columns, frame.dtypes, rows, frame.count()))

        twin.add(1, 2)
        a = twin.read(session).selectExpr("id", "concat('v', id) AS v").alias("a")
        b = session.range(1, 3).alias("b")
        joined = a.join(b, F.col("a.id") == F.col("b.id")).selectExpr(*columns)
        run_all(twin.write(joined).foreachBatch(function).trigger(availableNow=True).start())
        return seen

    ((names, _, rows, count),) = both(scenario, tmp_path, session)
    assert (len(names), len(rows), count) == (len(columns), 2, 2)


def test_a_function_that_stops_its_own_query_ends_it(tmp_path: Path, session: SparkSession) -> None:
    def scenario(twin: Twin) -> Any:
        queries: list[Any] = []
        ready = threading.Event()
        calls = []

        def function(frame: DataFrame, epoch: int) -> None:
            assert ready.wait(WAIT_S)
            calls.append(epoch)
            for wait in (queries[0].awaitTermination, queries[0].processAllAvailable):
                if epoch == 0:
                    with pytest.raises(Exception, match=r"same thread|this very query"):
                        wait()
            queries[0].stop()

        twin.add(1)
        twin.add(2)
        queries.append(twin.write(twin.read(session)).foreachBatch(function).start())
        ready.set()
        run_all(queries[0])
        return calls[0], queries[0].exception(), queries[0].isActive

    assert both(scenario, tmp_path, session) == (0, None, False)


def test_two_functions_of_one_job_have_a_session_each(
    tmp_path: Path, session: SparkSession
) -> None:
    twin = Twin("seamark", tmp_path / "job", session)
    twin.add(1, 2)
    twin.add(3)
    seen: list[Any] = []

    def function(name: str) -> Callable[[DataFrame, sm.EpochToken], None]:
        def call(frame: DataFrame, token: sm.EpochToken) -> None:
            frame.createOrReplaceTempView(f"updates_{name}")
            own = frame.sparkSession
            seen.append((name, token.epoch, views(own), own.conf.get("my.setting", None)))
            own.conf.set("my.setting", f"of {name}")

        return call

    job = sm.Job("functions", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    source = sm.FileSource(
        str(twin.directory / "in"), "json", "id BIGINT", ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )  # fmt: skip
    active = SparkSession.getActiveSession()
    rows = job.source(source, uid="in")
    for name in ("a", "b"):
        job.sink(rows, sm.WriteAheadSink.foreach_batch(function(name)), uid=name)
    job.run()
    both_ = {"updates_a", "updates_b"}
    of_a = [(epoch, own & both_, value) for name, epoch, own, value in seen if name == "a"]
    assert [(epoch, own) for epoch, own, _ in of_a] == [(0, {"updates_a"}), (1, {"updates_a"})]
    assert [value for _, _, value in of_a][1] == "of a"
    assert active is not None
    assert not both_ & views(active)


def test_an_epoch_sent_by_the_next_start_gets_the_same_session(
    tmp_path: Path, session: SparkSession
) -> None:
    """The first driver's call fails, so the next start calls it before its query exists."""
    twin = Twin("seamark", tmp_path / "again", session)
    twin.add(1, 2)
    seen: list[Any] = []

    def function(frame: DataFrame, epoch: int) -> None:
        own = frame.sparkSession
        frame.createOrReplaceTempView("updates")
        seen.append(
            (
                epoch,
                views(own) >= {"programs", "updates"},
                own.conf.get("my.setting"),
                own.sql("SELECT next_id(id) AS id FROM programs").first().id,
                own.sparkContext.getLocalProperty("spark.scheduler.pool"),
                own.conf.get("of.this.run", None),
            )
        )
        own.conf.set("of.this.run", "yes")
        if len(seen) == 1:
            raise ValueError("not today")

    def run() -> None:
        session.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
        try:
            writer = twin.write(twin.read(session)).foreachBatch(function)
            query = writer.trigger(availableNow=True).start()
        finally:
            session.sparkContext.setLocalProperty("spark.scheduler.pool", None)
        run_all(query)

    with pytest.raises(sm.SendRefusedError, match="not today"):
        run()
    session.conf.set("my.setting", "at the next start")
    twin.add(3)
    run()
    assert seen == [
        (0, True, "at the start", 42, "mine", None),
        (0, True, "at the next start", 42, "mine", None),
        (1, True, "at the next start", 42, "mine", "yes"),
    ]
    assert "updates" not in views(session)
    assert session.conf.get("of.this.run", None) is None


def test_sparks_batch_writer_has_the_declaring_sessions_settings(
    tmp_path: Path, session: SparkSession
) -> None:
    """The CSV writer's zone is a setting of the session."""
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    twin = Twin("seamark", tmp_path / "format", session)
    twin.add(0)
    sink = sm.WriteAheadSink.spark_format("csv", {"path": str(tmp_path / "out")})
    writer = sm.write_stream(twin.read(session).selectExpr("timestamp_seconds(id) AS at"), sink)
    writer = writer.option("checkpointLocation", str(tmp_path / "store/format"))
    run_all(writer.trigger(availableNow=True).start())
    (file,) = (tmp_path / "out").glob("*.csv")
    assert file.read_text().startswith("1970-01-01T09:00:00")
