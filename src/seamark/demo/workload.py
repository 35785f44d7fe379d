"""What the demo feeds a job, what must come out of it, and readers of what did.

The expectation owes nothing to the job: the generator's pure function gives the rows, plain Python
counts them, and a rule of its own says which windows are closed. Times are seconds since 1970.
"""

import json
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import seamark as sm
from seamark.dev.kafka import LocalKafka
from seamark.dev.topics import Message, make_topics, produce
from seamark.spark.datagen import rows
from seamark.verify.readers import read_log

WINDOW_S = 10
WATERMARK_DELAY_S = 10
SECONDS_PER_EPOCH = 20
PARTITIONS = 4

Count = tuple[int, str, int]
"""One row that a job writes: window's start, user, clicks."""

Read = Callable[[], Counter[Count]]
"""What a reader of one sink sees now."""


@dataclass(frozen=True)
class Workload:
    """A job, its program and environment, its outputs, and the rows that each of them must hold."""

    job: str
    program: Path
    environment: dict[str, str]
    outputs: dict[str, Read]
    expected: Counter[Count]
    clicks: int
    close: Callable[[], None] = field(default=lambda: None)


def embedded(directory: Path, epochs: int, rows_per_epoch: int) -> Workload:
    """Write the input of `clicks_embedded.py`; one file and as many generated rows an epoch."""
    logged = _clicks(epochs, rows_per_epoch, seed=1)
    generated = _clicks(epochs, rows_per_epoch, seed=0)  # the program's own source, row by row
    for epoch in range(epochs):
        _write_file(directory, epoch, logged.slice(epoch * rows_per_epoch, rows_per_epoch))
    database, files = directory / "clicks.db", directory / "per-user"
    return Workload(
        "clicks",
        Path(__file__).with_name("clicks_embedded.py"),
        {
            "CLICKS_DIRECTORY": str(directory),
            "CLICKS_EPOCHS": str(epochs),
            "CLICKS_ROWS_PER_EPOCH": str(rows_per_epoch),
        },
        {"SQLite": lambda: _sqlite(database), "Parquet files": lambda: _files(files)},
        _expected([logged, generated]),
        2 * epochs * rows_per_epoch,
    )


def kafka(directory: Path, epochs: int, rows_per_epoch: int) -> Workload:
    """Start a broker, and fill the input topic of `clicks_kafka.py`; `close` stops the broker."""
    clicks = _clicks(epochs, rows_per_epoch, seed=0)
    broker = LocalKafka()
    broker.start()
    try:
        servers = broker.bootstrap_servers
        # For ever: by their timestamps the clicks are older than Kafka's usual week.
        kept = {"retention.ms": "-1"}
        make_topics(servers, dict.fromkeys(["clicks", "clicks-per-user"], PARTITIONS), kept)
        produce(servers, "clicks", _messages(clicks))
    except BaseException:
        broker.stop()
        raise

    def read() -> Counter[Count]:
        rows: Counter[Count] = Counter()

        def take(message: Any) -> None:
            value = json.loads(message.value())
            rows[_seconds(value["start"]), message.key().decode(), value["count"]] += 1

        read_log(servers, "clicks-per-user", take, to_the_end=False)
        return rows

    return Workload(
        "clicks-kafka",
        Path(__file__).with_name("clicks_kafka.py"),
        {
            "CLICKS_DIRECTORY": str(directory),
            "CLICKS_SERVERS": servers,
            "CLICKS_ENDING": "latest",
            "CLICKS_ROWS_PER_EPOCH": str(rows_per_epoch),
        },
        {"Kafka topic": read},
        _expected([clicks]),
        epochs * rows_per_epoch,
        broker.stop,
    )


def _messages(clicks: pa.RecordBatch) -> Iterator[Message]:
    """Yield the clicks round robin, user as key, the click's time as Kafka's timestamp.

    Each partition has them in order. Kafka's timestamps have milliseconds: times are rounded down,
    which changes no window's count.
    """
    times = clicks.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    columns = (column.to_pylist() for column in (times, clicks["user"], clicks["page"]))
    for number, (at, user, page) in enumerate(zip(*columns, strict=True)):
        yield {"key": user, "value": page, "partition": number % PARTITIONS, "timestamp": at}


def _clicks(epochs: int, rows_per_epoch: int, seed: int) -> pa.RecordBatch:
    source = sm.DatagenSource(rows_per_second=rows_per_epoch // SECONDS_PER_EPOCH, seed=seed)
    return rows(source.reader().options, 0, epochs * rows_per_epoch)


def _write_file(directory: Path, epoch: int, clicks: pa.RecordBatch) -> None:
    """Write one JSON file, whole from the start, and older than the next: Spark takes the oldest.

    One epoch takes one file, so that both sources last until the end of the run.
    """
    (directory / "input").mkdir(parents=True, exist_ok=True)
    text = pc.strftime(clicks.column("timestamp"), format="%Y-%m-%dT%H:%M:%SZ")
    lines = [
        json.dumps({"timestamp": at, "user": user, "page": page}) + "\n"
        for at, user, page in zip(
            text.to_pylist(),
            clicks.column("user").to_pylist(),
            clicks.column("page").to_pylist(),
            strict=True,
        )
    ]
    path = directory / "input" / f"clicks-{epoch:05d}.json"
    with tempfile.NamedTemporaryFile("w", dir=directory, delete=False) as file:
        file.writelines(lines)
    written = 1_700_000_000 + epoch
    os.utime(file.name, (written, written))
    Path(file.name).rename(path)


def _expected(streams: list[pa.RecordBatch]) -> Counter[Count]:
    """Count clicks per window and user, in the windows that the end of the input closes.

    A window's counts appear when the watermark has passed its end: the latest timestamp less the
    delay, of the slowest stream. So the input goes on beyond the last window that counts here.
    """
    seconds = [
        stream["timestamp"].cast(pa.timestamp("s", "UTC"), safe=False).cast(pa.int64()).to_pylist()
        for stream in streams
    ]
    watermark = min(map(max, seconds)) - WATERMARK_DELAY_S
    clicks: Counter[tuple[int, str]] = Counter()
    for times, stream in zip(seconds, streams, strict=True):
        starts = (at - at % WINDOW_S for at in times)
        clicks.update(zip(starts, stream["user"].to_pylist(), strict=True))
    closed = ((key, count) for key, count in clicks.items() if key[0] + WINDOW_S <= watermark)
    return Counter((window, user, count) for (window, user), count in closed)


# --- reading the outputs


def _sqlite(database: Path) -> Counter[Count]:
    if not database.exists():
        return Counter()
    with closing(sqlite3.connect(f"file:{database}?mode=rw", uri=True, timeout=30)) as connection:
        start = "CAST(strftime('%s', substr(window_start, 1, 19)) AS INT)"
        try:
            return Counter(connection.execute(f"SELECT {start}, user, count FROM per_user"))
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return Counter()
            raise


def _files(directory: Path) -> Counter[Count]:
    if not directory.exists():
        return Counter()
    table = ds.dataset(directory).to_table()
    if not table.num_rows:
        return Counter()
    starts = [int(at.timestamp()) for at in table.column("window_start").to_pylist()]
    users, counts = table.column("user").to_pylist(), table.column("count").to_pylist()
    return Counter(zip(starts, users, counts, strict=True))


def _seconds(iso: str) -> int:
    return int(datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp())
