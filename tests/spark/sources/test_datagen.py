"""`seamark-datagen` in a real local SparkSession, against the pure function `rows`.

Each query writes its batches through foreachBatch into a dictionary by batch id, as an idempotent
sink would; so a replayed batch replaces itself, and a row read twice or left out in any other way
shows. The query fails after taking a batch's rows, and leaves the batch undecided; the restart
replays it from the same checkpoint.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructType

from seamark.sources.datagen import DatagenSource
from seamark.sources.fields import Choice, EventTime, Field, RandomInt, Sequence, Text
from seamark.sources.files import FileSource
from seamark.spark import datagen
from seamark.spark.session import spark_session
from tests.chaos.driver import wait_until

FIELDS: dict[str, Field] = {
    "at": EventTime("1s"),
    "row": Sequence(),
    "odd `name`": RandomInt(-5, 5),
    "user": Choice(["a", "b", "c"], skew=1),
    "share": Choice([0.5, 1.5]),
    "flag": Choice([True, False]),
    "note": Text(9),
}


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    session = spark_session("test-datagen")
    datagen.register(session)
    return session


def stream(spark: SparkSession, source: Any) -> DataFrame:
    reader = source.reader()
    unread = spark.readStream.format(reader.format).options(**reader.options)
    return (unread if reader.schema is None else unread.schema(reader.schema)).load()


class Batches:
    """The rows of each batch. The batch `fail_at` raises when its rows have been taken."""

    def __init__(self, fail_at: int = -1) -> None:
        self.found: dict[int, pa.Table] = {}
        self.partitions: dict[int, int] = {}
        self.fail_at = fail_at

    def take(self, frame: DataFrame, batch: int) -> None:
        self.partitions[batch] = frame.rdd.getNumPartitions()
        self.found[batch] = frame.toArrow()
        if batch == self.fail_at:
            raise RuntimeError("this batch fails on purpose")

    def rows(self) -> pa.Table:
        whole = pa.concat_tables([t for t in self.found.values() if t.num_rows])
        return whole.sort_by("row").combine_chunks()


def expected(source: DatagenSource, end: int, started_ms: int | None = None) -> pa.Table:
    return pa.Table.from_batches([datagen.rows(source.reader().options, 0, end, started_ms)])


def assert_equal_columns(found: pa.Table, wanted: pa.Table) -> None:
    assert found.column_names == wanted.column_names
    for name in wanted.column_names:
        column = found.column(name).cast(wanted.schema.field(name).type)
        assert column.to_pylist() == wanted.column(name).to_pylist(), name


def test_two_sessions_of_one_program_have_it(spark: SparkSession) -> None:
    other = spark.newSession()
    assert other.sparkContext is spark.sparkContext
    datagen.register(other)
    datagen.register(spark)
    for session in (spark, other):
        assert stream(session, DatagenSource(rows_per_second=1)).isStreaming


def test_a_bounded_run_ends_by_itself_in_epochs_of_the_size_that_was_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = DatagenSource(
        rows_per_second=100, number_of_rows=25_000, rows_per_epoch=10_000, fields=FIELDS
    )
    batches = Batches()
    query = (
        stream(spark, source).writeStream.foreachBatch(batches.take)
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert [t.num_rows for t in batches.found.values()] == [10_000, 10_000, 5_000]
    assert set(batches.partitions.values()) == {4}
    assert_equal_columns(batches.rows(), expected(source, 25_000))


def test_a_restart_from_the_checkpoint_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = DatagenSource(
        rows_per_second=100, number_of_rows=9_000, rows_per_epoch=1_000, fields=FIELDS, partitions=3
    )

    def start(batches: Batches) -> Any:
        return (
            stream(spark, source).writeStream.foreachBatch(batches.take)
            .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )  # fmt: skip

    batches = Batches(fail_at=3)
    query = start(batches)
    with pytest.raises(StreamingQueryException, match="fails on purpose"):
        query.awaitTermination(120)
    assert sorted(batches.found) == [0, 1, 2, 3]
    assert (tmp_path / "offsets" / "3").exists()
    assert not (tmp_path / "commits" / "3").exists()  # batch 3 is undecided

    batches.fail_at = -1
    query = start(batches)
    assert query.awaitTermination(120)
    assert sorted(batches.found) == list(range(9))
    assert_equal_columns(batches.rows(), expected(source, 9_000))


def test_an_unbounded_source_follows_the_clock_across_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = DatagenSource(
        rows_per_second=500, start_time="now", fields={"row": Sequence(), "at": EventTime()}
    )

    def run() -> Batches:
        batches = Batches()
        query = (
            stream(spark, source).writeStream.foreachBatch(batches.take)
            .option("checkpointLocation", str(tmp_path)).trigger(processingTime="200 milliseconds")
            .start()
        )  # fmt: skip
        wait_until("some epochs", lambda: len(batches.found) >= 3, 60)
        query.stop()
        return batches

    first = run()
    time.sleep(2)  # rows become due while nothing runs
    begun_s = time.time()
    second = run()

    last = max(int(p.name) for p in (tmp_path / "offsets").iterdir() if p.name.isdecimal())
    offset = json.loads((tmp_path / "offsets" / str(last)).read_text().splitlines()[-1])
    started_s = offset["started_ms"] / 1000
    assert offset["row"] <= (time.time() - started_s) * 500
    assert offset["row"] >= int((begun_s - started_s) * 500)

    together = Batches()
    together.found = {**first.found, **second.found}
    found = together.rows()
    numbers = found.column("row").to_pylist()
    assert numbers == list(range(len(numbers)))  # no gap, no jump, nothing twice
    assert len(numbers) > first.rows().num_rows + 1_000  # rows due meanwhile came, too
    assert_equal_columns(found, expected(source, len(numbers), offset["started_ms"]))


def test_one_run_of_an_unbounded_source_ends_with_what_is_due(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = DatagenSource(rows_per_second=1_000_000, rows_per_epoch=1000, fields=FIELDS)
    options = source.reader().options
    reader = datagen.DatagenReader(options)
    start = {"row": 0, "started_ms": time.time_ns() // 1_000_000 - 5}
    reader.prepareForTriggerAvailableNow()
    ends = []
    while not ends or ends[-1] != start["row"]:
        ends.append(start["row"])
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
        time.sleep(0.001)  # the clock goes on, the target does not
    assert ends[-1] in range(5_000, 8_000)
    assert ends == [*range(0, ends[-1], 1000), ends[-1]]


def test_a_file_source_reads_with_a_struct_type(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "one.json").write_text('{"row": 1, "odd name": "a"}\n{"row": 2, "odd name": "b"}\n')
    schema = StructType().add("row", LongType()).add("odd name", StringType())
    source = FileSource(data, format="json", schema=schema, ending="latest")
    batches = Batches()
    query = (
        stream(spark, source).writeStream.foreachBatch(batches.take)
        .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(60)
    assert batches.rows().to_pydict() == {"row": [1, 2], "odd name": ["a", "b"]}
