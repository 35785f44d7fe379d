"""Every stateful operator of Spark's through canonical savepoints, in one real session.

How: a query runs one batch at a time, one for each file. Between two batches its checkpoint is
exported, made into another one on another backend with another number of partitions, and the query
goes on there, again and again; after each step the rows of its batch are compared with those of the
same query that stays on one checkpoint. What is read is only what is in the savepoint: the
checkpoint it was taken from is deleted first.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.stateful_programs import MODES, PROGRAMS, ROCKSDB_ONLY, events, write_input
from tidemark.api.config import CheckpointConfig, StateBackend
from tidemark.runtime.operator_uids import OperatorUids
from tidemark.runtime.state_backend import backend_settings, session_settings
from tidemark.savepoints.canonical import export_canonical
from tidemark.savepoints.record import Savepoint
from tidemark.savepoints.restoring import check_restore, restore_canonical

HASHMAP, ROCKSDB = StateBackend.HASHMAP, StateBackend.ROCKSDB


@dataclass(frozen=True)
class Place:
    """Where state lies."""

    backend: StateBackend
    partitions: int
    changelog: bool = False


_ANY = (
    (HASHMAP, False), (ROCKSDB, False), (HASHMAP, False), (ROCKSDB, True), (ROCKSDB, False)
)  # fmt: skip
_ROCKSDB = ((ROCKSDB, False), (ROCKSDB, True))


def hops(program: str, partitions: list[int]) -> list[Place]:
    """Return places of these partitions, the backends taking turns."""
    turns = _ROCKSDB if program in ROCKSDB_ONLY else _ANY
    return [
        Place(backend, number, changelog)
        for number, (backend, changelog) in zip(partitions, itertools.cycle(turns), strict=False)
    ]


class Query:
    """One of the programs, run one batch at a time."""

    def __init__(self, spark: SparkSession, program: str, inputs: Path) -> None:
        self._spark = spark
        self._program = program
        self._inputs = inputs

    def run_batch(self, checkpoint: Path, place: Place) -> list[str]:
        """Run the next batch and return its rows as text, sorted."""
        rows: list[str] = []
        streams = [events(self._spark, self._inputs) for _ in range(2)]
        result = PROGRAMS[self._program](*streams)
        config = CheckpointConfig(state_backend=place.backend.value, changelog=place.changelog)
        settings = backend_settings(self._spark, config, {"state_backend", "changelog"})
        settings["spark.sql.shuffle.partitions"] = str(place.partitions)
        with session_settings(self._spark, settings):
            query = (
                result.writeStream.outputMode(MODES.get(self._program, "append"))
                .option("checkpointLocation", str(checkpoint))
                .foreachBatch(lambda batch, _: rows.extend(str(row) for row in batch.collect()))
                .trigger(once=True)
                .start()
            )
        query.awaitTermination()
        return sorted(rows)


def last_epoch(checkpoint: Path) -> int:
    return max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())


def take(spark: SparkSession, checkpoint: Path, target: Path) -> Savepoint:
    return export_canonical(
        spark,
        checkpoint.as_uri(),
        last_epoch(checkpoint),
        target.as_uri(),
        job_id="0" * 32,
        job_name="programs",
        uids=OperatorUids(),
    )


def restore(spark: SparkSession, savepoint: Path, target: Path, place: Place) -> None:
    found = check_restore(spark, savepoint.as_uri(), None, place.backend)
    restore_canonical(
        spark,
        found,
        target.as_uri(),
        query_id=str(uuid.uuid4()),
        partitions=place.partitions,
        backend=place.backend,
    )


def require_same_rows(
    spark: SparkSession, tmp_path: Path, program: str, partitions: list[int]
) -> None:
    inputs = tmp_path / "inputs"
    query = Query(spark, program, inputs)
    reference = Place(ROCKSDB if program in ROCKSDB_ONLY else HASHMAP, 4)
    checkpoint = tmp_path / "0"
    compared = 0
    for step, place in enumerate(hops(program, partitions)):
        if step:
            savepoint = tmp_path / f"savepoint-{step}"
            taken = take(spark, checkpoint, savepoint)
            assert taken.operators and all(o.rows for o in taken.operators), "no state to move"
            shutil.rmtree(checkpoint)
            moved = tmp_path / f"moved-{step}"
            savepoint.rename(moved)
            checkpoint = tmp_path / str(step)
            restore(spark, moved, checkpoint, place)
        write_input(inputs, step)
        expected = query.run_batch(tmp_path / "reference", reference)
        assert query.run_batch(checkpoint, place) == expected, f"batch {step}, on {place}"
        compared += len(expected) if step else 0
    assert compared > 0, "nothing was compared"


@pytest.mark.parametrize("program", ["aggregation", "join", "session_windows", "total"])
def test_a_query_goes_on_from_its_savepoint_as_if_it_had_never_stopped(
    spark: SparkSession, tmp_path: Path, program: str
) -> None:
    require_same_rows(spark, tmp_path, program, [1, 2, 3])


@pytest.mark.chaos
@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_every_change_of_partitions(spark: SparkSession, tmp_path: Path, program: str) -> None:
    require_same_rows(spark, tmp_path, program, [1, 2, 3, 5, 6, 5, 2, 3, 2, 1])
