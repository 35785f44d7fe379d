"""How: unite real streaming DataFrames and look at the plan; split handmade Arrow batches as Spark
sends them. `test_batch_oracle.py` judges the results of such plans."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from seamark.api.declarations import DeclaredSink
from seamark.run.branches import United
from seamark.run.layout import Layout
from seamark.spark.operator_uids import OperatorUids, find_uids
from seamark.spark.planned_query import PlannedQuery, name_part
from seamark.spark.plans import Compared, analysed
from seamark.spark.shared_stream import branches_of

JOB = "seamark.test"


def uids_in(united: United, **operators: DataFrame) -> OperatorUids:
    names = [branch.name for branch in united.branches]
    query = PlannedQuery(united.stream, "append", JOB, len(names))
    return find_uids(query, {}, operators, names)


def declared(uid: str, frame: DataFrame, *expressions: str) -> DeclaredSink:
    return DeclaredSink(uid, None, frame, expressions or ("*",))  # type: ignore[arg-type]


def branches(united: United) -> list[tuple[str, ...]]:
    return [tuple(sink.uid for sink in branch.sinks) for branch in united.branches]


def counted(rate: DataFrame) -> DataFrame:
    late = rate.withWatermark("timestamp", "5 seconds")
    return late.groupBy(F.window("timestamp", "3 seconds").alias("w"), "value").count()


def times_ten(column: str) -> object:
    return F.udf(lambda n: n * 10, LongType())(column)


def test_a_lone_sink_travels_as_its_own_columns(rate: DataFrame) -> None:
    united = United(branches_of([declared("a", rate, "value AS v")]))
    assert united.stream.columns == ["c0"]
    assert united.layout.plain
    sent = pa.RecordBatch.from_pydict({"c0": [1, 2]})
    assert [(uid, rows.to_pydict()) for uid, rows in united.layout.split(sent)] == [
        ("a", {"v": [1, 2]})
    ]


def test_sinks_with_steps_of_their_own_over_one_stream_share_it(rate: DataFrame) -> None:
    few = rate.filter("value % 2 = 0").withColumn("half", F.expr("value DIV 2"))
    many = few.withColumn("one", F.explode(F.sequence(F.lit(1), F.col("value"))))
    united = United(
        branches_of(
            [
                declared("a", rate, "timestamp AS t", "value AS v"),
                declared("b", few, "half"),
                declared("c", many, "one", "half"),
                declared("d", rate.withColumn("ten", times_ten("value")), "ten"),
            ]
        )
    )
    assert branches(united) == [("a", "b", "c", "d")]
    assert [field.dataType.simpleString() for field in united.stream.schema.fields] == [
        "struct<t:timestamp,v:bigint>", "struct<half:bigint>", "struct<one:bigint,half:bigint>",
        "struct<ten:bigint>",
    ]  # fmt: skip
    assert len(uids_in(united).source_lines) == 1


def test_what_all_have_is_a_step_of_the_shared_stream(rate: DataFrame) -> None:
    few = rate.filter("value > 3").withColumn("ten", times_ten("value"))
    united = United(branches_of([declared("a", few.select("ten")), declared("b", few, "value")]))
    assert branches(united) == [("a", "b")], "the function stands above a filter that both have"
    assert Compared(united.branches[0].shared) == Compared(analysed(few))


def test_a_stream_that_was_built_twice_is_one(rate: DataFrame) -> None:
    one, other = counted(rate), counted(rate)
    united = United(
        branches_of([declared("a", one.select("count")), declared("b", other.filter("count > 1"))])
    )
    assert branches(united) == [("a", "b")]
    uids = uids_in(united, counts=other)
    assert uids.operator_numbers() == {"counts": 0}
    assert uids.source_lines == (0,)


def test_what_has_two_names_is_two(rate: DataFrame) -> None:
    named = {"one": counted(rate), "other": counted(rate)}
    sinks = [declared(uid, frame) for uid, frame in named.items()]
    for uid, frame in named.items():
        name_part(frame, JOB, uid, source=False)
    united = United(branches_of([*sinks, declared("third", counted(rate))], JOB))
    assert branches(united) == [("one", "third"), ("other",)]
    uids = uids_in(united, **named)
    assert uids.operator_numbers() == {"one": 0, "other": 1}


def test_what_cannot_be_shared_is_united(rate: DataFrame, spark: SparkSession) -> None:
    counts = counted(rate)
    other = spark.readStream.format("rate").option("rowsPerSecond", 7).load()
    united = United(
        branches_of(
            [
                declared("raw", rate, "value"),
                declared(
                    "odd", counts.filter("count > 1").withColumn("ten", times_ten("count")), "ten"
                ),
                declared("counts", counts, "count"),
                declared("other", other, "value"),
                declared("more", counts.filter("count > 1"), "count"),
            ]
        )
    )
    assert branches(united) == [("raw",), ("odd",), ("counts", "more"), ("other",)]
    uids = uids_in(united, counts=counts)
    assert uids.operator_numbers() == {"counts@odd": 0, "counts@counts": 1}
    assert uids.source_lines == (0, 0, 0, 1)


def test_subqueries_over_one_table_are_apart_where_its_columns_would_meet(
    rate: DataFrame, spark: SparkSession
) -> None:
    table = spark.sql("SELECT * FROM VALUES (1L, 2L) AS t(k, x)")
    texts = {
        "in": "SELECT * FROM {r} WHERE value IN (SELECT k FROM {t})",
        "greatest": "SELECT (SELECT max(x) FROM {t} t WHERE t.k = r.value) AS m FROM {r} r",
        "without": "SELECT * FROM {r} r WHERE NOT EXISTS (SELECT * FROM {t} t WHERE t.k = r.value)",
        "all": "SELECT value + (SELECT max(x) FROM {t}) AS m FROM {r}",
        "raw": "SELECT * FROM {r}",
        "again": "SELECT (SELECT max(x) FROM {t} t WHERE t.k = r.value) AS m FROM {r} r",
    }
    frames = {uid: spark.sql(text, r=rate, t=table) for uid, text in texts.items()}
    united = United(branches_of([declared(uid, frame) for uid, frame in frames.items()]))
    assert branches(united) == [("in", "without", "all", "raw"), ("greatest", "again")]


@pytest.mark.parametrize("explodes", [False, True])
def test_another_sinks_join_does_not_hide_the_name_of_the_input_file(
    spark: SparkSession, tmp_path: Path, explodes: bool
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"k": 1}\n{"k": 2}')
    rows = spark.readStream.schema("k LONG").json(str(tmp_path / "in"))
    table = spark.sql("SELECT * FROM VALUES (1L, 2L) AS t(k, x)")
    text = "SELECT (SELECT max(x) FROM {t} t WHERE t.k = r.k) AS m FROM {r} r"
    joined = spark.sql(text, r=rows, t=table)
    named = rows.withColumn("k", F.explode(F.array("k"))) if explodes else rows
    named = named.select("k", F.concat(F.input_file_name(), F.lit("")).alias("file"))
    united = United(branches_of([declared("joined", joined), declared("named", named)]))
    assert branches(united) == [("joined", "named")]
    found: list[tuple[int, str]] = []

    def keep(frame: DataFrame, epoch: int) -> None:
        rows = [row.s1 for row in frame.collect() if row.s1]
        found.extend((row.k, row.file.rpartition("/")[2]) for row in rows)

    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")  # a join by a shuffle
    try:
        writer = united.stream.writeStream.option("checkpointLocation", str(tmp_path / "ck"))
        writer.trigger(availableNow=True).foreachBatch(keep).start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert sorted(found) == [(1, "0.json"), (2, "0.json")]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_name_of_an_operator_in_several_branches_goes_with_its_sink(
    rate: DataFrame, order: tuple[int, int]
) -> None:
    counts = counted(rate)
    function = counts.filter("count > 1").withColumn("ten", times_ten("count"))
    sinks = [declared("a", function), declared("b", counts)]
    united = United(branches_of([sinks[number] for number in order]))
    uids = uids_in(united, counts=counts)
    assert uids.operator_numbers() == {f"counts@{'ab'[n]}": place for place, n in enumerate(order)}


LAYOUT = Layout(("a", "b", "c"))


def batch(keeps: list[str]) -> pa.RecordBatch:
    def column(uid: str, name: str) -> pa.Array:
        rows = [{name: i} if uid in keep else None for i, keep in enumerate(keeps)]
        return pa.array(rows, pa.struct([(name, pa.int64())]))

    columns = [column("a", "v"), column("b", "w"), column("c", "v")]
    return pa.RecordBatch.from_arrays(columns, names=["s0", "s1", "s2"])


def split(part: pa.RecordBatch) -> list[tuple[str, list[dict[str, int]]]]:
    return [(uid, rows.to_pylist()) for uid, rows in LAYOUT.split(part)]


def test_a_row_goes_to_the_sinks_that_have_a_struct_of_it() -> None:
    assert split(batch(["ac", "b", "abc"])) == [
        ("a", [{"v": 0}, {"v": 2}]),
        ("b", [{"w": 1}, {"w": 2}]),
        ("c", [{"v": 0}, {"v": 2}]),
    ]
    assert split(batch(["b", "b"])) == [("b", [{"w": 0}, {"w": 1}])]


def test_an_empty_batch_reaches_no_sink() -> None:
    assert split(batch([])) == []


def test_a_slice_keeps_its_own_rows() -> None:
    assert split(batch(["a", "a", "b", "b"]).slice(2)) == [("b", [{"w": 2}, {"w": 3}])]
