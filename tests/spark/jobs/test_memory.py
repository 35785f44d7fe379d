"""A task's memory is bounded in bytes: its Python worker's peak does not grow with its rows.

How: one task gets 600 MB in rows of 300 kB, and has a worker of its own (`benchmarks/memory.py`).
The bound is twice what Spark's own `mapInArrow` takes for its input, whatever the rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks import memory
from pyspark.sql import DataFrame, SparkSession

import seamark as sm

ROWS, TEXT = 2_000, 300_000
BOUND = 600_000_000


def constrained(at: Path) -> sm.SQLiteSink:
    from seamark.sinks.sqlite import database

    sink = sm.SQLiteSink(at / "out.db", "big")
    with database.connect(sink.path) as cursor:
        cursor.execute(f"CREATE TABLE big (id INTEGER {memory.BAD}, text TEXT)")
    return sink


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "files": (lambda at: sm.FileSink(at / "out"), {}),
    "dead letters": (constrained, {"letters": True}),
    "channel state": (lambda at: sm.FileSink(at / "out", "json"), {"unaligned": True}),
    "spool": (lambda at: sm.WriteAheadSink.foreach_batch(memory.nothing), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_peak_of_a_worker_does_not_grow_with_its_rows(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    sink, how = CASES[name]
    (tmp_path / "in").mkdir()
    ids = "".join(f'{{"id":{id_}}}\n' for id_ in range(ROWS))
    (tmp_path / "in" / "ids.json").write_text(ids)

    def rows(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("id", f"repeat('0123456789', {TEXT // 10}) AS text")

    mark = memory.new_worker(spark)
    memory.into(sink, spark, tmp_path, rows, **how)
    assert memory.peak_bytes(mark) < BOUND
