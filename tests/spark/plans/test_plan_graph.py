"""How: jobs are declared over real streaming DataFrames of one session and not run; the graph found
in Spark's plans is held against the author's intention."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.model.job_graph import JobGraph
from seamark.run.job_plan import JobPlan


@pytest.fixture
def job(tmp_path: Path, spark: SparkSession) -> sm.Job:
    return sm.Job("graph", sm.CheckpointConfig(storage=str(tmp_path / "store")))


def rows(job: sm.Job, uid: str) -> DataFrame:
    # Each with a rate of its own: to Spark two equal in everything are one source.
    rate = 1 + sum(map(ord, uid))
    return job.source(sm.DatagenSource(rows_per_second=rate), uid).withWatermark(
        "timestamp", "1 minute"
    )


def files(job: sm.Job, tmp_path: Path, frame: DataFrame, uid: str) -> None:
    job.sink(frame, sm.FileSink(str(tmp_path / uid), format="json"), uid)


def inputs(graph: JobGraph) -> dict[str, tuple[str, ...]]:
    return {vertex.id: vertex.inputs for vertex in graph.vertices}


def test_a_source_goes_to_a_sink_and_through_an_operator_to_two(
    job: sm.Job, tmp_path: Path
) -> None:
    clicks = rows(job, "clicks")
    counts = clicks.groupBy(F.window("timestamp", "1 minute")).count().select("count")
    job.uid(counts, "per-minute")
    files(job, tmp_path, clicks.select("row"), "raw")
    files(job, tmp_path, counts, "counts")
    files(job, tmp_path, counts, "counts-again")
    graph = JobPlan(job.declaration).graph()
    assert inputs(graph) == {
        "clicks": (),
        "per-minute": ("clicks",),
        "raw": ("clicks",),
        "counts": ("per-minute",),
        "counts-again": ("per-minute",),
    }
    kinds = {vertex.id: (vertex.kind, vertex.name) for vertex in graph.vertices}
    assert kinds["per-minute"] == ("operator", "Aggregate")
    clicks_are = job.declaration.sources["clicks"].description
    assert kinds["clicks"] == ("source", f"{clicks_are} (read 2 times)")
    assert graph.sharing == (
        "counts, counts-again share one stream: what they have in common is computed once",
        "source clicks is read 2 times in each epoch",
    )
    assert kinds["raw"] == ("sink", job.declaration.sinks["raw"].description)


def test_unions_and_joins_have_all_their_inputs_and_a_chain_only_the_nearest(
    job: sm.Job, tmp_path: Path
) -> None:
    left, right, more = rows(job, "left"), rows(job, "right"), rows(job, "more")
    both = left.union(right)
    once = job.uid(both.dropDuplicatesWithinWatermark(["row"]), "once")
    later = more.select(F.col("row").alias("other"), F.col("timestamp").alias("at"))
    met = job.uid(
        once.join(
            later,
            F.expr("row = other AND at BETWEEN timestamp AND timestamp + INTERVAL 1 MINUTE"),
        ),
        "met",
    )
    files(job, tmp_path, met.select("row"), "out")
    files(job, tmp_path, both.union(more).select("row"), "all")
    assert inputs(JobPlan(job.declaration).graph()) == {
        "left": (),
        "right": (),
        "more": (),
        "once": ("left", "right"),
        "met": ("once", "more"),
        "out": ("met",),
        "all": ("left", "right", "more"),
    }


def test_what_has_no_uid_appears_by_sparks_number_and_says_so(job: sm.Job, tmp_path: Path) -> None:
    clicks = rows(job, "clicks")
    first = clicks.dropDuplicatesWithinWatermark(["row"])
    second = job.uid(first.groupBy(F.window("timestamp", "1 minute")).count(), "counted")
    files(job, tmp_path, second.select("count"), "counts")
    files(job, tmp_path, first.select("row"), "rows")
    graph = JobPlan(job.declaration).graph()
    assert inputs(graph) == {
        "clicks": (),
        # Spark keeps the state of each branch's operators: the second one's is another
        "operator-1": ("clicks",),
        "counted": ("operator-1",),
        "operator-2": ("clicks",),
        "counts": ("counted",),
        "rows": ("operator-2",),
    }
    assert [vertex.id for vertex in graph.vertices if not vertex.has_uid] == [
        "operator-1",
        "operator-2",
    ]


def expression(job: sm.Job, spark: SparkSession, text: str) -> DataFrame:
    rows(job, "clicks").createOrReplaceTempView("clicks")
    return spark.sql(f"WITH c AS ({text}) SELECT * FROM c")


@pytest.mark.parametrize("text", ["SELECT * FROM clicks", "SELECT *, rand() AS r FROM clicks"])
def test_two_branches_read_the_source_of_one_common_table_expression(
    job: sm.Job, tmp_path: Path, spark: SparkSession, text: str
) -> None:
    common = expression(job, spark, text)
    files(job, tmp_path, common.filter("row > 1").select("row"), "some")
    files(job, tmp_path, common.groupBy(F.window("timestamp", "1 minute")).count(), "counts")
    files(job, tmp_path, common.union(common).select("row"), "twice")
    found = inputs(JobPlan(job.declaration).graph())
    assert {uid: found[uid] for uid in ("some", "counts", "twice")} == {
        "some": ("clicks",),
        "counts": ("operator-0",),
        "twice": ("clicks",),
    }
    assert found["operator-0"] == ("clicks",)


def test_two_branches_have_an_operator_of_one_common_table_expression_each(
    job: sm.Job, tmp_path: Path, spark: SparkSession
) -> None:
    counts = "SELECT window(timestamp, '1 minute') AS w, count(*) AS n FROM clicks GROUP BY 1"
    common = job.uid(expression(job, spark, counts), "counted")
    later = common.groupBy(F.window("w", "1 hour")).sum("n").select("sum(n)")
    files(job, tmp_path, job.uid(later, "summed"), "sums")
    files(job, tmp_path, common.select("n"), "counts")
    found = inputs(JobPlan(job.declaration).graph())
    assert found == {
        "clicks": (),
        "counted@sums": ("clicks",),
        "summed": ("counted@sums",),
        "counted@counts": ("clicks",),
        "sums": ("summed",),
        "counts": ("counted@counts",),
    }


def test_a_static_table_is_no_input_and_dead_letters_come_out_of_their_sink(
    job: sm.Job, tmp_path: Path, spark: SparkSession
) -> None:
    clicks = rows(job, "clicks")
    names = spark.createDataFrame([(1, "one")], "row BIGINT, name STRING")
    job.sink(
        clicks.join(names, "row").select("row", "name"),
        sm.SQLiteSink(str(tmp_path / "a.db"), "t"),
        "table",
        on_bad_row="dead_letter",
        dead_letters=sm.FileSink(str(tmp_path / "bad"), format="json"),
    )
    assert inputs(JobPlan(job.declaration).graph()) == {
        "clicks": (),
        "table": ("clicks",),
        "table.dead-letters": ("table",),
    }
