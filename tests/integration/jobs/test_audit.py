"""`seamark audit` finds each planted fault, on real targets, and nothing where nothing is wrong.

How: a bounded job writes five epochs into Kafka, PostgreSQL, Parquet files and SQLite. Its Kafka
sink has a bug: it loses, doubles, changes and exchanges some rows that the ledger has. At the other
targets a hand loses, doubles, changes and adds rows. Another job, killed on its way, upserts into
PostgreSQL, MariaDB, SQLite and Delta, and deletes. The audit runs as its user runs it.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from seamark.dev.kafka import LocalKafka
from seamark.sinks.iceberg import IcebergSink
from tests.integration.iceberg.sink_kit import catalog_at, opened
from tests.servers.mariadb import MariaDBServer
from tests.servers.needed import needed
from tests.servers.postgres import PostgresServer

EPOCHS, ROWS = 5, 400
PROGRAM = """
import json, sys
import pyarrow as pa
import seamark as sm
from seamark.contracts.read_back import Targets
from seamark.sources.fields import EventTime, Sequence
from seamark.sinks.kafka.native_producer import _grouped
from seamark.sinks.kafka.partitioner import Partitioner

given = json.loads(sys.argv[1])
EPOCHS, ROWS = given["epochs"], given["rows"]


class Faulty(sm.KafkaSink):
    def create_writer(self, context):
        return Writer(super().create_writer(context), self.topic)


class Writer:
    def __init__(self, writer, topic):
        self._writer, self._topic = writer, topic

    def write(self, batch):
        keys = batch.column("key")
        order, groups = _grouped(Partitioner(2, [0, 1]).of(keys.cast(pa.binary())))
        self._targets = Targets(order, [(f"{self._topic}/{p}", s, e) for p, s, e in groups])
        rows = []
        for row in batch.to_pylist():
            n = int(row["value"].split(b"-")[1])
            n = given["swap"].get(str(n), n)
            row["value"] = b"row-%d" % n
            if n == given["change"]:
                row["value"] += b"!"
            copies = 0 if n == given["lose"] else 2 if n == given["double"] else 1
            rows += [row] * copies
        self._writer.write(pa.RecordBatch.from_pylist(rows, batch.schema))

    def last_targets(self):
        return self._targets

    def as_found(self, batch):
        return batch

    def prepare_commit(self):
        return self._writer.prepare_commit()

    def abort(self):
        self._writer.abort()


job = sm.Job("audited", sm.CheckpointConfig(storage="store", interval="0s"))
rows = job.source(
    sm.DatagenSource(rows_per_second=1000, number_of_rows=EPOCHS * ROWS, rows_per_epoch=ROWS,
                     partitions=2, fields={"at": EventTime(), "n": Sequence()}),
    uid="rows",
)
table = rows.selectExpr(
    "n", "concat('row-', n) AS text", "at", "CAST(n / 7 AS DECIMAL(12, 3)) AS amount",
    "n % 2 = 0 AS even", "n / 3D AS third", "CAST(CAST(n AS STRING) AS BINARY) AS raw",
)
job.sink(rows.selectExpr("CAST(n % 50 AS STRING) AS key", "concat('row-', n) AS value"),
         Faulty(given["servers"], topic=given["topic"], transactional_id_prefix=given["topic"]),
         uid="to-kafka")
job.sink(table, sm.PostgresSink(given["postgres"], table=given["table"], mode=given["mode"],
                                create_table=True), uid="to-postgres")
job.sink(table, sm.FileSink("out"), uid="to-files")
job.sink(table.selectExpr("*", f"n div {ROWS} AS epoch"), sm.SQLiteSink("rows.db", table="rows"),
         uid="to-sqlite")
if __name__ == "__main__":
    job.run()
"""
UPSERTS = """
import json, sys
import seamark as sm
from seamark.sources.fields import Sequence

given = json.loads(sys.argv[1])
job = sm.Job("audited", sm.CheckpointConfig(storage="store", interval="0s"))
rows = job.source(
    sm.DatagenSource(rows_per_second=1000, number_of_rows=given["epochs"] * given["rows"],
                     rows_per_epoch=given["rows"], partitions=2, fields={"n": Sequence()}),
    uid="rows",
)
changes = rows.selectExpr(
    "concat('k', n * 7919 % 400) AS k", "n", "concat('row-', n) AS text",
    "CAST(n / 7 AS DECIMAL(12, 3)) AS amount", "IF(n % 11 = 0, 'delete', 'update') AS op",
)
by_key = {"keys": ["k"], "op": "op"}
job.sink(changes, sm.PostgresSink(given["postgres"], "changes", mode="upsert", create_table=True,
                                  **by_key), uid="to-postgres")
job.sink(changes, sm.MySQLSink(given["mariadb"], "changes", mode="upsert", create_table=True,
                               **by_key), uid="to-mariadb")
job.sink(changes, sm.SQLiteSink("rows.db", table="changes", **by_key), uid="to-sqlite")
job.sink(changes, sm.DeltaSink("delta", create_table=True, **by_key), uid="to-delta")
job.sink(changes, sm.IcebergSink("shop.changes", given["iceberg"], mode="upsert", create_table=True,
                                 **by_key), uid="to-iceberg")
if __name__ == "__main__":
    job.run()
"""
NO_FAULT: dict[str, Any] = {"lose": -1, "double": -1, "change": -1, "swap": {}}
EPOCH_COLUMN = ["--epoch-column", "to-sqlite=epoch"]


class Home:
    """One job, its program's arguments, and its targets."""

    def __init__(self, directory: Path, program: str, **given: Any) -> None:
        (directory / "app.py").write_text(program)
        self.directory = directory
        self.given = {"epochs": EPOCHS, "rows": ROWS, **given}

    def run(self, failpoint: str = "") -> None:
        done = self._python("app.py", json.dumps(self.given), SEAMARK_FAILPOINT=failpoint)
        assert done.returncode == (-signal.SIGKILL if failpoint else 0), done.stderr[-4000:]

    def audit(self, *options: str, code: int = 0) -> dict[str, Any]:
        """Return the audit's sinks by uid."""
        command = ["-m", "seamark", "audit", "--json", *options, "app.py", json.dumps(self.given)]
        done = self._python(*command)
        assert done.returncode == code, (done.stdout[-4000:], done.stderr[-4000:])
        return {sink["sink"]: sink for sink in json.loads(done.stdout)["sinks"]}

    def _python(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.directory, capture_output=True, text=True,
            timeout=400, check=False, env={**os.environ, **variables},
        )  # fmt: skip

    def sqlite(self, sql: str) -> None:
        with sqlite3.connect(self.directory / "rows.db") as connection:
            connection.execute(sql)

    def files(self, epoch: int) -> list[Path]:
        return sorted((self.directory / "out").glob(f"part-{epoch:08d}-*"))

    def rewrite(self, epoch: int, change: Callable[[pa.Table], pa.Table]) -> None:
        path = self.files(epoch)[0]
        pa.parquet.write_table(change(pa.parquet.read_table(path)), path)


def appending(
    directory: Path, kafka: LocalKafka, topic: str, postgres: PostgresServer, **more: Any
) -> Home:
    return Home(
        directory, PROGRAM, servers=kafka.bootstrap_servers, topic=topic, postgres=postgres.url(),
        **{"table": topic.replace("-", "_"), "mode": "prepared", **NO_FAULT, **more},
    )  # fmt: skip


Findings = set[tuple[str, int, int]]


def found(sink: dict[str, Any]) -> Findings:
    """Return each finding's fault, epoch and rows."""
    return {(one["fault"], one["epoch"], one["rows"]) for one in sink["findings"]}


def example(sink: dict[str, Any], fault: str) -> dict[str, Any]:
    """Return the first row shown for the fault."""
    (one,) = (one for one in sink["findings"] if one["fault"] == fault)
    row: dict[str, Any] = one["examples"][0]
    return row


@pytest.mark.parametrize("mode", [pytest.param("prepared", marks=pytest.mark.chaos), "staged"])
def test_nothing_is_found_where_nothing_is_wrong(
    kafka: LocalKafka,
    topic: Callable[..., str],
    postgres: PostgresServer,
    tmp_path: Path,
    mode: str,
) -> None:
    home = appending(tmp_path, kafka, topic(2), postgres, mode=mode)
    home.run()
    sinks = home.audit()
    assert {uid: (sink["compared"], sink["findings"]) for uid, sink in sinks.items()} == {
        "to-kafka": ("by transaction", []),
        "to-postgres": ("by transaction", []),
        "to-files": ("by transaction", []),
        "to-sqlite": ("in total", []),
    }
    rows = [(sink["expected-rows"], sink["found-rows"]) for sink in sinks.values()]
    assert rows == [(EPOCHS * ROWS, EPOCHS * ROWS)] * 4


def test_each_planted_fault_is_found(
    kafka: LocalKafka, topic: Callable[..., str], postgres: PostgresServer, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    swap = {"1250": 1650, "1650": 1250}  # of one key, in epochs 3 and 4
    home = appending(
        tmp_path, kafka, topic(2), postgres, lose=5, double=405, change=805, swap=swap
    )  # fmt: skip
    home.run()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(home.given["topic"], b"hello", b"7", partition=1)
    producer.flush(30)
    for sql in (
        "DELETE FROM {} WHERE n = 6",
        "INSERT INTO {} SELECT * FROM {} WHERE n = 406",
        "UPDATE {} SET text = 'other' WHERE n = 806",
        "INSERT INTO {} (n, text) VALUES (-1, 'foreign')",
    ):
        postgres.execute(sql.replace("{}", home.given["table"]))
    for sql in (
        "DELETE FROM rows WHERE n = 7",
        "INSERT INTO rows SELECT * FROM rows WHERE n = 407",
        "UPDATE rows SET text = 'other' WHERE n = 807",
        "INSERT INTO rows (n, text, epoch) VALUES (-1, 'foreign', 3)",
    ):
        home.sqlite(sql)
    home.rewrite(0, lambda rows: rows.slice(1))
    home.rewrite(1, lambda rows: pa.concat_tables([rows, rows.slice(3, 1)]))
    home.rewrite(2, lambda rows: pa.concat_tables(
        [rows.slice(0, 9), rows.slice(9, 1).set_column(1, "text", pa.array(["other"])),
         rows.slice(10)]
    ))  # fmt: skip
    home.files(3)[0].unlink()
    pa.parquet.write_table(
        pa.parquet.read_table(home.files(4)[0]).slice(0, 1).set_column(0, "n", pa.array([-1])),
        tmp_path / "out" / "part-foreign.parquet",
    )

    sinks = home.audit(*EPOCH_COLUMN, code=1)
    assert found(sinks["to-kafka"]) == {
        ("missing", 0, 1), ("doubled", 1, 1), ("changed", 2, 1), ("swapped", 3, 2),
        ("foreign", -1, 1),
    }  # fmt: skip
    assert example(sinks["to-kafka"], "doubled")["row"] == {"key": "5", "value": "row-405"}
    assert example(sinks["to-kafka"], "changed")["row"]["value"] == "row-805!"
    assert example(sinks["to-kafka"], "foreign")["row"] == {"key": "7", "value": "hello"}
    assert (
        example(sinks["to-kafka"], "foreign")["place"]
        == f"topic {home.given['topic']}, partition 1"
    )

    assert found(sinks["to-postgres"]) == {
        ("missing", 0, 1), ("doubled", 1, 1), ("changed", 2, 1), ("foreign", -1, 1),
    }  # fmt: skip
    assert example(sinks["to-postgres"], "missing")["row"]["n"] == 6, "known from the files"
    assert example(sinks["to-postgres"], "doubled")["row"]["n"] == 406
    assert example(sinks["to-postgres"], "changed")["row"]["text"] == "other"
    assert example(sinks["to-postgres"], "foreign")["row"]["n"] == -1

    assert found(sinks["to-files"]) == {
        ("missing", 0, 1), ("doubled", 1, 1), ("changed", 2, 1), ("torn", 3, ROWS // 2),
        ("foreign", -1, 1),
    }  # fmt: skip
    assert example(sinks["to-files"], "missing")["row"]["n"] == 0, "known from PostgreSQL"
    assert example(sinks["to-files"], "changed")["row"]["text"] == "other"

    assert found(sinks["to-sqlite"]) == {
        ("missing", 0, 1), ("doubled", 1, 1), ("changed", 2, 1), ("foreign", 3, 1),
    }  # fmt: skip
    assert example(sinks["to-sqlite"], "doubled")["row"]["n"] == 407
    assert example(sinks["to-sqlite"], "changed")["row"]["n"] == 807

    epochs = home.audit("--epochs", "3..4", "--sink", "to-kafka", code=1)
    assert set(epochs) == {"to-kafka"}
    assert found(epochs["to-kafka"]) == {("swapped", 3, 2), ("foreign", -1, 1)}


def test_upserted_tables_are_compared_by_key(tmp_path: Path, postgres: PostgresServer) -> None:
    from deltalake import DeltaTable

    with needed("MariaDB"):
        mariadb = MariaDBServer()
    with mariadb:
        catalog = catalog_at(tmp_path / "ice")
        home = Home(
            tmp_path, UPSERTS, postgres=postgres.url(), mariadb=mariadb.url(), iceberg=catalog
        )
        home.run(failpoint="prepared:2")
        home.run(failpoint="ledger-committed:2")
        home.run(failpoint="iceberg-files-rewritten:2")
        home.run()
        right = home.audit()
        assert {uid: (sink["compared"], sink["findings"]) for uid, sink in right.items()} == {
            f"to-{target}": ("by key", [])
            for target in ("postgres", "mariadb", "sqlite", "delta", "iceberg")
        }
        rows = {(sink["expected-rows"], sink["found-rows"]) for sink in right.values()}
        ((expected, there),) = rows
        assert expected == there == 400 - 36, "of 400 keys the last epoch deletes these"

        # Each epoch has each key once.
        keys = [row[0] for row in postgres.execute("SELECT k FROM changes ORDER BY k LIMIT 3")]
        lost, outdated, changed = keys
        number = int(outdated[1:])
        older = next(n for n in range(2 * ROWS) if n * 7919 % 400 == number and n % 11)
        for execute in (postgres.execute, mariadb.execute, home.sqlite):
            for sql in (
                f"DELETE FROM changes WHERE k = '{lost}'",
                f"UPDATE changes SET n = {older}, text = 'row-{older}', "
                f"amount = {round(older / 7, 3)} WHERE k = '{outdated}'",
                f"UPDATE changes SET text = 'other' WHERE k = '{changed}'",
                "INSERT INTO changes VALUES ('other', 1, 'foreign', 0.5)",
            ):
                execute(sql)
        DeltaTable(str(tmp_path / "delta")).delete(f"k = '{changed}'")
        opened(IcebergSink("shop.changes", catalog)).delete(f"k == '{changed}'")
        wrong = home.audit(code=1)
    for target in ("postgres", "mariadb", "sqlite"):
        sink = wrong[f"to-{target}"]
        assert found(sink) == {
            ("missing", 4, 1), ("outdated", 4, 1), ("changed", 4, 1), ("foreign", -1, 1),
        }, target  # fmt: skip
        if target != "sqlite":  # its decimals are text, so no other target has the same rows
            assert example(sink, "missing")["row"]["k"] == lost, "known from Delta"
        assert example(sink, "outdated")["row"]["text"] == f"row-{older}"
        assert example(sink, "changed")["row"]["k"] == changed
        assert example(sink, "foreign")["row"]["text"] == "foreign"
    for target in ("delta", "iceberg"):
        assert found(wrong[f"to-{target}"]) == {("missing", 4, 1)}, target
