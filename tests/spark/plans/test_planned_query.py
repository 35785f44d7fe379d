"""How: programs as users write them, in DataFrames and SQL. Each is planned here, and run by Spark
itself over a few rows; the directories of its state, its offset log and its progress tell what it
is made of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import seamark as sm
from seamark.model.errors import ConfigurationError
from seamark.model.uncaught import last_words
from seamark.run.job_plan import JobPlan
from seamark.spark.operator_uids import OperatorUids, find_uids
from seamark.spark.planned_query import PlannedQuery, name_part
from tests.threads import RunningJob

JOB = "seamark.test"
WINDOWS = "SELECT window(at, '3 seconds') AS w, k, count(*) AS n FROM a GROUP BY 1, 2"


class Tables:
    """Streams `a` and `b` and a table `s`, each also a view of that name."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        for name in ("a", "b", "c"):
            (root / name).mkdir()
            rows = [{"at": f"2026-01-01T00:00:0{n}Z", "k": "xyz"[n], "v": n} for n in range(3)]
            (root / name / "0.json").write_text("\n".join(map(json.dumps, rows)))
        self.a, self.b, self.c = (self._stream(root / name) for name in ("a", "b", "c"))
        self.s = spark.createDataFrame([("x", 1), ("z", 2)], "k STRING, w INT")
        for name in ("a", "b", "c", "s"):
            getattr(self, name).createOrReplaceTempView(name)

    def _stream(self, path: Path) -> DataFrame:
        schema = "at TIMESTAMP, k STRING, v BIGINT"
        return self.spark.readStream.schema(schema).json(str(path)).withWatermark("at", "5 seconds")

    @property
    def windows(self) -> DataFrame:
        return self.a.groupBy(F.window("at", "3 seconds").alias("w"), "k").agg(
            F.sum("v").alias("n"), F.max("v").alias("m")
        )

    def sql(self, text: str) -> DataFrame:
        return self.spark.sql(text)

    def near(self, left: DataFrame, right: DataFrame, how: str = "inner") -> DataFrame:
        on = F.expr("l.k = r.k AND l.at = r.at")
        return left.alias("l").join(right.alias("r"), on, how).select("l.at", "l.k", "r.v")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(spark, tmp_path_factory.mktemp("tables"))


def counted(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    for frame in frames:
        frame["n"] = len(frame)
        yield frame[["k", "n"]]


class Counting(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("n", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:  # noqa: N802
        yield from counted(key, rows, None)

    def close(self) -> None:
        pass


Make = Callable[[Tables], DataFrame]
PROGRAMS: dict[str, tuple[str, Make]] = {
    "no state": ("append", lambda t: t.a.filter("v > 0").select("k")),
    "limit": ("append", lambda t: t.a.limit(2)),
    "two limits": ("append", lambda t: t.a.limit(3).limit(2)),
    "limit of counts, complete": ("complete", lambda t: t.a.groupBy("k").count().limit(2)),
    "sorted and limited": (
        "complete",
        lambda t: t.a.groupBy("k").count().orderBy(F.desc("count")).limit(2),
    ),
    "pruned windows": ("append", lambda t: t.windows.select("k")),
    "filtered windows": ("append", lambda t: t.windows.filter("k = 'x' AND n > 0").select("n")),
    "windows of windows": (
        "append",
        lambda t: t.windows.groupBy(F.window(F.window_time("w"), "9 seconds")).count(),
    ),
    "sessions": (
        "append",
        lambda t: t.a.groupBy(F.session_window("at", "1 second"), "k").count().select("count"),
    ),
    "distinct": ("append", lambda t: t.a.select("at", "k").distinct().select("k")),
    "within the watermark": ("append", lambda t: t.a.dropDuplicatesWithinWatermark(["k"])),
    "expression once": ("append", lambda t: t.sql("WITH w AS (SELECT * FROM a) SELECT k FROM w")),
    "expression twice": (
        "append",
        lambda t: t.sql(
            "WITH w AS (SELECT * FROM a) SELECT x.k FROM w x JOIN w y ON x.k = y.k AND x.at = y.at"
        ),
    ),
    "counting expression": ("append", lambda t: t.sql(f"WITH w AS ({WINDOWS}) SELECT k FROM w")),
    "counting expression twice": (
        "append",
        lambda t: t.sql(f"WITH w AS ({WINDOWS}) SELECT w, k FROM w UNION ALL SELECT w, k FROM w"),
    ),
    "expression of an expression": (
        "append",
        lambda t: t.sql(
            "WITH v AS (SELECT * FROM a WHERE v > 0), w AS "
            f"({WINDOWS.replace('FROM a', 'FROM v')}) SELECT k FROM w WHERE n > 0"
        ),
    ),
    "union": ("append", lambda t: t.sql("SELECT at, k FROM a UNION SELECT at, k FROM b")),
    "union of one": ("append", lambda t: t.sql("SELECT k FROM a UNION ALL SELECT k FROM a")),
    "subtract": (
        "append",
        lambda t: t.a.select("at", "k").subtract(t.s.selectExpr("now() AS at", "k")),
    ),
    "in a table": ("append", lambda t: t.sql("SELECT k FROM a WHERE k IN (SELECT k FROM s)")),
    "a table's maximum": ("append", lambda t: t.sql("SELECT k, (SELECT max(w) FROM s) FROM a")),
    "joined to a table": ("append", lambda t: t.a.join(t.s, "k", "left")),
    "lateral view": (
        "append",
        lambda t: t.sql("SELECT k, e FROM a LATERAL VIEW explode(array(v, v + 1)) AS e"),
    ),
    "join": ("append", lambda t: t.near(t.a, t.b, "left").select("k")),
    "join with itself": ("append", lambda t: t.near(t.a, t.a).select("k")),
    "join with WHERE": (
        "append",
        lambda t: t.sql("SELECT a.k FROM a, b WHERE a.k = b.k AND a.at = b.at"),
    ),
    "join of three with WHERE": (
        "append",
        lambda t: t.sql("SELECT a.v FROM a, b, c WHERE a.k = c.k AND c.k = b.k AND a.v > 0"),
    ),
    "windows of a join": (
        "append",
        lambda t: t.sql(
            "SELECT k FROM (SELECT window(a.at, '3 seconds') w, a.k, count(*) n FROM a, b "
            "WHERE a.k = b.k AND a.at = b.at GROUP BY 1, 2) WHERE k <> 'x'"
        ),
    ),
    "join of distinct": (
        "append",
        lambda t: t.near(t.a, t.b.dropDuplicates(["k", "at"]), "left").select("k"),
    ),
    "union of all sorts": (
        "append",
        lambda t: t.a.union(t.b).union(t.a.dropDuplicates(["k", "at"])).dropDuplicates(["k", "at"]),
    ),
    "having": (
        "complete",
        lambda t: t.sql("SELECT k, count(*) AS n FROM a GROUP BY k HAVING n > 0 ORDER BY k"),
    ),
    "rollup": ("complete", lambda t: t.sql("SELECT k, v, count(*) FROM a GROUP BY ROLLUP (k, v)")),
    "no key": ("complete", lambda t: t.sql("SELECT max(v), count_if(v > 0) FROM a")),
    "pandas with state": (
        "append",
        lambda t: t.a.groupBy("k").applyInPandasWithState(
            counted, "k STRING, n BIGINT", "n BIGINT", "append", "NoTimeout"
        ),
    ),
    "transform with state": (
        "append",
        lambda t: t.a.groupBy("k").transformWithStateInPandas(
            Counting(), "k STRING, n BIGINT", "append", "none"
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_made_of_what_spark_runs(tables: Tables, tmp_path: Path, name: str) -> None:
    mode, make = PROGRAMS[name]
    stream = make(tables)
    query = PlannedQuery(stream, mode, JOB)
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    provider = "spark.sql.streaming.stateStore.providerClass"
    tables.spark.conf.set(provider, rocksdb)  # transformWithState wants it
    try:
        run = (
            stream.toDF(*(f"c{n}" for n in range(len(stream.columns))))
            .writeStream.format("noop")
            .outputMode(mode)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        run.awaitTermination()
    finally:
        tables.spark.conf.unset(provider)
    states = sorted(int(path.name) for path in tmp_path.glob("state/*") if path.name.isdigit())
    assert [part.number for part in query.operators] == states
    _, _, *lines = (tmp_path / "offsets/0").read_text().splitlines()
    readings = find_uids(query, {}, {}).source_lines
    assert len(readings) == len(lines)
    assert len(query.leaves) == len(set(readings)) == len(list(tmp_path.glob("sources/*")))
    assert all(part.place is not None for part in query.parts), query.parts
    assert query.reads_tables == ("table" in name or name == "subtract")
    query.require_same(name, run._jsq.streamingQuery())


def uids(stream: DataFrame, mode: str = "append", **named: DataFrame) -> OperatorUids:
    return find_uids(PlannedQuery(stream, mode, JOB), {}, named)


def test_uids_follow_what_spark_makes_of_an_operator(tables: Tables) -> None:
    def name(frame: DataFrame, uid: str) -> DataFrame:
        name_part(frame, JOB, uid, source=False)
        return frame

    windows = name(tables.windows, "windows")
    name(windows.select("k"), "late")  # a second name for the same operator
    pruned = windows.filter("k <> 'x'").select("n")
    assert uids(pruned, windows=windows, late=windows).operators == {0: "windows"}

    again = windows.groupBy(F.window(F.window_time("w"), "9 seconds")).count().select("count")
    name(again, "again")
    assert uids(again, again=again, windows=windows).operators == {0: "again", 1: "windows"}
    assert uids(pruned, again=again, windows=windows).operators == {0: "windows"}

    both = tables.near(windows.selectExpr("k", "w.end AS at", "n AS v"), tables.windows.selectExpr(
        "k", "w.end AS at", "n AS v"))  # fmt: skip
    assert uids(both, windows=windows).operators == {1: "windows"}
    itself = windows.alias("l").join(windows.alias("r"), F.expr("l.w = r.w AND l.k = r.k"))
    name(itself, "itself")
    found = uids(itself.select("l.n"), itself=itself, windows=windows)
    assert found.operators == {0: "itself", 1: "windows"}
    assert found.of_operator(2) == "operator-2", "of equal operators the first has the uid"

    windows.createOrReplaceTempView("windows")
    text = "WITH w AS (SELECT * FROM windows) SELECT n FROM w UNION ALL SELECT m FROM w WHERE m > 1"
    assert uids(tables.sql(text), windows=windows).operators == {0: "windows"}

    for text in (
        "SELECT at, k FROM a UNION SELECT at, k FROM b",
        f"WITH w AS ({WINDOWS}) SELECT k FROM w",
    ):
        frame = name(tables.sql(text), "sql")
        assert uids(frame.select("k"), sql=frame).operators == {0: "sql"}
        assert uids(tables.sql(text).select("k"), sql=frame).operators == {0: "sql"}, "written anew"

    text = (
        "SELECT a.k, count(*) AS n, window(a.at, '3 seconds') AS w FROM a, b WHERE a.k = b.k "
        "GROUP BY 1, 3"
    )
    frame = name(tables.sql(text), "joined")
    assert uids(frame.filter("k <> 'x'").select("n"), joined=frame).operators == {0: "joined"}

    top = name(tables.a.groupBy("k").count().orderBy("count").limit(3), "top")
    assert uids(top, "complete", top=top).operator_numbers() == {"top": 0}

    union = name(tables.a.dropDuplicates(["k", "at"]).union(tables.b), "of-union")
    assert uids(union.union(tables.c), **{"of-union": union}).operators == {0: "of-union"}


def test_an_operator_that_cannot_be_told_is_refused(tables: Tables) -> None:
    first = tables.a.limit(3)
    name_part(first, JOB, "first", source=False)
    with pytest.raises(ConfigurationError, match="operator 'first': Spark's optimizer rewrites"):
        uids(first.limit(2), first=first)


def test_what_spark_refuses_is_refused_before_anything_is_written(
    tables: Tables, tmp_path: Path
) -> None:
    job = sm.Job("limits", sm.CheckpointConfig(storage=str(tmp_path / "store")), "update")
    rows = job.source(tables.a, "a", replayable=True)
    sink = sm.SQLiteSink(str(tmp_path / "a.db"), "t", keys=["k"])
    job.sink(rows.groupBy("k").count().limit(2), sink, "out")
    with pytest.raises(AnalysisException, match="Limits are not supported") as refused:
        job.run()
    # No traceback, and no plan, where it ends the program.
    said = last_words(refused.value)
    assert said is not None
    assert re.fullmatch(r"Spark does not run this query in output mode update: .*Limits.*", said)
    assert not (tmp_path / "store").exists()


def test_a_fault_of_sparks_optimizer_is_named(tables: Tables, tmp_path: Path) -> None:
    """It meets a correlated subquery above a union, in a batch as well."""
    job = sm.Job("fault", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    read = {"format": "json", "schema": "k STRING, v INT", "ending": "latest"}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text('{"k": "x", "v": 1}')
    a, b = (job.source(sm.FileSource(str(tmp_path / of), **read), of) for of in ("a", "b"))
    text = "SELECT k, (SELECT max(w) FROM s WHERE s.k = r.k) AS w FROM {r} r"
    rows = tables.spark.sql(text, r=a.union(b))
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "a.db"), "t"), "out")
    with pytest.raises(ConfigurationError, match=r"'fault': Spark fails to plan .*key not found"):
        job.run()
    assert not (tmp_path / "store").exists()


def test_a_graph_leads_through_expressions_and_set_operations(
    tables: Tables, tmp_path: Path
) -> None:
    job = sm.Job("graph", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    for name in ("a", "b"):
        job.source(getattr(tables, name), name, replayable=True)
    text = (
        "WITH w AS (SELECT * FROM a) SELECT at, k FROM w UNION SELECT at, k FROM b WHERE k <> 'x'"
    )
    once = job.uid(tables.sql(text), "once")
    job.sink(once.select("k"), sm.FileSink(str(tmp_path / "k"), format="json"), "keys")
    job.sink(tables.b, sm.FileSink(str(tmp_path / "b"), format="json"), "raw")
    graph = JobPlan(job.declaration).graph()
    assert {vertex.id: vertex.inputs for vertex in graph.vertices} == {
        "a": (),
        "b": (),
        "once": ("a", "b"),
        "keys": ("once",),
        "raw": ("b",),
    }
    assert [v.name for v in graph.vertices if v.kind == "operator"] == ["Distinct"]


def rows_of(path: Path) -> list[dict[str, Any]]:
    lines = (line for file in path.rglob("*.json") for line in file.read_text().splitlines())
    return sorted(map(json.loads, lines), key=str)


EXPRESSION = "WITH w AS (SELECT * FROM {view}) SELECT id FROM w"


def test_a_program_in_sql_goes_on_and_its_savepoint_is_restored(
    spark: SparkSession, tmp_path: Path
) -> None:
    def declare(name: str) -> sm.Job:
        config = sm.CheckpointConfig(storage=str(tmp_path / "store"), interval="100ms")
        job = sm.Job(name, config)
        source = sm.FileSource(str(tmp_path / "in"), "json", "id BIGINT")
        job.source(source, "in").createOrReplaceTempView(f"v_{name}")
        rows = spark.sql(EXPRESSION.format(view=f"v_{name}"))
        job.sink(rows, sm.FileSink(str(tmp_path / "out"), format="json"), "out")
        return job

    def add(number: int) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"id": number}))

    add(0)
    first = RunningJob(declare("first"))
    first.wait_for_epochs(1)
    first.stop()
    add(1)
    second = RunningJob(declare("first"))
    second.wait_for_epochs(2)
    path = second.take("stop_with_savepoint", tmp_path / "savepoints")
    second.join()
    add(2)
    third = RunningJob(declare("restored"), restore=path)
    third.wait_for_epochs(1)
    third.stop()
    assert rows_of(tmp_path / "out") == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_the_longest_list_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """A limit over a sorted aggregation keeps no state, which an earlier start has counted."""
    shown: list[list[tuple[str, int]]] = []

    def show(frame: DataFrame, epoch: int) -> None:
        shown.append([(row["k"], row["count"]) for row in frame.collect()])

    (tmp_path / "in").mkdir()
    for number, keys in enumerate(("aab", "bbc")):
        lines = [json.dumps({"k": k}) for k in keys]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
        rows = spark.readStream.schema("k STRING").json(str(tmp_path / "in"))
        top = rows.groupBy("k").count().orderBy(F.desc("count"), "k").limit(2)
        query = (
            sm.write_stream(top)
            .outputMode("complete")
            .option("checkpointLocation", str(tmp_path / "ck"))
            .trigger(availableNow=True)
            .foreachBatch(show)
            .start()
        )
        query.awaitTermination()
    assert shown == [[("a", 2), ("b", 1)], [("b", 3), ("a", 2)]]


def test_an_operator_that_spark_numbers_anew_gets_no_other_ones_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark leaves out a limit over a source without new rows; the next limit has its number."""

    def add(name: str, number: int) -> None:
        rows = [json.dumps({"v": number * 10 + n}) for n in range(3)]
        (tmp_path / name / f".{number}").write_text("\n".join(rows))
        (tmp_path / name / f".{number}").rename(tmp_path / name / f"{number}.json")

    job = sm.Job("limits", sm.CheckpointConfig(storage=str(tmp_path / "store"), interval="1s"))
    streams = []
    for name, most in (("a", 4), ("b", 8)):
        (tmp_path / name).mkdir()
        add(name, 0)
        source = sm.FileSource(tmp_path / name, "json", "v BIGINT")
        streams.append(job.source(source, uid=name).limit(most))
    job.sink(streams[0].union(streams[1]), sm.FileSink(tmp_path / "out", "json"), "out")
    running = RunningJob(job)
    running.wait_for_epochs(1)
    add("b", 1)
    with pytest.raises(Exception, match="limit after their union"):
        running.join()
    assert sorted(row["v"] for row in rows_of(tmp_path / "out")) == [0, 0, 1, 1, 2, 2]
