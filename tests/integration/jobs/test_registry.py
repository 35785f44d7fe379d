"""Avro records under changing schemas, and malformed ones, from Kafka into two tables: each once,
with the same columns, though the driver is killed and the registry hangs.

How: the feeder writes each row under one of the schemas known by then, every tenth malformed. The
job reads by a fixed version. Towards the end the registry is frozen, and a schema met that no task
knows: the job waits, is stopped, waits at its start, and goes on.
"""

from __future__ import annotations

import functools
import itertools
import json
import signal
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from seamark.dev.kafka import LocalKafka
from seamark.sinks.sqlite import database
from tests.chaos import checker, workload
from tests.chaos.driver import wait_until
from tests.chaos.scenario import Scenario
from tests.servers.schema_registry import SchemaRegistryServer
from tests.storage_servers import serving

POINTS = ["prepared:2", "decided:2", "sink-committed:1"]
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIELDS = [
    [("id", "int"), ("name", "string"), ("gone", "boolean")],
    [("id", "long"), ("called", "string"), ("price", ["null", DECIMAL])],
    [("more", "string"), ("id", "long"), ("called", "string"), ("price", ["null", DECIMAL])],
]
EXTRAS: dict[str, dict[str, Any]] = {
    "called": {"aliases": ["name"]}, "price": {"default": None}, "more": {"default": ""},
}  # fmt: skip


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[SchemaRegistryServer]:
    yield from serving(functools.partial(SchemaRegistryServer, tmp_path))


class RegistryScenario(Scenario):
    """`known` is the number of schemas in use."""

    program = "app_registry.py"
    job = "orders"

    def __init__(self, directory: Path, servers: str, registry: SchemaRegistryServer) -> None:
        self.topic, self.known = f"orders-{uuid.uuid4().hex[:8]}", 2
        self._numbers_sent = itertools.count()
        self.path = directory / "target.db"
        workload.create_topics(servers, self.topic)
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        client = SchemaRegistryClient({"url": registry.url})
        self._context = SerializationContext(self.topic, MessageField.VALUE)
        self._writers = []
        for fields in FIELDS:
            made = [{"name": name, "type": type_, **EXTRAS.get(name, {})} for name, type_ in fields]
            schema = {"type": "record", "name": "Order", "fields": made}
            self._writers.append(AvroSerializer(client, json.dumps(schema)))
            self._writers[-1](self._row(0, len(self._writers) - 1), self._context)  # registers it
        self.orders: dict[int, tuple[str, str | None]] = {}
        self.bad: set[bytes] = set()
        # Its own settings: a frozen registry is to be noticed soon.
        client_settings = {"url": registry.url, "timeout": 1, "max.retries": 0}
        options = {
            "servers": servers, "input": self.topic, "registry": client_settings,
            "database": str(self.path),
        }  # fmt: skip
        super().__init__(directory, options, self._send, 300.0)

    @staticmethod
    def _row(number: int, version: int) -> dict[str, Any]:
        name = f"n {number} 'ä' \\"
        if version == 0:
            return {"id": number, "name": name, "gone": True}
        price = None if number % 3 else Decimal(number - 1000).scaleb(-2)
        return {"id": number, "called": name, "price": price, "more": "x"}

    def _send(self, chunk: list[Any]) -> None:
        for _ in chunk:
            number = next(self._numbers_sent)
            version = number % self.known
            row = self._row(number, version)
            value = self._writers[version](row, self._context)
            if number % 10 == 9:
                value = [b"%d" % number, value + b"%d" % number][number % 20 // 10]
                self.bad.add(value)
            else:
                price = row.get("price")
                shown = None if price is None else str(price)
                self.orders[number] = row.get("called", row.get("name")), shown
            self._producer.produce(self.topic, key=str(number), value=value)
        assert self._producer.flush(180) == 0

    def _found(self, table: str) -> list[Any]:
        with database.connect(str(self.path)) as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return list(cursor.fetchall())

    def expected(self) -> int:
        return len(self.orders) + len(self.bad)

    def visible(self) -> int:
        return sum(workload.count_table(self.path, table) for table in ("orders", "bad"))

    def check(self) -> list[checker.Anomaly]:
        found = self._found("orders")
        assert len(found) == len(self.orders)
        read = {id_: (called, price and str(Decimal(price))) for id_, called, price in found}
        assert read == self.orders
        bad = self._found("bad")
        assert len(bad) == len(self.bad)
        assert {record for *_, record in bad} == self.bad
        assert all(reason for *_, reason, _ in bad)
        return []


def test_each_record_once_with_its_columns(
    tmp_path: Path, kafka: LocalKafka, registry: SchemaRegistryServer
) -> None:
    with RegistryScenario(tmp_path, kafka.bootstrap_servers, registry) as scenario:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(3)
        registry.server.pause()
        scenario.known = 3
        wait_until("a task waits", lambda: "does not answer" in driver.text(), 90)
        driver.stop()  # in the middle of its wait
        driver = scenario.start()
        wait_until("the program waits", lambda: "does not answer" in driver.text(), 90)
        registry.server.send(signal.SIGCONT)
        driver.wait_for_epochs(2)
        scenario.finish(driver)
        scenario.require_settled()
