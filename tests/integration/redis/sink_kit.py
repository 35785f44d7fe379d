"""Common parts of the tests of this directory: sinks of numbers, as strings and as hashes, and
readers.

A number's key is ``row:<number>``, its value ``<number>`` unless the test gives another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from seamark.sinks.redis import RedisSink
from tests.servers.redis import RedisServer

KINDS = ("strings", "hashes")


def sink_on(
    server: RedisServer, kind: str = "strings", *, port: int = 0, **settings: Any
) -> RedisSink:
    """Return a sink; `port` is a proxy's."""
    value = "value" if kind == "strings" else None
    return RedisSink(server.url(port=port), "number", value, **{"key_prefix": "row:", **settings})


@contextlib.contextmanager
def configured(server: RedisServer, name: str, value: str) -> Iterator[None]:
    """Give the server another setting, for the time of the context; its connections are cut."""
    client = server.client()
    before = client.config_get(name)[name]
    client.config_set(name, value)
    client.client_kill_filter(_type="normal", skipme=True)
    try:
        yield
    finally:
        client.config_set(name, before)
        client.close()


@contextlib.contextmanager
def replica(server: RedisServer) -> Iterator[None]:
    """Make the server a replica of a primary that is not there, for the time of the context."""
    client = server.client()
    client.replicaof("127.0.0.1", "1")
    try:
        yield
    finally:
        client.replicaof("NO", "ONE")
        client.close()


def batch(numbers: Sequence[int]) -> pa.RecordBatch:
    """Return a row for each number, with the number as its value."""
    return versions(numbers, None)


def versions(numbers: Sequence[int], value: int | None) -> pa.RecordBatch:
    """Return a row for each number with this value, or the number itself."""
    values = [n if value is None else value for n in numbers]
    return pa.record_batch(
        [pa.array(list(map(str, each)), pa.string()) for each in (numbers, values)],
        names=["number", "value"],
    )


def prefixed(numbers: Sequence[int]) -> pa.RecordBatch:
    """Return a row for each number as `batch`, with the prefix already in the key."""
    rows = batch(numbers)
    keys = pa.array([f"row:{number}" for number in numbers], pa.string())
    return rows.set_column(0, "number", keys)


def shown(server: RedisServer) -> Mapping[int, int]:
    """Return a reader's view: the value of each number."""
    client = server.client()
    found = {}
    for key in client.scan_iter("row:*", count=1000):
        text = client.hget(key, "value") if client.type(key) == "hash" else client.get(key)
        found[int(key.removeprefix("row:"))] = int(text)
    return found


def visible(server: RedisServer) -> list[int]:
    """Return the numbers visible to a reader; each must have itself as value."""
    found = shown(server)
    assert all(number == value for number, value in found.items())
    return list(found)
