"""Spark's side of `SocketSource`: the data source ``seamark-socket``.

A separate Python process of the driver is connected to the server and numbers the incoming lines.
Spark plans an epoch as a range of numbers, and its tasks get the lines with their partitions.
Spark's own socket source numbers from 0 again in each new query and so contradicts its checkpoint:
no job could start twice with it.

An offset is ``{"socket_lines": n}``: n lines have been planned. A range is only ever answered with
the lines it was planned for. If an earlier process planned an epoch without deciding it, the epoch
runs again without rows; `lost_lines` counts the lost lines.
"""

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from seamark.spark.spark_versions import ReadLimit, register_source

FORMAT = "seamark-socket"
CONNECT_TIMEOUT_S = 10.0
MOST_WAITING = 250_000
"""The most lines that may wait for the next epoch; beyond it the server waits."""
PARTITION_CHARACTERS = 1 << 22
_KEY = "socket_lines"


def register(spark: SparkSession) -> None:
    """Register the format with `spark`. Called before each reader is made; idempotent."""
    register_source(spark, SocketDataSource)


def lost_lines(before: Sequence[Any], planned: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield the place of each socket among the sources of a planned epoch, and its number of lost
    lines. Called when this epoch is to run again. `before`: the last epoch's offsets."""
    for place, end in enumerate(planned):
        if isinstance(end, dict) and _KEY in end:
            start = _number(before[place]) if place < len(before) else 0
            if end[_KEY] > start:
                yield place, end[_KEY] - start


class SocketDataSource(DataSource):  # type: ignore[misc]
    """The data source; workers import it from this module."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the one column as DDL."""
        return "value STRING"

    def streamReader(self, schema: StructType) -> "SocketReader":  # noqa: N802
        """Return the reader; Spark makes one per query, and one in each worker."""
        return SocketReader(dict(self.options))


class _Lines(InputPartition):  # type: ignore[misc]
    """The lines themselves: no other process has them."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines


class SocketReader(DataSourceStreamReader):  # type: ignore[misc]
    """Plans epochs in a separate Python process of the driver. The process holds the connection
    from the first plan on, and every line until its epoch is decided."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._host, self._port = options["host"], int(options["port"])
        self._connection: _Connection | None = None
        self._first = 0
        self._held: list[str] = []

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the start offset of a job without a checkpoint."""
        return {_KEY: 0}

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Take the lines received so far. Raise ConnectionError if all of them are planned and no
        more can come."""
        if self._connection is None:
            self._first = _number(start)
            self._connection = _Connection(self._host, self._port)
        ended = self._connection.ended  # read first: lines arriving after this are taken next time
        self._held += self._connection.take()
        end = self._first + len(self._held)
        if ended and end == _number(start):
            raise ConnectionError(ended)
        return {_KEY: end}

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        """Return the lines of an epoch planned by this process; none of another process's."""
        first, last = _number(start) - self._first, _number(end) - self._first
        if self._connection is None or first < 0:
            return []
        return [_Lines(part) for part in _parts(self._held[first:last])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the lines."""
        assert isinstance(partition, _Lines)
        yield pa.RecordBatch.from_pydict({"value": pa.array(partition.lines, pa.string())})

    def commit(self, end: Any) -> None:
        """Drop the lines of decided epochs."""
        done = max(_number(end) - self._first, 0)
        self._first += done
        del self._held[:done]

    def stop(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


class _Connection:
    """Reads lines in a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._name = f"SocketSource {host}:{port}"
        self._lines: queue.Queue[str] = queue.Queue(MOST_WAITING)
        self.ended = ""
        """Why no more lines come; "" while they may."""
        try:
            self._socket = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
        except OSError as error:
            raise ConnectionError(
                f"{self._name}: no connection ({error}); start the server, or change host or port"
            ) from None
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._read, name="seamark-socket", daemon=True)
        self._thread.start()

    def take(self) -> list[str]:
        """Return the lines received so far."""
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def close(self) -> None:
        """End the thread, even if it waits for lines or for room: Spark uses the process again."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        while self._thread.is_alive():
            self.take()
            self._thread.join(0.05)
        self._socket.close()

    def _read(self) -> None:
        why = "the server has closed the connection"
        try:
            with self._socket.makefile("r", encoding="utf-8", errors="replace") as file:
                for line in file:
                    self._lines.put(line.removesuffix("\n"))
        except (OSError, ValueError) as error:
            why = f"the connection is broken ({error})"
        self.ended = (
            f"{self._name}: {why}. What came before is in an epoch; start the job again when the "
            "server runs, or let a restart strategy do so"
        )


def _number(offset: Any) -> int:
    """Return the number of lines in an offset; Spark's own socket source counted from -1."""
    return (
        int(offset[_KEY])
        if isinstance(offset, dict)
        else (-1 if offset is None else int(offset)) + 1
    )


def _parts(lines: Sequence[str]) -> Iterator[list[str]]:
    """Cut lines into pieces small enough for a task's description."""
    part: list[str] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line) + 8
        if size >= PARTITION_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part
