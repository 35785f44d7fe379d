"""A query of ``format("seamark")`` whose table is altered while it runs. The worker that commits
has looked at no table before."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from seamark.model.errors import CommitFailedError
from tests.unit.datasource.played import Query

COLUMNS = StructType([StructField("id", StringType()), StructField("big", LongType())])
BIG = 2**53 + 1


def rows(*ids: str) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids), "big": pa.array([BIG] * len(ids), pa.int64())})


@pytest.mark.parametrize("keys", [{}, {"keys": "id"}], ids=["append", "upsert"])
@pytest.mark.parametrize(
    "columns", ["id NUMERIC PRIMARY KEY, big BIGINT", "id TEXT PRIMARY KEY, big REAL"]
)
def test_no_row_is_altered_and_the_batch_waits(
    tmp_path: Path, columns: str, keys: dict[str, str]
) -> None:
    query = Query(
        sink="sqlite", path=f"{tmp_path}/t.db", table="t",
        checkpointlocation=f"{tmp_path}/checkpoint", **keys,
    )  # fmt: skip
    query.run(0, schema=COLUMNS, rows=rows("00"))
    with sqlite3.connect(tmp_path / "t.db", isolation_level=None) as table:
        table.execute("ALTER TABLE t RENAME TO first")
        table.execute(f"CREATE TABLE t ({columns})")
        with pytest.raises(CommitFailedError, match="altered while the job ran"):
            query.run(1, schema=COLUMNS, rows=rows("01"))
        assert table.execute("SELECT * FROM t").fetchall() == []
        table.execute("DROP TABLE t")
        table.execute("ALTER TABLE first RENAME TO t")
        query.end_spark()
        query.run(1, schema=COLUMNS, rows=rows("01"))
        query.run(2, schema=COLUMNS, rows=rows("02"))
        written = [("00", BIG), ("01", BIG), ("02", BIG)]
        assert table.execute("SELECT * FROM t ORDER BY id").fetchall() == written
    query.end_spark()
