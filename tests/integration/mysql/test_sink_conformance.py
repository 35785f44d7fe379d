"""MySQLSink under the conformance suite, in each mode: a real MariaDB, read by a client of its own.

In upsert mode each number is a key, so that the suite's rows never meet; what happens when they do
is in `test_sink_upsert.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.servers.mariadb import MariaDBServer
from tidemark.sinks.mysql import MySQLSink
from tidemark.sinks.mysql.committable import MySQLCommittable
from tidemark.verify.conformance import (
    ExpiryConformance,
    RefusalConformance,
    SinkConformance,
    SinkUnderTest,
)
from tidemark.verify.conformance.steps import driver


@pytest.fixture(params=["xa", "staged", "upsert"])
def under(request: pytest.FixtureRequest, mariadb: MariaDBServer, database: str) -> SinkUnderTest:
    mode = request.param
    key = ", PRIMARY KEY (id)" if mode == "upsert" else ""
    mariadb.execute(
        f"CREATE TABLE {database}.orders (id BIGINT NOT NULL, text LONGTEXT NOT NULL{key})"
    )
    sink = MySQLSink(
        mariadb.url(database=database), "orders", mode, keys=["id"] if key else (),
        create_table=False,
    )  # fmt: skip
    sink.create_committer(driver()).preflight()  # some tests write before they make a committer

    def batch(numbers: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch(
            [pa.array(numbers, pa.int64()), pa.array([f"row {n}" for n in numbers], pa.string())],
            names=["id", "text"],
        )

    def visible() -> list[int]:
        rows = mariadb.execute(f"SELECT id, text FROM {database}.orders")
        assert all(text == f"row {number}" for number, text in rows)
        return [number for number, _ in rows]

    def drop(committable: MySQLCommittable) -> None:
        """Neither way has a time-out: this is an administrator at work."""
        name = committable.name
        how = f"XA ROLLBACK {name.xid}" if mode == "xa" else f"DROP TABLE {name.stage_table}"
        mariadb.execute(how, database=database)

    points = tuple(f"xa-committed:{nth}" for nth in (1, 2, 3))
    return SinkUnderTest(
        sink=sink,
        batch=batch,
        visible=visible,
        writer_failpoint="xa-prepared" if mode == "xa" else "stage-written",
        commit_failpoints=points if mode == "xa" else ("ledger-committed",),
        drop=drop,
        refused=lambda: pa.record_batch({"id": [1], "text": pa.array([None], pa.string())}),
    )


class TestMySQL(SinkConformance, ExpiryConformance, RefusalConformance):
    pass
