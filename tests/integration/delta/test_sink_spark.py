"""The other side of the table: Spark with delta-spark makes, reads and maintains it, in a process
of its own (`spark_sql.py`)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.schema import Column
from seamark.sinks.delta import DeltaSink
from seamark.spark.jars import Request, resolve
from tests.chaos.driver import REPOSITORY
from tests.integration.delta.sink_kit import (
    attempt,
    batch,
    driver,
    made,
    numbers,
    rows,
)
from tests.integration.delta.test_sink_rows import COLUMNS, context, write
from tests.servers.needed import needed

VERSION = "4.4.0"


def delta_jars() -> list[Path]:
    """Return delta-spark's jars, for Spark 4.2."""
    with needed("delta-spark"):
        return resolve(
            f"delta-spark-{VERSION}",
            Request(
                (
                    f"io.delta:delta-spark_4.2_2.13:{VERSION}",
                    f"io.delta:delta-storage:{VERSION}",
                    f"io.delta:delta-kernel-api:{VERSION}",
                    f"io.delta:delta-kernel-defaults:{VERSION}",
                    f"io.delta:delta-kernel-unitycatalog:{VERSION}",
                ),
                transitive=False,
            ),
        )


class Spark:
    """A Spark session with Delta, asked by SQL."""

    def __init__(self, log: Path) -> None:
        jars = delta_jars()
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.delta.spark_sql", *map(str, jars)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                cwd=log.parent,
                env={**os.environ, "PYTHONPATH": f"{REPOSITORY}/src{os.pathsep}{REPOSITORY}"},
            )  # fmt: skip

    def sql(self, statement: str) -> list[dict[str, Any]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                answer: list[dict[str, Any]] = json.loads(line.removeprefix("answer "))
                return answer
        raise AssertionError(f"Spark ended at {statement!r}:\n{self._log.read_text()[-3000:]}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    started = Spark(tmp_path_factory.mktemp("spark") / "spark.log")
    yield started
    started.close()


def test_spark_reads_what_is_written_and_keeps_its_house(spark: Spark, tmp_path: Path) -> None:
    sink = made(tmp_path / "a table", partition_by=["part"])
    table = f"delta.`{sink.path}`"
    committed = write(sink, batch(range(30)))
    write(sink, batch(range(30, 60)))
    writer = sink.create_writer(attempt(epoch=1))
    writer.write(batch(range(60, 70)))
    (pending,) = writer.prepare_commit()

    def ids(where: str = "true") -> list[int]:
        return [row["id"] for row in spark.sql(f"SELECT id FROM {table} WHERE {where} ORDER BY id")]

    assert ids() == list(range(60))
    assert ids("part = 'ü:2' AND id >= 30") == list(range(32, 60, 3))
    # Spark as another writer, then its maintenance: afterwards nothing but the log knows.
    spark.sql(f"INSERT INTO {table} VALUES (100, 'odd / 1%', 'row 100')")
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
    left = {path.name for path in Path(sink.path).rglob("*.parquet")}
    assert not left & {Path(file.path).name for file in committed.data_files}
    committer = sink.create_committer(driver(2))
    assert committer.commit([committed]) == [CommitOutcome.ALREADY_COMMITTED]
    assert [found.committable.handle for found in committer.list_lingering()] == [pending.handle]
    assert committer.commit([pending]) == [CommitOutcome.LOST]  # VACUUM kept nothing for 0 hours
    assert committer.abort([pending]) == [AbortOutcome.ABORTED]
    assert ids() == [*range(60), 100]
    assert sorted(row["id"] for row in rows(sink)) == [*range(60), 100]


def test_a_table_that_spark_made_takes_rows(spark: Spark, tmp_path: Path) -> None:
    path = str(tmp_path / "made-by-spark")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, part STRING, text STRING) USING delta "
        "PARTITIONED BY (part) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1000, 'x', 'old')")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1000")
    sink = DeltaSink(path, ["part"])
    sink.create_committer(context(*COLUMNS)).preflight()
    write(sink, batch(range(10)))
    assert sorted(numbers(sink)) == list(range(10))
    found = spark.sql(f"SELECT id, part, text FROM delta.`{path}` ORDER BY id")
    assert found == [
        {name: value for name, value in row.items() if value is not None}
        for row in batch(range(10)).to_pylist()
    ]


def test_spark_finds_each_value_by_its_bounds(spark: Spark, tmp_path: Path) -> None:
    schema = pa.schema(
        [("f", pa.float64()), ("c", pa.decimal128(20, 6)), ("s", pa.string()), ("ok", pa.bool_())]
    )
    sink = made(tmp_path / "bounds", schema=schema)
    rows = [
        {"f": 0.0, "c": Decimal("0.0001"), "s": "a" * 70, "ok": True},
        {"f": 1e-300, "c": Decimal("-99999999.999999"), "s": "ü" * 64, "ok": False},
        {"f": math.nan, "c": Decimal("12345678901234.567891"), "s": "b", "ok": None},
    ]
    for row in rows:
        write(sink, pa.record_batch([pa.array([row[f.name]], f.type) for f in schema], schema))
    wheres = {
        "f = 0": 1, "f >= 0": 3, "f = 1e-300": 1, "f > 1": 1, "f = double('NaN')": 1,
        "c = 0.0001BD": 1, "c <= -99999999.999999BD": 1, "c >= 12345678901234.567891BD": 1,
        "s = repeat('a', 70)": 1, "s > repeat('a', 69)": 3, "s = repeat('ü', 64)": 1,
        "ok": 1, "NOT ok": 1, "ok IS NULL": 1,
    }  # fmt: skip
    counts = ", ".join(f"count_if({where}) AS `{where}`" for where in wheres)
    table = f"delta.`{sink.path}`"
    assert spark.sql(f"SELECT {counts} FROM {table}") == [wheres]
    found = {w: spark.sql(f"SELECT count(*) AS n FROM {table} WHERE {w}")[0]["n"] for w in wheres}
    assert found == wheres


@pytest.mark.parametrize("digits", [15, 16, 20, 38])
def test_spark_finds_each_decimal_that_a_merge_has_written(
    spark: Spark, tmp_path: Path, digits: int
) -> None:
    """delta-rs tells a decimal's bounds as doubles."""
    kinds = {"id": "bigint", "c": f"decimal({digits},2)", "ok": "boolean", "raw": "binary"}
    schema = tuple(Column(name, kind) for name, kind in kinds.items())
    sink = DeltaSink(str(tmp_path / "merged"), create_table=True, keys=["id"])
    committer = sink.create_committer(driver(schema=schema))
    committer.preflight()
    numbers = ["9" * (digits - 2) + ".99", "1" * (digits - 2) + ".11", "-" + "7" * (digits - 2)]
    for epoch, number in enumerate(numbers):
        writer = sink.create_writer(attempt(epoch=epoch))
        value = pa.array([Decimal(number)], pa.decimal128(digits, 2))
        row = [pa.array([epoch]), value, pa.array([True]), pa.array([b"x"])]
        writer.write(pa.record_batch(row, names=[*kinds]))
        assert committer.commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
    table = f"delta.`{sink.path}`"
    for number in numbers:
        for where in (f"c = {number}BD", f"c >= {number}BD AND c <= {number}BD"):
            assert spark.sql(f"SELECT count(*) AS n FROM {table} WHERE {where}") == [{"n": 1}], (
                where
            )
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (more INT)")
    assert spark.sql(f"SELECT count(*) AS n FROM {table} WHERE ok AND more IS NULL") == [{"n": 3}]
