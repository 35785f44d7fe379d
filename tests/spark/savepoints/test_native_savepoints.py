"""Stateful operators through native savepoints, copies of the state's files, in one real session.

How: as test_canonical_savepoints.py, with its queries: between two batches the checkpoint is copied
into a savepoint, deleted, and the query goes on from the moved savepoint; its rows are compared
with those of the same query on one checkpoint.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.model.errors import DamagedCheckpointError, RestoreError, SavepointError
from seamark.savepoints.record import SavepointType
from seamark.savepoints.restore.location import FORMAT, NewOperator, Placement
from tests.spark.savepoints.stateful_programs import PROGRAMS, ROCKSDB_ONLY, write_input
from tests.spark.savepoints.test_canonical_savepoints import (
    HASHMAP,
    ROCKSDB,
    Place,
    Query,
    planned,
    restore,
    take,
)

NATIVE = SavepointType.NATIVE


def require_same_rows(
    spark: SparkSession, tmp_path: Path, program: str, place: Place, hops: int = 1
) -> None:
    """With two epochs between a savepoint and the next: a chain of changes is copied."""
    inputs = tmp_path / "inputs"
    query = Query(spark, program, inputs)
    checkpoint = tmp_path / "0"
    compared = 0
    for step in range(hops * 2 + 2):
        if step and step % 2 == 0:
            savepoint = tmp_path / f"savepoint-{step}"
            taken = take(spark, checkpoint, savepoint, NATIVE)
            assert all(taken.bytes_of(o) > 0 and o.rows == -1 for o in taken.operators)
            shutil.rmtree(checkpoint)
            moved = tmp_path / f"moved-{step}"
            savepoint.rename(moved)
            checkpoint = tmp_path / str(step)
            restore(spark, moved, checkpoint, place)
        write_input(inputs, step, overlap=True)
        expected = query.run_batch(tmp_path / "reference", place)
        assert query.run_batch(checkpoint, place) == expected, f"batch {step}, on {place}"
        compared += len(expected) if step > 1 else 0
    assert compared > 0, "nothing was compared"


@pytest.mark.parametrize(
    ("program", "place"),
    [
        ("join", Place(HASHMAP, 2)),
        ("transform_with_timers", Place(ROCKSDB, 2, changelog=True)),
    ],
)
def test_a_query_goes_on_from_copied_files_as_if_it_had_never_stopped(
    spark: SparkSession, tmp_path: Path, program: str, place: Place
) -> None:
    require_same_rows(spark, tmp_path, program, place)


def test_operators_are_renumbered_and_what_cannot_be_restored_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs, place = tmp_path / "inputs", Place(ROCKSDB, 2)
    distinct, sums = (Query(spark, name, inputs) for name in ("distinct", "distinct_sums"))
    write_input(inputs, 0)
    sums.run_batch(tmp_path / "sums", place)
    distinct.run_batch(tmp_path / "distinct", place)
    both = tmp_path / "both"
    assert [o.name for o in take(spark, tmp_path / "sums", both, NATIVE).operators] == [
        "stateStoreSave", "dedupe",
    ]  # fmt: skip

    with pytest.raises(RestoreError, match=r"parallelism is 3, and its state has 2.*canonical"):
        restore(spark, both, tmp_path / "no", Place(ROCKSDB, 3))
    with pytest.raises(RestoreError, match=r"'hashmap', and its state is of 'rocksdb'.*canonical"):
        restore(spark, both, tmp_path / "no", Place(HASHMAP, 2))
    with pytest.raises(SavepointError, match=r"is native: .* take a canonical one"):
        sm.Savepoint(both).read_state("operator-0")

    damaged = tmp_path / "damaged"
    shutil.copytree(both, damaged)
    files = sorted((damaged / "state" / "0").rglob("*.zip"))
    files[0].unlink()
    altered = bytearray(files[1].read_bytes())
    altered[100] ^= 1
    files[1].write_bytes(altered)
    with pytest.raises(DamagedCheckpointError) as caught:
        restore(spark, damaged, tmp_path / "no", place)
    assert len(caught.value.problems) == 2
    assert f"{files[0]}: missing" in caught.value.problems[0]
    assert str(files[1]) in caught.value.problems[1]
    assert not (tmp_path / "no").exists()

    source = {"source-0": 0}
    restored = tmp_path / "restored"
    restore(spark, both, restored, place, Placement({"operator-1": 0}, source))
    one = take(spark, tmp_path / "distinct", tmp_path / "one", NATIVE)
    new = (NewOperator(0, planned(spark, sums, one, tmp_path)),)
    moved = Placement({"operator-0": 1}, source)
    restore(spark, tmp_path / "one", tmp_path / "grown", place, moved, new)
    # The same file again, and a new one: rows seen before are dropped by state alone.
    shutil.copy2(inputs / "0000.json", inputs / "0000-again.json")
    write_input(inputs, 1)
    expected = distinct.run_batch(tmp_path / "distinct", place)
    assert expected
    assert distinct.run_batch(restored, place) == expected
    sums.run_batch(tmp_path / "grown", place)


@pytest.mark.chaos
@pytest.mark.parametrize("program", sorted(PROGRAMS))
@pytest.mark.parametrize("spark_format", ["1", "2"])
def test_every_operator_and_backend(
    spark: SparkSession, tmp_path: Path, program: str, spark_format: str
) -> None:
    places = [Place(ROCKSDB, 3), Place(ROCKSDB, 2, changelog=True)]
    if program not in ROCKSDB_ONLY and spark_format == "1":
        places.append(Place(HASHMAP, 3))
    spark.conf.set(FORMAT, spark_format)
    try:
        for number, place in enumerate(places):
            require_same_rows(spark, tmp_path / str(number), program, place, hops=2)
    finally:
        spark.conf.unset(FORMAT)
