"""How: unite real streaming DataFrames; split handmade Arrow batches as Spark sends them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.api.declarations import DeclaredSink
from tidemark.runtime.branches import TAG, Layout, unite


def declared(uid: str, frame: DataFrame, *expressions: str) -> DeclaredSink:
    return DeclaredSink(uid, None, frame, expressions)  # type: ignore[arg-type]


def test_a_lone_sink_travels_as_its_own_columns(rate: DataFrame) -> None:
    united, layout = unite([declared("a", rate, "value AS v")])
    assert united.columns == ["c0"]
    assert layout.plain
    sent = pa.RecordBatch.from_pydict({"c0": [1, 2]})
    assert [(uid, rows.to_pydict()) for uid, rows in layout.split(sent)] == [("a", {"v": [1, 2]})]


def test_sinks_of_one_dataframe_share_a_branch(rate: DataFrame) -> None:
    united, layout = unite(
        [declared("a", rate, "value"), declared("b", rate, "timestamp AS t", "value AS v")]
    )
    assert united.columns == ["s0", "s1"]
    assert layout.branches == (("a", "b"),)
    assert "Union" not in united._jdf.queryExecution().analyzed().toString()


def test_other_dataframes_get_tagged_branches_of_one_union(rate: DataFrame) -> None:
    doubled = rate.selectExpr("value * 2 AS w")
    united, layout = unite(
        [declared("a", rate, "value"), declared("b", doubled, "w"), declared("c", rate, "value")]
    )
    assert united.columns == [TAG, "s0", "s1", "s2"]
    assert layout.branches == (("a", "c"), ("b",))
    assert [f.dataType.simpleString() for f in united.schema.fields[1:]] == [
        "struct<value:bigint>", "struct<value:bigint>", "struct<w:bigint>",
    ]  # fmt: skip


LAYOUT = Layout((("a", "c"), ("b",)))


def batch(tags: list[int]) -> pa.RecordBatch:
    first = [{"v": i} if t == 0 else None for i, t in enumerate(tags)]
    second = [{"w": i} if t == 1 else None for i, t in enumerate(tags)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(tags, pa.int32()),
            pa.array(first, pa.struct([("v", pa.int64())])),
            pa.array(first, pa.struct([("v", pa.int64())])),
            pa.array(second, pa.struct([("w", pa.int64())])),
        ],
        names=[TAG, "s0", "s1", "s2"],
    )


def split(part: pa.RecordBatch) -> list[tuple[str, list[dict[str, int]]]]:
    return [(uid, rows.to_pylist()) for uid, rows in LAYOUT.split(part)]


def test_a_batch_of_one_branch_goes_to_that_branchs_sinks() -> None:
    assert split(batch([1, 1])) == [("b", [{"w": 0}, {"w": 1}])]
    assert split(batch([0])) == [("a", [{"v": 0}]), ("c", [{"v": 0}])]


def test_a_mixed_batch_is_filtered() -> None:
    mixed = split(batch([0, 1, 0]))
    assert mixed == [
        ("a", [{"v": 0}, {"v": 2}]),
        ("c", [{"v": 0}, {"v": 2}]),
        ("b", [{"w": 1}]),
    ]


def test_an_empty_batch_reaches_no_sink() -> None:
    assert split(batch([])) == []


def test_a_slice_keeps_its_own_rows() -> None:
    assert split(batch([0, 0, 1, 1]).slice(2)) == [("b", [{"w": 2}, {"w": 3}])]
