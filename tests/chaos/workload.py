"""Feeds the input and reads the output of a job, on the real systems.

Values are ``sequence,time_ms``: unique, rising, 10 ms of event time a row. The generator and the
readers of topics are those of `seamark verify`.
"""

from __future__ import annotations

import json
import sqlite3
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seamark.verify.generator import KEYS, ROW_MS, WINDOW_MS, Generator, TopicProducer
from seamark.verify.readers import TopicFollower, read_log
from tests.chaos.history import Pair, Produced, Seen

PARTITIONS = 4
END_KEY = "end"
"""The key of the closing rows: they only move the watermark past every window."""


class Feeder(Generator):
    """Sends chunks of rows until `close`. `rows` are the acknowledged rows."""

    def __init__(self, send: Callable[[list[Produced]], object], rate: float = 600.0) -> None:
        super().__init__(self._send_numbers, rate)
        self._send_rows = send
        self.rows: list[Produced] = []

    def close(self) -> None:
        """Send one last row, to close every window; raises the error of the producer, if any."""
        super().close()
        number = len(self.rows)
        self._add([Produced(END_KEY, f"{number},{number * ROW_MS + 10 * WINDOW_MS}")])

    @property
    def counted(self) -> list[Produced]:
        """The rows in windows closed by the closing row: all but itself."""
        return [row for row in self.rows if row.key != END_KEY]

    def _send_numbers(self, first: int, end: int) -> None:
        self._add([Produced(f"key-{i % KEYS}", f"{i},{i * ROW_MS}") for i in range(first, end)])

    def _add(self, rows: list[Produced]) -> None:
        self._send_rows(rows)
        self.rows += rows


def kafka_sender(servers: str, topic: str) -> Callable[[list[Produced]], object]:
    """Return a `send`; it returns when the broker has every row; it outlasts a dead broker."""
    return TopicProducer(servers, topic).send


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
        future.result(300)


def _seen(message: Any) -> Seen:
    return Seen(
        message.partition(),
        message.offset(),
        message.key().decode(),
        message.value().decode(),
    )


class LiveReader(TopicFollower):
    """A read_committed reader beside the job; `rows` are the rows shown to it, in order."""

    def __init__(self, servers: str, topic: str) -> None:
        self.rows: list[Seen] = []
        super().__init__(servers, topic, lambda messages: self.rows.extend(map(_seen, messages)))


def read_topic(
    servers: str, topic: str, timeout_s: float = 30.0, *, to_the_end: bool = True
) -> list[Seen]:
    """Read a topic as a new read_committed reader, to its end, or up to the open transactions.

    Raises AssertionError if an open transaction still hides the end at the timeout.
    """
    messages: list[Any] = []
    read_log(servers, topic, messages.append, timeout_s, to_the_end=to_the_end)
    return [_seen(message) for message in messages]


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
    # Not mode=ro: SQLite may take a journal that a commit is just deleting for a crashed one's, and
    # only a reader who may write gets past it.
    connection = sqlite3.connect(f"file:{database}?mode=rw", uri=True, timeout=10)
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
    """Return the data files below a Delta table that no version names, and the records of
    unfinished attempts."""
    from seamark.files import HadoopSettings, open_directory

    directory = open_directory(uri, HadoopSettings.given(storage_options, uri))
    found = directory.tree()
    versions = [path for path in found if path.startswith("_delta_log/") and path.endswith("json")]
    lines = (line for path in versions for line in directory.read(path).splitlines())
    added = (action["add"]["path"] for action in map(json.loads, lines) if "add" in action)
    named = {urllib.parse.unquote(path).rpartition("/")[2] for path in added}
    return sorted(
        path
        for path in found
        if path.startswith("_seamark/pending/")
        or (not path.startswith("_") and path.rpartition("/")[2] not in named)
    )


def read_iceberg(catalog: dict[str, str], table: str) -> list[Pair]:
    """Read an Iceberg table by pyiceberg; [] if there is none."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    try:
        rows = load_catalog("default", **catalog).load_table(table).scan().to_arrow()
    except NoSuchTableError:
        return []
    return [Pair(r["key"], r["value"]) for r in rows.to_pylist()]


def iceberg_files_unnamed(catalog: dict[str, str], table: str) -> list[str]:
    """Return the data files below an Iceberg table on a local disk that no snapshot names, staged
    rows, and the records of unfinished attempts."""
    from pyiceberg.catalog import load_catalog

    from seamark.sinks.iceberg.snapshots import file_names

    found = load_catalog("default", **catalog).load_table(table)
    location = Path(found.location().removeprefix("file://"))
    named = file_names(found)
    data = [path.name for path in (location / "data").glob("part-*") if path.name not in named]
    own = [path.name for path in (location / "_seamark").rglob("*") if path.is_file()]
    return sorted([*data, *own])


def _delta_options(uri: str, storage_options: dict[str, str]) -> dict[str, str] | None:
    from seamark.files import HadoopSettings
    from seamark.sinks.delta.store import delta_options

    return delta_options(uri, HadoopSettings.given(storage_options, uri))
