"""The engine is upgraded, or set back, through a savepoint: for each kind of operator. And plain
queries' locations, of each Spark, are taken over.

How: `tests/golden` has canonical savepoints taken on each release line of Spark, and the rows of
the batch that followed there. Here the Spark at hand goes on from them, on another backend and with
another number of partitions. `make test-spark VERSION=4.0.5` does it with another Spark.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.spark.state_backend import CHANGELOG, PROVIDER, ROCKSDB_PROVIDER
from tests.golden.make import BATCHES, HERE, RETAINED, place_of
from tests.spark.savepoints.stateful_programs import PROGRAMS, ROCKSDB_ONLY, Place, write_input
from tests.spark.savepoints.test_canonical_savepoints import HASHMAP, ROCKSDB, Query, restore

LINES = ("4.0", "4.1", "4.2")
FIXTURES = sorted(HERE.glob("spark-*/*.zip"))


def named(fixture: Path) -> str:
    return f"{fixture.parent.name}-{fixture.stem}"


def unpacked(fixture: Path, directory: Path) -> tuple[Path, list[str]]:
    """Return the savepoint, and the rows that must follow it."""
    shutil.unpack_archive(fixture, directory)
    return directory, json.loads((directory / "expected.json").read_text())


def test_every_release_line_has_its_savepoints() -> None:
    found = {line: {p.stem for p in HERE.glob(f"spark-{line}/*.zip")} for line in LINES}
    assert found["4.1"] == found["4.2"] == set(PROGRAMS)
    assert found["4.2"] - found["4.0"] == ROCKSDB_ONLY, "not in PySpark 4.0"


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_line_gives_a_key_the_same_partition(tmp_path: Path, program: str) -> None:
    """Up to 4.1 Seamark works out the columns that Spark 4.2 tells."""
    hashes = []
    for fixture in (path for path in FIXTURES if path.stem == program):
        savepoint, _ = unpacked(fixture, tmp_path / fixture.parent.name)
        hashes.append(
            {
                (file.parent.relative_to(savepoint), row["column_family"], row["key"]): row[
                    "key_hash"
                ]
                for file in savepoint.glob("state/**/*.parquet")
                for row in pq.read_table(file).to_pylist()
            }
        )
    first, *others = hashes
    for other in others:
        common = first.keys() & other.keys()
        assert common, "keys with times of their own are not all keys"
        assert {key: first[key] for key in common} == {key: other[key] for key in common}


def expect_inputs(checkpoint: Path, inputs: Path) -> None:
    """Write the inputs of all batches, and let the file sources find the first ones here."""
    for number in range(BATCHES + 1):
        write_input(inputs, number, overlap=True)
    for log in (checkpoint / "sources").glob("*/[0-9]*"):
        log.write_text(re.sub(r'file:[^"]*/inputs/', f"{inputs.as_uri()}/", log.read_text()))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("fixture", FIXTURES, ids=named)
def test_a_query_goes_on_with_another_spark(
    spark: SparkSession, tmp_path: Path, fixture: Path
) -> None:
    query = Query(spark, fixture.stem, tmp_path / "inputs")
    savepoint, expected = unpacked(fixture, tmp_path / "savepoint")
    place = Place(HASHMAP if fixture.stem == "limited" else ROCKSDB, 3)
    restore(spark, savepoint, tmp_path / "checkpoint", place)
    expect_inputs(tmp_path / "checkpoint", tmp_path / "inputs")
    assert query.run_batch(tmp_path / "checkpoint", place) == expected


@pytest.mark.parametrize("fixture", [p for p in FIXTURES if p.stem in RETAINED], ids=named)
def test_a_checkpoint_goes_on_with_another_spark(
    spark: SparkSession, tmp_path: Path, fixture: Path
) -> None:
    """A retained checkpoint is copied as it is: Spark reads the files of its other versions."""
    savepoint, expected = unpacked(fixture, tmp_path / "savepoint")
    expect_inputs(savepoint / "checkpoint", tmp_path / "inputs")
    query = Query(spark, fixture.stem, tmp_path / "inputs")
    assert query.run_batch(savepoint / "checkpoint", place_of(fixture.stem)) == expected


def taken_over(
    spark: SparkSession, query: Query, location: Path, out: Path, settings: dict[str, str]
) -> list[str]:
    """Run the next batch of a plain query's location by Seamark; return its rows as text."""
    stream = query.stream()
    writer = sm.write_stream(stream).format("json").option("path", str(out)).trigger(once=True)
    # Results ended by a batch's watermark only show in the next one, as where they were expected.
    settings = {"spark.sql.streaming.noDataMicroBatches.enabled": "false", **settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        running = writer.option("checkpointLocation", str(location)).start()
        assert running.awaitTermination(120)
    finally:
        for key in settings:
            spark.conf.unset(key)
    return sorted(map(str, spark.read.schema(stream.schema).json(str(out)).collect()))


@pytest.mark.parametrize("fixture", [p for p in FIXTURES if p.stem in RETAINED], ids=named)
def test_a_plain_querys_location_is_taken_over_with_another_spark(
    spark: SparkSession, tmp_path: Path, fixture: Path
) -> None:
    savepoint, expected = unpacked(fixture, tmp_path / "savepoint")
    expect_inputs(savepoint / "checkpoint", tmp_path / "inputs")
    query = Query(spark, fixture.stem, tmp_path / "inputs")
    assert taken_over(spark, query, savepoint / "checkpoint", tmp_path / "out", {}) == expected


def test_a_plain_querys_state_in_rocksdb_is_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    """With the backend in the session, as the plain query had it; without, the start is refused."""
    query = Query(spark, "aggregation", tmp_path / "inputs")
    place = Place(ROCKSDB, 2, changelog=True)
    for number in range(BATCHES):
        write_input(tmp_path / "inputs", number, overlap=True)
        query.run_batch(tmp_path / "location", place)
    shutil.copytree(tmp_path / "location", tmp_path / "plain")
    write_input(tmp_path / "inputs", BATCHES, overlap=True)
    expected = query.run_batch(tmp_path / "plain", place)
    assert expected
    with pytest.raises(sm.ConfigurationError, match="give state_backend='rocksdb'"):
        taken_over(spark, query, tmp_path / "location", tmp_path / "out", {})
    settings = {PROVIDER: ROCKSDB_PROVIDER, CHANGELOG: "true"}
    assert taken_over(spark, query, tmp_path / "location", tmp_path / "out", settings) == expected
