"""Feeds the input of a job with numbered rows, and knows where the source keeps each.

A chunk is acknowledged before the next is sent, so no partition is ever more than a chunk ahead of
another: less than the watermark delay of the jobs here, so no row is late by accident.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from seamark.model.errors import OperationFailedError
from seamark.verify.history import Numbers

KEYS = 20
CHUNK = 50
ROW_MS = 10
"""Event time between two rows."""
WINDOW_MS = 10_000
DELIVERY_S = 180
"""The longest time for a chunk: it outlasts a dead broker."""


class Generator(threading.Thread):
    """Sends chunks of rows by `send(first, end)`, `rate` rows a second, until `close`. `send`
    returns when the source has the rows. `count` rows have been sent."""

    def __init__(self, send: Callable[[int, int], None], rate: float = 600.0) -> None:
        super().__init__(name="generator", daemon=True)
        self._send = send
        self._pause_s = CHUNK / rate
        self._end = threading.Event()
        self.count = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Send until the end."""
        try:
            while not self._end.wait(self._pause_s):
                self._take(CHUNK)
        except BaseException as error:
            self.error = error

    def abandon(self) -> None:
        """Send no more, whatever becomes of the last chunk."""
        self._end.set()
        self.join(5)

    def close(self) -> None:
        """Send no more; return when every row has been acknowledged. Raises OperationFailedError if
        the source did not take a row."""
        self._end.set()
        self.join()
        if self.error is not None:
            raise OperationFailedError(f"the generator failed: {self.error}") from self.error

    def _take(self, count: int) -> None:
        self._send(self.count, self.count + count)
        self.count += count


class TopicProducer:
    """Writes rows to a Kafka topic, each once and in order."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": DELIVERY_S * 1000,
                "log_level": 0,
            }
        )

    def send(self, rows: Sequence[tuple[str, str]]) -> tuple[Numbers, Numbers]:
        """Return partition and offset of each row once the broker has all of them. Raises OSError
        if it refuses one."""
        places = np.full((2, len(rows)), -1, np.int64)
        errors: list[object] = []

        def delivered(index: int, error: Any, message: Any) -> None:
            if error:
                errors.append(error)
            else:
                places[:, index] = message.partition(), message.offset()

        for index, (key, value) in enumerate(rows):
            self._producer.produce(
                self._topic, key=key, value=value, on_delivery=partial(delivered, index)
            )
        if left := self._producer.flush(DELIVERY_S):
            raise TimeoutError(f"{left} rows not delivered to {self._topic}")
        if errors:
            raise OSError(f"{self._topic}: {errors[0]}")
        return places[0], places[1]
