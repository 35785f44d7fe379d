"""State with parts in need of agreement: one part is written by `with_state`, the others follow.

How: an operator of each kind runs two batches, and each writable part of its state is written as it
was read, in another order; every store of the new savepoint must then hold, byte for byte, the rows
made by Spark itself. Contradictions are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.model.errors import DamagedCheckpointError, SavepointError
from seamark.savepoints.state.dependent import why_not
from seamark.savepoints.state.rows import read_rows
from tests.spark.savepoints.stateful_programs import Place, write_input
from tests.spark.savepoints.test_canonical_savepoints import ROCKSDB, Query, restore, take


def raw(spark: SparkSession, savepoint: sm.Savepoint) -> Counter[tuple[object, ...]]:
    """Return every row of every store."""
    record, found = savepoint.record, Counter[tuple[object, ...]]()
    for operator, store, family in record.families():
        rows = read_rows(spark, record.row_files(store))
        rows = rows.where(rows.column_family == family.name)
        of_family = rows.select(F.col("key_hash"), "sequence", "key", "value").collect()
        found.update(
            (operator.uid, store.name, family.name, r[0], r[1], bytes(r[2]), bytes(r[3]))
            for r in of_family
        )
    return found


def taken(spark: SparkSession, tmp_path: Path, program: str, batches: int = 2) -> sm.Savepoint:
    query = Query(spark, program, tmp_path / "inputs")
    for number in range(batches):
        write_input(tmp_path / "inputs", number, overlap=True)
        query.run_batch(tmp_path / "0", Place(ROCKSDB, 2))
    take(spark, tmp_path / "0", tmp_path / "savepoint")
    return sm.Savepoint(tmp_path / "savepoint")


def parts(savepoint: sm.Savepoint) -> Iterator[tuple[str, str, str]]:
    for operator, store, family in savepoint.record.families():
        no_rows = family.kind == "rows" and operator.properties is not None
        if not no_rows and not why_not(operator, store, family):
            yield operator.uid, store.name, family.name


@pytest.mark.parametrize(
    ("program", "count"),
    [
        ("session_windows", 1),
        *(
            pytest.param(program, count, marks=pytest.mark.chaos)
            for program, count in {
                "join": 2, "transform_with_ttl": 5, "transform_with_timers": 5, "aggregation": 1,
                "distinct": 1, "limited": 1, "distinct_within_watermark": 1, "distinct_sums": 2,
                "pandas_state": 1, "total": 1,
            }.items()
        ),
    ],
)  # fmt: skip
def test_what_follows_from_a_state_is_as_spark_has_it(
    spark: SparkSession, tmp_path: Path, program: str, count: int
) -> None:
    savepoint = taken(spark, tmp_path, program)
    before = raw(spark, savepoint)
    found = list(parts(savepoint))
    assert len(found) == count, found
    for number, (uid, store, family) in enumerate(found):
        state = savepoint.read_state(uid, store=store, family=family)
        if family != "timers":  # where none has fired
            assert state.count() > 0, (store, family)
        edited = savepoint.with_state(
            uid,
            state.orderBy(F.rand(7)),
            to=tmp_path / f"edited-{number}",
            store=store,
            family=family,
        )
        after = raw(spark, edited)
        assert after == before, f"{family} of {store}: {diff(before, after)}"


def diff(before: Counter[tuple[object, ...]], after: Counter[tuple[object, ...]]) -> str:
    return f"missing {list(before - after)[:2]}, more {list(after - before)[:2]}"


@pytest.mark.chaos
def test_a_join_takes_rows_from_a_state_that_was_given(spark: SparkSession, tmp_path: Path) -> None:
    """Rows with gaps in their numbers, one more than there were: the join finds them all."""
    savepoint = taken(spark, tmp_path, "join", batches=1)
    left = savepoint.read_state("operator-0", store="left")
    key = F.struct(F.col("key.field0"), (F.col("key.index") * 10).alias("index"))
    one = left.orderBy("key.field0", "key.index").limit(1)
    more = one.select(
        F.struct(F.col("key.field0"), F.lit(99).cast("long").alias("index")).alias("key"),
        F.col("value").withField("matched", F.lit(False)).alias("value"),
    )
    given = left.select(key.alias("key"), "value").union(more)
    with pytest.raises(SavepointError, match=r"give those, store='left-keyWithIndexToValue'"):
        savepoint.with_state("operator-0", left, to=tmp_path / "x", store="left-keyToNumValues")
    edited = savepoint.with_state("operator-0", given, to=tmp_path / "edited", store="left")
    now = edited.read_state("operator-0", store="left")
    assert now.count() == left.count() + 1
    assert now.where("key.index > 20").count() == 0, "numbered without a gap"
    counts = edited.read_state("operator-0", store="left-keyToNumValues")
    assert counts.selectExpr("sum(value.value)").first() == (left.count() + 1,)
    query = Query(spark, "join", tmp_path / "inputs")
    restore(spark, tmp_path / "savepoint", tmp_path / "1", Place(ROCKSDB, 3))
    restore(spark, tmp_path / "edited", tmp_path / "2", Place(ROCKSDB, 3))
    plain, changed = Counter[str](), Counter[str]()
    for number in (1, 2, 3):
        write_input(tmp_path / "inputs", number, overlap=True)
        plain.update(query.run_batch(tmp_path / "1", Place(ROCKSDB, 3)))
        changed.update(query.run_batch(tmp_path / "2", Place(ROCKSDB, 3)))
    assert not plain - changed
    extra = changed - plain
    first = one.first()
    assert first is not None and extra
    assert {row.split("k=")[1].split(",")[0] for row in extra} == {str(first.key.field0)}


def test_sessions_that_contradict_themselves_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    savepoint = taken(spark, tmp_path, "session_windows")
    state = savepoint.read_state("operator-0").select("key", "value")

    def refused(frame: DataFrame, why: str) -> None:
        with pytest.raises(SavepointError, match=why):
            savepoint.with_state("operator-0", frame, to=tmp_path / "x")
        assert not (tmp_path / "x").exists()

    later = F.col("key.sessionStartTime") + F.expr("INTERVAL 1 SECOND")
    moved = state.select(F.col("key").withField("sessionStartTime", later).alias("key"), "value")
    refused(moved, "key and value do not agree")
    other = state.select(F.col("key").withField("k", F.col("key.k") + 1).alias("key"), "value")
    refused(other, "key and value do not agree")
    window = F.struct(later.alias("start"), F.col("value.session_window.end").alias("end"))
    shifted = state.select(
        F.col("key").withField("sessionStartTime", later).alias("key"),
        F.col("value").withField("session_window", window).alias("value"),
    )
    refused(state.union(shifted), "begins before another one of its key has ended")


def test_times_that_begin_now_are_the_same_in_their_index(
    spark: SparkSession, tmp_path: Path
) -> None:
    savepoint = taken(spark, tmp_path, "transform_with_timers", batches=1)
    names = [f.name for _, _, f in savepoint.record.families() if f.kind == "timer"]
    (timers,) = (name for name in names if name.endswith("_keyToTimestamp"))
    (index,) = (name for name in names if name.endswith("_timestampToKey"))
    state, key = savepoint.read_state("operator-0", family=timers), F.col("key")
    moved = key["expiryTimestampMs"] + F.unix_millis(F.current_timestamp())
    given = state.select(key.withField("expiryTimestampMs", moved).alias("key"), "value")
    edited = savepoint.with_state("operator-0", given, to=tmp_path / "edited", family=timers)
    of_key, of_time = (
        {
            (row.key.key, row.key.expiryTimestampMs)
            for row in edited.read_state("operator-0", family=name).collect()
        }
        for name in (timers, index)
    )
    assert of_key == of_time
    assert len(of_key) == state.count() > 0


def test_a_damaged_savepoint_is_no_origin_of_a_whole_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    savepoint = taken(spark, tmp_path, "aggregation", batches=1)
    offsets = tmp_path / "savepoint/spark/offsets/0"
    offsets.with_name(".0.crc").unlink(missing_ok=True)
    offsets.write_text(offsets.read_text().replace('"logOffset":0', '"logOffset":7'))
    state = savepoint.read_state("operator-0")
    with pytest.raises(DamagedCheckpointError, match=r"nothing was written. Found:\n.*offsets/0: "):
        savepoint.with_state("operator-0", state, to=tmp_path / "edited")
    assert not (tmp_path / "edited").exists()
