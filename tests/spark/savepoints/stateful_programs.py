"""Streaming queries, one for each kind of Spark's state, over small JSON files.

Each program derives its rows from its input alone: whatever the fate of its state in between, a
batch has the rows of the same query on one checkpoint without interruption.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.group import GroupedData
from pyspark.sql.streaming import StatefulProcessor

from seamark.api.config import CheckpointConfig, StateBackend
from seamark.spark.state_backend import backend_settings, session_settings

START = 1_700_000_000
NEVER_MS = 100 * 365 * 86_400_000
"""Neither a test nor a stored savepoint gets so old."""


def write_input(directory: Path, number: int, *, overlap: bool = False) -> None:
    """Add a file of events of ten seconds, the same ones for the same number.

    With `overlap` it reaches five seconds back, no further than the watermark, and some events of
    the last file come again: their treatment depends on the state of their own keys.
    """
    directory.mkdir(parents=True, exist_ok=True)
    begin = START + number * 10
    found = _events(number, 5 if overlap else 0)
    if overlap and number:
        before = _events(number - 1, 5)
        found += [{**e, "file": number} for e in before if e["ts"] >= begin - 5][::2]
    path = directory / f"{number:04d}.json"
    hidden = directory / f".{number:04d}"
    hidden.write_text("\n".join(map(json.dumps, found)))
    os.utime(hidden, (begin, begin))  # the file source reads them in this order
    hidden.rename(path)


def _events(number: int, earlier_s: int, rows: int = 40) -> list[dict[str, int]]:
    dice = random.Random(number)
    begin = START + number * 10
    return [
        {
            "k": dice.randrange(9),
            "v": dice.randrange(6),
            "ts": begin + dice.randrange(-earlier_s, 10),
            "file": number,
        }
        for _ in range(rows)
    ]


def events(spark: SparkSession, directory: Path, **options: str) -> DataFrame:
    return (
        spark.readStream.schema("k int, v int, ts long, file int")
        .options(**options)
        .json(str(directory))
        .withColumn("at", F.timestamp_seconds("ts"))
        .withWatermark("at", "5 seconds")
    )


def aggregation(stream: DataFrame, other: DataFrame) -> DataFrame:
    windows = stream.groupBy(F.window("at", "5 seconds"), "k")
    sums = windows.agg(F.count("*").alias("n"), F.sum("v").alias("sum"))
    return sums.select(F.unix_timestamp("window.start").alias("start"), "k", "n", "sum")


def total(stream: DataFrame, other: DataFrame) -> DataFrame:
    return stream.groupBy().agg(F.count("*").alias("n"), F.sum("v").alias("sum"))


def limited(stream: DataFrame, other: DataFrame) -> DataFrame:
    # Of a batch's rows any may come first, so they are all alike.
    return stream.select(F.lit(1).alias("one")).limit(100)


def distinct(stream: DataFrame, other: DataFrame) -> DataFrame:
    return stream.dropDuplicates(["k", "v", "at"]).select("k", "v", "ts")


def distinct_within_watermark(stream: DataFrame, other: DataFrame) -> DataFrame:
    # Of the rows with one key any may come first, so only the key can be compared.
    return stream.dropDuplicatesWithinWatermark(["k", "v"]).select("k", "v")


def session_windows(stream: DataFrame, other: DataFrame) -> DataFrame:
    windows = stream.where("v = 0").groupBy(F.session_window("at", "3 seconds"), "k")
    return windows.count().select(
        F.unix_timestamp("session_window.start").alias("start"), "k", "count"
    )


def join(stream: DataFrame, other: DataFrame) -> DataFrame:
    left = stream.where("v = 0").select("k", F.col("at").alias("left_at"))
    right = other.where("v > 3").select(
        F.col("k").alias("right_k"), F.col("v").alias("right_v"), F.col("at").alias("right_at")
    )
    near = F.expr("k = right_k AND right_at BETWEEN left_at - INTERVAL 5 SECONDS AND left_at")
    return left.join(right, near, "left_outer").select(
        "k", "right_v", *(F.unix_timestamp(c).alias(c) for c in ("left_at", "right_at"))
    )


def distinct_sums(stream: DataFrame, other: DataFrame) -> DataFrame:
    return aggregation(stream.dropDuplicates(["k", "v", "at"]), other)


class _Counts(StatefulProcessor):
    """Value, list and map state; those with a time to live when there is one."""

    def __init__(self, ttl_ms: int | None) -> None:
        self._ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n long", self._ttl_ms)
        self._seen = handle.getListState("seen", "v int", self._ttl_ms)
        self._by_value = handle.getMapState("by_value", "v int", "n long", self._ttl_ms)
        self._timers = handle.getValueState("timers", "n int")

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Iterator[Row], times: Any
    ) -> Iterator[Row]:
        count = self._count.get()[0] if self._count.exists() else 0
        for value in sorted(row.v for row in rows):
            count += 1
            if count % 3 == 0:
                self._seen.appendValue((value,))
            old = (
                self._by_value.getValue((value,))[0] if self._by_value.containsKey((value,)) else 0
            )
            self._by_value.updateValue((value,), (old + 1,))
        self._count.update((count,))
        if self._ttl_ms is None:  # event time: a timer two windows ahead of the watermark
            self._handle.registerTimer(times.getCurrentWatermarkInMs() + 12_000)
        else:
            self._handle.registerTimer(times.getCurrentProcessingTimeInMs() + NEVER_MS)
        yield self._row(key, "rows")

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        fired = self._timers.get()[0] if self._timers.exists() else 0
        self._timers.update((fired + 1,))
        yield self._row(key, f"timer {fired}")

    def _row(self, key: Any, why: str) -> Row:
        return Row(
            k=key[0],
            why=why,
            n=self._count.get()[0],
            seen=str([v[0] for v in self._seen.get()]),
            by_value=str(sorted((v[0], n[0]) for v, n in self._by_value.iterator())),
        )

    def close(self) -> None:
        pass


_COUNTS = "k int, why string, n long, seen string, by_value string"


def transform_with_timers(stream: DataFrame, other: DataFrame) -> DataFrame:
    return stream.groupBy("k").transformWithState(_Counts(None), _COUNTS, "append", "eventTime")


def transform_with_ttl(stream: DataFrame, other: DataFrame) -> DataFrame:
    processor = _Counts(NEVER_MS)
    return stream.groupBy("k").transformWithState(processor, _COUNTS, "append", "processingTime")


def pandas_state(stream: DataFrame, other: DataFrame) -> DataFrame:
    import pandas as pd

    def count(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        n = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    return stream.groupBy("k").applyInPandasWithState(
        count, "k int, n long", "n long", "append", "NoTimeout"
    )


Program = Callable[[DataFrame, DataFrame], DataFrame]

PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        aggregation,
        total,
        limited,
        distinct,
        distinct_within_watermark,
        session_windows,
        join,
        distinct_sums,
        transform_with_timers,
        transform_with_ttl,
        pandas_state,
    )
}
ROCKSDB_ONLY = {"transform_with_timers", "transform_with_ttl"}
MODES = {"total": "complete"}


def is_there(program: str) -> bool:
    """Tell whether this PySpark has the program's operator: 4.0 has no transformWithState over
    rows."""
    return program not in ROCKSDB_ONLY or hasattr(GroupedData, "transformWithState")


@dataclass(frozen=True)
class Place:
    """Where state lies."""

    backend: StateBackend
    partitions: int
    changelog: bool = False


def run_batch(
    spark: SparkSession, stream: DataFrame, checkpoint: Path, place: Place, mode: str = "append"
) -> list[Row]:
    """Run the query's next batch, of all files there; return its rows, in no order."""
    rows: list[Row] = []
    for _, batch in run_batches(spark, stream, checkpoint, place, mode, {"once": True}):
        rows += batch
    return rows


def run_batches(
    spark: SparkSession,
    stream: DataFrame,
    checkpoint: Path,
    place: Place,
    mode: str = "append",
    trigger: dict[str, bool] | None = None,
) -> list[tuple[int, list[Row]]]:
    """Run batches until all files there are read; return each one's number and rows."""
    found: list[tuple[int, list[Row]]] = []
    config = CheckpointConfig(state_backend=place.backend.value, changelog=place.changelog)
    settings = backend_settings(spark, config, {"state_backend", "changelog"})
    settings["spark.sql.shuffle.partitions"] = str(place.partitions)
    # Results ended by a batch's watermark only show in the next one, whatever comes in between.
    settings["spark.sql.streaming.noDataMicroBatches.enabled"] = "false"
    with session_settings(spark, settings):
        query = (
            stream.writeStream.outputMode(mode)
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(lambda batch, number: found.append((number, batch.collect())))
            .trigger(**(trigger or {"availableNow": True}))  # type: ignore[call-overload]
            .start()
        )
    query.awaitTermination()
    return found


def last_epoch(checkpoint: Path) -> int:
    """Return the last decided epoch."""
    return max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
