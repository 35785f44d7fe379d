"""Reads sinks as other programs do, beside the job: a follower of a topic, a poller of a table.

A `WatchedSink` is one sink to be read. Its readers run in threads and hand each `Read` to one
function.
"""

import contextlib
import ctypes
import sqlite3
import struct
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seamark.model.errors import OperationFailedError
from seamark.verify.history import Numbers, Read, log_places

POLLS_S = {"first": 0.5, "second": 1.3}
"""The readers of a table, and the shortest pause of each; a longer read has a longer pause."""
REREAD_S, REREAD_WITHIN_S = 10.0, 60.0
"""The same for the reader that begins a topic anew each time; and its patience."""
_ROW = np.dtype([("fields", ">i2"), ("length", ">i4"), ("number", ">i8")])
_HEADER = 19
"""Bytes before the first row of PostgreSQL's binary COPY."""
_NOTHING = np.zeros(0, np.int64), None

Numbering = Callable[[bytes, bytes], tuple[int, int]]
"""Returns a row's number and how often it counts, from a message's key and value."""
Query = Callable[[], tuple[Numbers, Numbers | None]]
"""Returns the numbers of a table's rows, and how often each counts; None is once."""


def log_consumer(servers: str, topic: str, isolation: str = "read_committed") -> Any:
    """Return a consumer at the beginning of every partition of a topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            # Else a long topic is read ahead as a whole: the kilobytes count payload alone.
            "queued.min.messages": 5000,
            "queued.max.messages.kbytes": 4096,
            "log_level": 0,
        }
    )
    deadline = time.monotonic() + 30
    while not (partitions := consumer.list_topics(topic, timeout=30).topics[topic].partitions):
        # A broker may not know a topic yet that was created a moment ago.
        if time.monotonic() > deadline:
            raise OperationFailedError(f"topic {topic} has no partitions")
        time.sleep(0.1)
    consumer.assign([TopicPartition(topic, p, 0) for p in sorted(partitions)])
    return consumer


def share_memory() -> None:
    """Have all threads of the process share what they free, where the C library is glibc. Each new
    consumer has new threads, and an arena for each would keep the largest topic it has read."""
    arena_max, mmap_threshold = -8, -3  # malloc.h
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(arena_max, 2)
        mallopt(mmap_threshold, 1 << 20)


class _Reader(threading.Thread):
    """A thread that reads until `close`. `error` has ended it before."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._end = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Read until the end."""
        try:
            self.follow()
        except Exception as error:  # told in the end: a run with fewer eyes is not good
            self.error = error

    def follow(self) -> None:
        """Read until `close`."""
        raise NotImplementedError

    def close(self) -> None:
        """Read no more."""
        self._end.set()
        if self.is_alive():
            self.join()


class TopicFollower(_Reader):
    """A read_committed reader beside the job; `take` gets the messages shown to it, in order."""

    def __init__(self, servers: str, topic: str, take: Callable[[list[Any]], None]) -> None:
        super().__init__()
        self._consumer = log_consumer(servers, topic)
        self._take = take

    def follow(self) -> None:
        """See `_Reader`."""
        while not self._end.is_set():
            messages = [m for m in self._consumer.consume(1000, 0.1) if m.error() is None]
            if messages:
                self._take(messages)
        self._consumer.close()


def read_log(
    servers: str,
    topic: str,
    take: Callable[[Any], object],
    timeout_s: float = 30.0,
    *,
    to_the_end: bool = True,
) -> None:
    """Call `take` with each message of a topic up to its end, as a new read_committed reader sees
    them; or, without `to_the_end`, up to the first open transaction of each partition. Raises
    AssertionError if an open transaction still hides the end at the timeout, or the broker has not
    answered by then."""
    from confluent_kafka import KafkaError

    consumer = log_consumer(servers, topic)
    # What a read_committed consumer is told of a partition's end is its own end: the first open
    # transaction.
    uncommitted = log_consumer(servers, topic, "read_uncommitted")
    assigned = consumer.assignment()
    deadline = time.monotonic() + timeout_s
    with contextlib.closing(consumer), contextlib.closing(uncommitted):
        while True:
            ends: set[int] = set()
            while len(ends) < len(assigned) and time.monotonic() < deadline:
                for message in consumer.consume(5000, 0.2):
                    if message.error() is None:
                        take(message)
                        ends.discard(message.partition())
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        ends.add(message.partition())
            if not to_the_end and len(ends) == len(assigned):
                return
            hidden = [
                (p.partition, p.offset, high)
                for p in consumer.position(assigned)
                if max(p.offset, 0) < (high := uncommitted.get_watermark_offsets(p, timeout=10)[1])
            ]
            if not hidden:
                return
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{topic}: a read_committed reader cannot get to the end; "
                    f"(partition, position, end): {hidden}"
                )


class Poller(_Reader):
    """Reads the whole of a sink again and again; `take` gets each read. A server that is away is
    asked again."""

    def __init__(
        self, read: Callable[[], Read], pause_s: float, take: Callable[[Read], None]
    ) -> None:
        super().__init__()
        self._read, self._pause_s, self._take = read, pause_s, take

    def follow(self) -> None:
        """See `_Reader`."""
        pause_s = self._pause_s
        while not self._end.wait(pause_s):
            begun = time.monotonic()
            with contextlib.suppress(OperationFailedError, AssertionError):
                self._take(self._read())
                pause_s = max(self._pause_s, 9 * (time.monotonic() - begun))


class WatchedSink(ABC):
    """One sink, read while the job runs and once more in the end. `stream` names its rows."""

    def __init__(self, name: str, stream: str) -> None:
        self.name = name
        self.stream = stream
        self._readers: Sequence[_Reader] = ()

    @abstractmethod
    def follow(self, take: Callable[[str, Read], None]) -> None:
        """Begin to read in a thread; `take` gets the stream and each read."""

    @abstractmethod
    def final(self, timeout_s: float) -> Read:
        """Return all that is visible, as a new reader sees it."""

    def close(self) -> None:
        """Read no more."""
        for reader in self._readers:
            reader.close()

    def failed(self) -> list[Exception]:
        """Return what has ended readers before `close`."""
        return [reader.error for reader in self._readers if reader.error is not None]


class WatchedTopic(WatchedSink):
    """A Kafka topic."""

    def __init__(
        self, name: str, stream: str, servers: str, topic: str, numbering: Numbering
    ) -> None:
        super().__init__(name, stream)
        self._servers = servers
        self._topic = topic
        self._numbering = numbering

    def follow(self, take: Callable[[str, Read], None]) -> None:
        """See `WatchedSink`. One reader follows the topic, another one begins it anew each time."""
        begun_s = time.time()

        def seen(messages: list[Any]) -> None:
            rows = _Rows(self._numbering)
            for message in messages:
                rows.take(message)
            take(self.stream, self._read("following", rows, begun_s, whole=False))

        def again() -> Read:
            from confluent_kafka import KafkaException

            try:
                return self._whole("rereading", REREAD_WITHIN_S, to_the_end=False)
            except KafkaException as error:
                raise OperationFailedError(f"{self._topic} cannot be read: {error}") from error

        self._readers = (
            TopicFollower(self._servers, self._topic, seen),
            Poller(again, REREAD_S, partial(take, self.stream)),
        )
        for reader in self._readers:
            reader.start()

    def final(self, timeout_s: float) -> Read:
        """See `WatchedSink`. Raises AssertionError if a reader cannot get to the end."""
        return self._whole("final", timeout_s, to_the_end=True)

    def _whole(self, reader: str, timeout_s: float, *, to_the_end: bool) -> Read:
        begun_s, rows = time.time(), _Rows(self._numbering)
        read_log(self._servers, self._topic, rows.take, timeout_s, to_the_end=to_the_end)
        return self._read(reader, rows, begun_s, whole=True)

    def _read(self, reader: str, rows: "_Rows", begun_s: float, *, whole: bool) -> Read:
        ended_s = time.time()
        partitions, offsets, numbers, times = rows.columns()
        places = log_places(partitions, offsets)
        order = np.argsort(places)
        return Read(
            self.name, reader, begun_s, ended_s, numbers[order], places[order], whole,
            times=times[order],
        )  # fmt: skip


class _Rows:
    """Messages as numbers: an hour's topic has a million of them."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._values = array("q")

    def take(self, message: Any) -> None:
        """Add a message."""
        number, times = self._numbering(message.key() or b"", message.value() or b"")
        self._values.extend((message.partition(), message.offset(), number, times))

    def columns(self) -> Numbers:
        """Return partitions, offsets, numbers and times."""
        columns: Numbers = np.frombuffer(self._values, np.int64).reshape(-1, 4).T
        return columns


class WatchedTable(WatchedSink):
    """A table, read as a whole by one query again and again. `query` returns numbers and times."""

    def __init__(self, name: str, stream: str, query: Query) -> None:
        super().__init__(name, stream)
        self._query = query

    def follow(self, take: Callable[[str, Read], None]) -> None:
        """See `WatchedSink`. Several readers, at times of their own."""
        self._readers = [
            Poller(partial(self._read, reader), pause_s, partial(take, self.stream))
            for reader, pause_s in POLLS_S.items()
        ]
        for poller in self._readers:
            poller.start()

    def final(self, timeout_s: float) -> Read:
        """See `WatchedSink`."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._read("final")
            except OperationFailedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def _read(self, reader: str) -> Read:
        begun_s = time.time()
        numbers, times = self._query()
        return Read(self.name, reader, begun_s, time.time(), numbers, atomic=True, times=times)


def postgres_query(url: str, table: str, number: str) -> Query:
    """Return a query of a table of rows; `number` is SQL. A table that is missing is empty."""

    def query() -> tuple[Numbers, Numbers | None]:
        import psycopg

        # Rows without a number are phantoms.
        sql = (
            f"COPY (SELECT coalesce(({number})::bigint, -1) FROM {table}) TO STDOUT (FORMAT binary)"
        )
        try:
            with (
                psycopg.connect(url, connect_timeout=5) as connection,
                connection.cursor().copy(sql.encode()) as copy,
            ):
                data = bytearray()
                for row in copy:  # joined, an hour's rows would be a million objects at a time
                    data += row
        except psycopg.errors.UndefinedTable:
            return _NOTHING
        except psycopg.Error as error:
            raise OperationFailedError(f"{table} cannot be read: {error}") from error
        (extension,) = struct.unpack(">i", data[15:_HEADER])
        rows = np.frombuffer(memoryview(data)[_HEADER + extension : -2], _ROW)
        return rows["number"].astype(np.int64), None

    return query


def sqlite_query(database: Path, table: str, number: str, times: str = "1") -> Query:
    """As `postgres_query`, of an SQLite database; `times` is SQL too."""

    def query() -> tuple[Numbers, Numbers | None]:
        if not database.exists():
            return _NOTHING
        # Not mode=ro: SQLite may take a journal that a commit is just deleting for a crashed
        # one's, and only a reader who may write gets past it.
        connection = sqlite3.connect(f"file:{database}?mode=rw", uri=True, timeout=10)
        try:
            rows = connection.execute(
                f"SELECT coalesce(CAST({number} AS INTEGER), -1), {times} FROM {table}"
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return _NOTHING
            raise OperationFailedError(f"{table} cannot be read: {error}") from error
        finally:
            connection.close()
        return _columns(rows)

    return query


def _columns(rows: Sequence[tuple[int, int]]) -> tuple[Numbers, Numbers]:
    both = np.array(rows, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
