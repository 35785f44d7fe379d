"""A write-ahead sink for NATS JetStream: each row is a message, its id the epoch's token and the
row's number."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import nats
import pyarrow as pa
from nats.errors import Error
from nats.js import JetStreamContext

import seamark as sm


@dataclass(frozen=True)
class NatsSink(sm.WriteAheadSink):
    """Publishes the column `value`, a string, to `subject` of `stream`, which must keep message
    ids for `window_s` seconds."""

    url: str
    stream: str
    subject: str
    value: str = "value"
    window_s: float = 3600
    idempotent: bool = True

    def describe(self) -> str:
        return f"subject {self.subject} of stream {self.stream} at {self.url}"

    def check_target(self) -> None:
        try:
            window_s = asyncio.run(self._found_window_s())
        except (OSError, Error) as error:
            raise sm.PreflightError(
                f"{self.describe()}: {error!r}; start the server, or create the stream"
            ) from error
        if window_s < self.window_s:
            raise sm.PreflightError(
                f"{self.describe()}: its duplicate_window is {window_s:g} s, below window_s of "
                f"{self.window_s:g}; raise it to the longest time that the job may be down"
            )

    def send(self, batches: Iterator[pa.RecordBatch], token: sm.EpochToken) -> None:
        asyncio.run(self._send(batches, token))

    async def _send(self, batches: Iterator[pa.RecordBatch], token: sm.EpochToken) -> None:
        numbers = count()
        async with self._connected() as stream:
            for batch in batches:
                acks = [
                    await stream.publish_async(
                        self.subject,
                        value.encode(),
                        stream=self.stream,
                        headers={"Nats-Msg-Id": f"{token}-{next(numbers)}"},
                    )
                    for value in batch[self.value].to_pylist()
                ]
                # An ack says that it is stored, now or by an earlier send.
                await asyncio.wait_for(asyncio.gather(*acks), 10)

    async def _found_window_s(self) -> float:
        async with self._connected() as stream:
            found = await stream.stream_info(self.stream)
            return found.config.duplicate_window or 0

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[JetStreamContext]:
        # A connection of its own for each epoch. With 0 the client would try for ever.
        client = await nats.connect(
            self.url, allow_reconnect=False, max_reconnect_attempts=1, connect_timeout=5
        )
        try:
            yield client.jetstream(timeout=10)
        finally:
            await client.close()
