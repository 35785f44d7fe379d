"""Feeds the input and reads the output of a job, on the real systems.

Values are ``sequence,time_ms``: unique, rising, 10 ms of event time a row. A chunk is acknowledged
before the next is sent, so no partition is ever more than a chunk ahead of another, less than the
apps' watermark delay: no row is late by accident.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.history import Pair, Produced, Seen

PARTITIONS = 4
KEYS = 20
CHUNK = 50
ROW_MS = 10
WINDOW_MS = 10_000
END_KEY = "end"
"""The key of the closing rows: they only move the watermark past every window."""


class Feeder(threading.Thread):
    """Sends chunks of rows, `rate` rows a second, until `close`. `rows` are the acknowledged
    rows."""

    def __init__(self, send: Callable[[list[Produced]], None], rate: float = 600.0) -> None:
        super().__init__(name="feeder", daemon=True)
        self._send = send
        self._pause_s = CHUNK / rate
        self._end = threading.Event()
        self.rows: list[Produced] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._end.wait(self._pause_s):
                self._take(
                    [
                        Produced(f"key-{i % KEYS}", f"{i},{i * ROW_MS}")
                        for i in range(len(self.rows), len(self.rows) + CHUNK)
                    ]
                )
        except BaseException as error:
            self.error = error

    def close(self) -> None:
        """Send one last row, to close every window; raises the error of the producer, if any."""
        self._end.set()
        self.join()
        if self.error is not None:
            raise AssertionError("the producer of the test failed") from self.error
        number = len(self.rows)
        self._take([Produced(END_KEY, f"{number},{number * ROW_MS + 10 * WINDOW_MS}")])

    @property
    def counted(self) -> list[Produced]:
        """The rows in windows closed by the closing row: all but itself."""
        return [row for row in self.rows if row.key != END_KEY]

    def _take(self, rows: list[Produced]) -> None:
        self._send(rows)
        self.rows += rows


def kafka_sender(servers: str, topic: str) -> Callable[[list[Produced]], None]:
    """Return a `send`; it returns when the broker has every row; it outlasts a dead broker."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 180_000,
            "log_level": 0,
        }
    )

    def send(rows: list[Produced]) -> None:
        errors: list[object] = []
        for key, value in rows:
            producer.produce(
                topic, key=key, value=value,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )  # fmt: skip
        if left := producer.flush(180):
            raise TimeoutError(f"{left} rows not delivered to {topic}")
        if errors:
            raise OSError(f"{topic}: {errors[0]}")

    return send


def file_sender(directory: Path) -> Callable[[list[Produced]], None]:
    """Return a `send`; it adds one file of JSON lines, visible at once as a whole."""
    directory.mkdir(parents=True, exist_ok=True)
    count = 0

    def send(rows: list[Produced]) -> None:
        nonlocal count
        count += 1
        hidden = directory / f".{count:06}.json"
        hidden.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows))
        hidden.rename(directory / f"{count:06}.json")

    return send


def create_topics(servers: str, *names: str) -> None:
    """Create topics of PARTITIONS partitions."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.create_topics([NewTopic(n, PARTITIONS, 1) for n in names]).values():
        future.result(30)


def _consumer(servers: str, topic: str) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    return consumer


def _seen(message: Any) -> Seen:
    return Seen(
        message.partition(),
        message.offset(),
        message.key().decode(),
        message.value().decode(),
    )


class LiveReader(threading.Thread):
    """A read_committed reader beside the job; `rows` are the rows shown to it, in order."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(name="reader", daemon=True)
        self._consumer = _consumer(servers, topic)
        self._end = threading.Event()
        self.rows: list[Seen] = []

    def run(self) -> None:
        while not self._end.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    self.rows.append(_seen(message))
        self._consumer.close()

    def close(self) -> None:
        """Read no more."""
        self._end.set()
        self.join()


def read_topic(servers: str, topic: str, timeout_s: float = 30.0) -> list[Seen]:
    """Read a topic to its end as a new read_committed reader.

    Raises AssertionError if an open transaction still hides the end at the timeout.
    """
    from confluent_kafka import TopicPartition

    consumer = _consumer(servers, topic)
    deadline = time.monotonic() + timeout_s
    rows: list[Seen] = []
    try:
        while True:
            ends = set()
            while len(ends) < PARTITIONS and time.monotonic() < deadline:
                for message in consumer.consume(5000, 0.2):
                    if message.error() is None:
                        rows.append(_seen(message))
                        ends.discard(message.partition())
                    else:
                        ends.add(message.partition())
            hidden = [
                (p.partition, p.offset, high)
                for p in consumer.position([TopicPartition(topic, p) for p in range(PARTITIONS)])
                if max(p.offset, 0) < (high := consumer.get_watermark_offsets(p, timeout=10)[1])
            ]
            if not hidden:
                return rows
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{topic}: a read_committed reader cannot get to the end; "
                    f"(partition, position, end): {hidden}"
                )
    finally:
        consumer.close()


def open_transactions(servers: str, prefix: str) -> list[str]:
    """Return the transactional ids under a prefix with an open transaction."""
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=servers.split(","))
    try:
        return [
            f"{found.transactional_id} ({found.state})"
            for listing in admin.list_transactions().values()
            for found in listing
            if found.transactional_id.startswith(prefix)
            and str(getattr(found.state, "value", found.state))
            not in ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
        ]
    finally:
        admin.close()


def read_table(database: Path, table: str) -> list[Pair]:
    """Read a table with columns key and value, as another program does; [] if there is none."""
    return [Pair(*row) for row in _query(database, f'SELECT key, value FROM "{table}"')]


def read_column(database: Path, table: str, column: str) -> list[Any]:
    """Read one column of a table, as another program does; [] if there is none."""
    return [row[0] for row in _query(database, f'SELECT "{column}" FROM "{table}"')]


def count_table(database: Path, table: str) -> int:
    """Return the number of rows in a table, 0 if there is none."""
    return sum(row[0] for row in _query(database, f'SELECT count(*) FROM "{table}"'))


def _query(database: Path, sql: str) -> list[tuple[Any, ...]]:
    if not database.exists():
        return []
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise
    finally:
        connection.close()


def read_parquet(directory: Path) -> list[Pair]:
    """Read a directory of Parquet files, as another program does."""
    import pyarrow.dataset as ds

    if not directory.exists():
        return []
    table = ds.dataset(directory, format="parquet").to_table()
    if table.num_columns == 0:
        return []
    return [Pair(r["key"], r["value"]) for r in table.select(["key", "value"]).to_pylist()]


def read_delta(uri: str, storage_options: dict[str, str]) -> list[Pair]:
    """Read a Delta table by delta-rs's query engine; [] if there is none."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(uri, storage_options=_delta_options(uri, storage_options))
    except TableNotFoundError:
        return []
    query = QueryBuilder().register("t", table).execute("SELECT key, value FROM t")
    return [Pair(r["key"], r["value"]) for r in pa.table(query.read_all()).to_pylist()]


def delta_files_unnamed(uri: str, storage_options: dict[str, str]) -> list[str]:
    """Return the data files below a Delta table not named by its newest version, and the records of
    unfinished attempts."""
    from deltalake import DeltaTable

    from seamark.file_systems import HadoopSettings, open_directory

    found = open_directory(uri, HadoopSettings.given(storage_options, uri)).list()
    table = DeltaTable(uri, storage_options=_delta_options(uri, storage_options))
    named = {name.rpartition("/")[2] for name in table.file_uris()}
    return sorted(
        path
        for path in found
        if path.startswith("_seamark/pending/")
        or (not path.startswith("_") and path.rpartition("/")[2] not in named)
    )


def _delta_options(uri: str, storage_options: dict[str, str]) -> dict[str, str] | None:
    from seamark.file_systems import HadoopSettings
    from seamark.sinks.delta.store import delta_options

    return delta_options(uri, HadoopSettings.given(storage_options, uri))
