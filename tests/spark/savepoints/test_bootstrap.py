"""A job begins with state made of DataFrames, as if it had read a history.

How: counts of numbers unseen by any job are given to a new job as its state; restored with other
partitions, it counts on from there in its own files.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import ArrayType, StructType

import seamark as sm
from seamark.model.errors import SavepointError
from tests.every_change import FileChanges
from tests.spark.savepoints.test_savepoints import Numbers, declare, shown
from tests.threads import RunningJob

GROUP = "_groupingexpression"
"""Spark's name for an expression in a groupBy."""


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    return Numbers(tmp_path / "in")


def counted(history: DataFrame, key: str) -> DataFrame:
    counts = history.groupBy(F.expr(key).alias(GROUP)).count()
    return counts.select(F.struct(GROUP).alias("key"), F.struct("count").alias("value"))


def test_counts_go_on_from_a_history_that_was_never_read(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    history = spark.range(1000).withColumnRenamed("id", "number")
    digits = counted(history, "number % 10")
    job = declare(tmp_path, "job", numbers)
    to = tmp_path / "savepoints/begin"
    with pytest.raises(SavepointError, match="no operator 'no'; it has 'digits', 'tens'"):
        job.new_savepoint(to, {"no": digits})
    with pytest.raises(SavepointError, match="no source 'no'; it has 'numbers'"):
        job.new_savepoint(to, {}, offsets={"no": 1})
    wanted = rf"has the columns struct<key:struct<{GROUP}:bigint>,value:struct<count:bigint>>; g"
    with pytest.raises(SavepointError, match=wanted):
        job.new_savepoint(to, {"digits": history})
    with pytest.raises(SavepointError, match="one row for each key"):
        job.new_savepoint(to, {"digits": digits.union(digits)})
    assert not any(to.glob("*")), "nothing was written"

    savepoint = job.new_savepoint(to, {"digits": digits}, parallelism=4)
    assert [(o.uid, o.rows) for o in savepoint.record.operators] == [("digits", 10), ("tens", 0)]
    assert savepoint.read_state("digits").count() == 10
    with pytest.raises(SavepointError, match="not empty"):
        job.new_savepoint(to, {})

    numbers.add()
    changed = declare(tmp_path, "job", numbers, swapped=True, state_backend="rocksdb")
    started = RunningJob(changed, restore=str(to), parallelism=3)
    started.wait_for_epochs(1)
    started.end()
    # Of the history the state knows the digits alone; the sink has the changes since.
    of_digits = {key: [110] for key in range(10)}
    assert shown(tmp_path, "job") == {**of_digits, **{key: [10] for key in range(100, 110)}}


class Totals(StatefulProcessor):
    """Keeps how many numbers of a key there were, and the last three of them."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n long")
        self._last = handle.getListState("last", "number long")

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Iterator[Row], times: Any
    ) -> Iterator[Row]:
        count = self._count.get()[0] if self._count.exists() else 0
        last = [found[0] for found in self._last.get()]
        for number in sorted(row.number for row in rows):
            count, last = count + 1, [*last, number][-3:]
        self._count.update((count,))
        self._last.put([(number,) for number in last])
        yield Row(key=key[0], count=count, last=str(last))

    def close(self) -> None:
        pass


def declare_totals(home: Path, numbers: Numbers, **given: Any) -> sm.Job:
    config = sm.CheckpointConfig(
        storage=str(home / "store"), interval="100ms", state_backend="rocksdb"
    )
    job = sm.Job("totals", config, "update")
    source = sm.FileSource(
        str(numbers.directory), format="json", schema="number BIGINT", ending="latest"
    )
    keyed = job.source(source, uid="numbers").where("number < 2").withColumn("key", F.col("number"))
    schema = "key long, count long, last string"
    totals = keyed.groupBy("key").transformWithState(Totals(), schema, "update", "none", **given)
    job.uid(totals, "totals")
    job.sink(totals, FileChanges(str(home / "out"), format="json"), uid="out")
    return job


def test_state_variables_of_a_transform_with_state_are_given_by_name(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    job = declare_totals(tmp_path, numbers)
    given = spark.createDataFrame(
        [Row(key=Row(key=0), value=Row(n=7))], "key struct<key:bigint>, value struct<n:bigint>"
    )
    last = spark.createDataFrame(
        [Row(key=Row(key=0), value=Row(number=n), sequence=n) for n in (4, 6, 5)],
        "key struct<key:bigint>, value struct<number:bigint>, sequence bigint",
    )
    path = tmp_path / "begin"
    with pytest.raises(SavepointError, match="it follows from the state that it is an index of"):
        job.new_savepoint(path, {"totals": {"$rowCounter_last": given}})
    job.new_savepoint(path, {"totals": {"count": given, "last": last}})
    numbers.add()
    job.run(str(path))
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.open()]
    found = sorted((row["key"], row["count"], row["last"]) for row in map(json.loads, lines))
    assert found == [(0, 8, "[5, 6, 0]"), (1, 1, "[1]")]


def test_an_initial_state_that_spark_would_not_give_is_refused(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    """Spark gives it in a query's first epoch alone, and a job from a savepoint begins at a later
    one."""
    rows = spark.createDataFrame([(0, 7)], "key long, n long").groupBy("key")
    job = declare_totals(tmp_path, numbers, initialState=rows)
    with pytest.raises(SavepointError, match="operator 'totals' has an initialState"):
        job.new_savepoint(tmp_path / "begin", {})
    assert not any((tmp_path / "begin").glob("*")), "nothing was written"


ODD_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
"""NaN, in other bits than Java's own."""


def test_given_keys_have_sparks_zero_and_nan(spark: SparkSession, tmp_path: Path) -> None:
    """They look a row up under 0.0 for -0.0 and under Java's NaN, in structs and arrays as well."""

    def read(job: sm.Job, column: str) -> DataFrame:
        (tmp_path / column).mkdir(exist_ok=True)
        (tmp_path / column / "1.json").write_text(f'{{"{column}": -0.0}}\n{{"{column}": "NaN"}}\n')
        return job.source(
            sm.FileSource(str(tmp_path / column), "json", f"{column} DOUBLE", ending="latest"),
            uid=column,
        )

    def made(name: str, operators: dict[str, DataFrame], job: sm.Job) -> sm.Savepoint:
        """A savepoint with a row for -0.0 and one for an odd NaN in each operator's first store."""
        for uid, frame in operators.items():
            out = FileChanges(str(tmp_path / f"{uid}-out"), format="json")
            job.sink(job.uid(frame, uid), out, uid=f"{uid}-out")
        empty, state = job.new_savepoint(tmp_path / f"{name}-empty", {}), {}
        for uid in operators:
            store = {"store": "left"} if uid == "pairs" else {}
            schema = empty.read_state(uid, **store).drop("sequence").schema
            rows = [value(schema, -0.0), value(schema, ODD_NAN)]
            frame = spark.createDataFrame(rows, schema)
            state[uid] = {"left": frame} if store else frame
        return job.new_savepoint(tmp_path / name, state)

    def value(of: Any, x: float) -> Any:
        if isinstance(of, StructType):
            return tuple(value(field.dataType, x) for field in of)
        if isinstance(of, ArrayType):
            return [value(of.elementType, x)]
        return {"double": x, "bigint": 5, "boolean": False}.get(of.simpleString())

    joined = sm.Job("joined", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    pairs = read(joined, "l").join(read(joined, "r"), F.expr("l = r"))
    kept = made("join", {"pairs": pairs}, joined).read_state("pairs", store="left")
    keys = [row[0] for row in kept.select("key.*").collect()]
    assert [math.copysign(1, x) for x in keys if x == 0] == [1]

    job = sm.Job("job", sm.CheckpointConfig(storage=str(tmp_path / "store")), "update")
    rows = read(job, "l")
    nested = F.array(F.struct("l")).alias("a"), F.struct(F.array("l").alias("b")).alias("s")
    operators = {
        "groups": rows.groupBy("l", *nested).count(),
        "first": rows.dropDuplicates(["l"]),
    }
    savepoint = made("begin", operators, job)
    (zero,) = savepoint.read_state("groups").where("key.l = 0").collect()
    plain, in_array, in_struct = zero.key
    assert [math.copysign(1, x) for x in (plain, in_array[0].l, in_struct.b[0])] == [1] * 3
    job.run(str(tmp_path / "begin"))

    def written(uid: str) -> list[Any]:
        files = (tmp_path / f"{uid}-out").rglob("*.json")
        return [json.loads(line) for file in files for line in file.open()]

    assert [row["count"] for row in written("groups")] == [6, 6]
    assert written("first") == [], "both rows were there before"
