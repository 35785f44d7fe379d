"""Takes the savepoints in `spark-<line>/` with the Spark at hand: ``python -m tests.golden.make``.

For each program of `stateful_programs.py` that this Spark has: two batches, a canonical savepoint
of them, and the rows of the batch that follows. `tests/spark/savepoints/test_engine_upgrade.py`
goes on from the savepoint with another Spark, and must get these rows.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from seamark.spark.session import spark_session
from tests.spark.savepoints.stateful_programs import (
    PROGRAMS,
    ROCKSDB_ONLY,
    Place,
    is_there,
    write_input,
)
from tests.spark.savepoints.test_canonical_savepoints import HASHMAP, ROCKSDB, Query, take

HERE = Path(__file__).parent
BATCHES = 2
RETAINED = ("aggregation",)
"""Programs whose checkpoint is kept too."""


def place_of(program: str) -> Place:
    return Place(ROCKSDB if program in ROCKSDB_ONLY else HASHMAP, 2)


def home(version: str) -> Path:
    """Return the folder of a release line, such as 4.2."""
    return HERE / f"spark-{'.'.join(version.split('.')[:2])}"


def make(spark: SparkSession, program: str, target: Path, scratch: Path) -> None:
    shutil.rmtree(scratch, ignore_errors=True)
    query = Query(spark, program, scratch / "inputs")
    place = place_of(program)
    for number in range(BATCHES):
        write_input(scratch / "inputs", number, overlap=True)
        query.run_batch(scratch / "checkpoint", place)
    take(spark, scratch / "checkpoint", scratch / "savepoint")
    if program in RETAINED:
        shutil.copytree(scratch / "checkpoint", scratch / "savepoint" / "checkpoint")
    write_input(scratch / "inputs", BATCHES, overlap=True)
    expected = query.run_batch(scratch / "checkpoint", place)
    for checksum in (scratch / "savepoint").rglob(".*.crc"):
        checksum.unlink()
    (scratch / "savepoint" / "expected.json").write_text(json.dumps(expected, indent=0))
    shutil.make_archive(str(target), "zip", scratch / "savepoint")


def main() -> None:
    spark = spark_session("golden")
    scratch = Path(tempfile.gettempdir(), "seamark-golden")  # a savepoint names its inputs
    for program in filter(is_there, sys.argv[1:] or PROGRAMS):
        make(spark, program, home(spark.version) / program, scratch)
        print(spark.version, program)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
