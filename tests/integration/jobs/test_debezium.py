"""A table changed at random, its change stream in Kafka: every target ends up equal to it, kills on
the way or not.

How: the origin is a dict, changed by seeded inserts, updates and deletes of few keys, many an
epoch; each change goes to Kafka as Debezium writes it (the test's own JSON: no Debezium runs), by
key to one of several partitions, deletes with their tombstones, snapshot reads first. Drivers die
at each point of the protocol. At the end each target is compared with the dict.
"""

from __future__ import annotations

import json
import random
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from seamark.dev.kafka import LocalKafka
from seamark.sinks.delta import DeltaSink
from seamark.sinks.sqlite import database
from tests.chaos import checker, workload
from tests.chaos.driver import wait_until
from tests.chaos.scenario import Scenario
from tests.integration.delta.sink_kit import rows
from tests.servers.postgres import PostgresServer

KEYS = 40
TASK_POINT = "stage-written:1"  # a task's rows are durable, the driver has not heard of it
POINTS = [
    "prepared:2",
    "decided:2",  # no sink has the epoch
    "sink-committed:1",  # one sink has it, the other has not
    "ledger-committed:2",
    "delta-commit-checked:1",
    "delta-committed:1",  # merged, and nobody has been told
    "recovery-committed:1",
]
Table = dict[int, tuple[str | None, Decimal | None]]


class ChangesScenario(Scenario):
    """`origin` is the table; its changes are in Kafka when `rows` of the feeder has them."""

    program = "app_changes.py"
    job = "changes"

    def __init__(self, directory: Path, servers: str, sinks: dict[str, Any], reads: Any) -> None:
        self.topic, self.origin = f"changes-{uuid.uuid4().hex[:8]}", Table()
        self._chance, self._reads = random.Random(7), reads
        workload.create_topics(servers, self.topic)
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self.sent = dict.fromkeys("rcud", 0)
        options = {"servers": servers, "input": self.topic, "sinks": sinks}
        super().__init__(directory, options, self._send, 600.0)

    def _send(self, chunk: list[Any]) -> None:
        """Change the table once for each row of the workload."""
        for _ in chunk:
            key = self._chance.randrange(KEYS)
            before = self.origin.get(key)
            if before is not None and self._chance.random() < 0.4:
                del self.origin[key]
                self._put("d", key, {"id": key, "name": None, "amount": None}, None)
                self._producer.produce(self.topic, key=json.dumps({"id": key}))  # the tombstone
                continue
            amount = Decimal(self._chance.randrange(10**6)).scaleb(-2)
            name = self._chance.choice([None, f"name {self._chance.random()} 'ä' \\"])
            self.origin[key] = (name, amount)
            op = "u" if before is not None else "r" if self.sent["d"] < 20 else "c"
            row = {"id": key, "name": name, "amount": str(amount)}
            old = before and {"id": key, "name": before[0], "amount": str(before[1])}
            self._put(op, key, old, row)
        assert self._producer.flush(180) == 0

    def _put(self, op: str, key: int, before: Any, after: Any) -> None:
        self.sent[op] += 1
        change = {
            "before": before,
            "after": after,
            "op": op,
            "ts_ms": 1,
            "source": {"table": "orders"},
        }
        if self.sent[op] % 2:
            change = {"schema": {"type": "struct"}, "payload": change}
        self._producer.produce(self.topic, key=json.dumps({"id": key}), value=json.dumps(change))

    def expected(self) -> int:
        return 1

    def visible(self) -> int:
        return int(all(read() == self.origin for read in self._reads.values()))

    def check(self) -> list[checker.Anomaly]:
        assert min(self.sent.values()) > 5, self.sent
        for name, read in self._reads.items():
            assert read() == self.origin, name
        return []


def test_targets_equal_the_origin(
    tmp_path: Path, kafka: LocalKafka, postgres: PostgresServer
) -> None:
    schema = f"debezium_{uuid.uuid4().hex[:8]}"
    postgres.execute(
        f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.orders "
        "(id bigint PRIMARY KEY, name text, amount numeric(9,2) NOT NULL)"
    )
    path, lake = tmp_path / "target.db", tmp_path / "lake"

    def in_sqlite() -> Table:
        with database.connect(str(path)) as cursor:
            cursor.execute("SELECT id, name, amount FROM orders")
            return {key: (name, Decimal(amount)) for key, name, amount in cursor.fetchall()}

    def in_postgres() -> Table:
        found = postgres.execute(f"SELECT id, name, amount FROM {schema}.orders")
        return {key: (name, amount) for key, name, amount in found}

    upsert = {"table": f"{schema}.orders", "mode": "upsert", "keys": ["id"]}
    sinks = {
        "to-sqlite": ("SQLiteSink", {"path": str(path), "table": "orders", "keys": ["id"]}),
        "to-postgres": ("PostgresSink", {"url": postgres.url(), **upsert}),
        "to-delta": ("DeltaSink", {"path": str(lake), "keys": ["id"], "create_table": True}),
    }

    def in_delta() -> Table:
        return {row["id"]: (row["name"], row["amount"]) for row in rows(DeltaSink(str(lake)))}

    reads = {"SQLite": in_sqlite, "PostgreSQL": in_postgres, "Delta": in_delta}
    with ChangesScenario(tmp_path, kafka.bootstrap_servers, sinks, reads) as scenario:
        failing = scenario.start(TASK_POINT)  # kills a worker of Spark's, and so the query
        wait_until("the job has failed", lambda: failing.returncode is not None, 120)
        assert failing.returncode
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(3)
        scenario.finish(driver)
        scenario.require_settled()
    assert postgres.execute(
        f"SELECT count(*) FROM {schema}._seamark_ledger WHERE outcome = 'staged'"
    ) == [(0,)]
    assert [p for p in (lake / "_seamark").rglob("*") if p.is_file()] == [], (
        "nothing is left staged"
    )
