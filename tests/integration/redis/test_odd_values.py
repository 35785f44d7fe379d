"""RedisSink with odd values and odd names: strings and hashes, both modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from redis import Redis

from seamark.model.schema import Schema
from seamark.sinks.redis import RedisSink
from seamark.verify.conformance import ODD_VALUES, ValuesConformance, ValuesUnderTest
from tests.servers.redis import RedisServer


@pytest.mark.parametrize(
    ("mode", "hashes"), [("upsert", False), ("staged", True)], ids=["strings", "hashes"]
)
class TestRedis(ValuesConformance):
    @pytest.fixture
    def odd(self, redis: RedisServer, mode: Any, hashes: bool) -> ValuesUnderTest:
        def read(schema: Schema) -> Mapping[int, Any]:
            """A null is no key, or no field of its hash."""
            name, type_ = schema[1].name, schema[1].type
            client, found = Redis.from_url(redis.url()), dict[int, Any]()
            for number in range(len(ODD_VALUES[type_][1]) + 1 if name == "v" else 3):
                key = f"row:{number}"
                value = client.hget(key, name) if hashes else client.get(key)
                text = value is not None and type_ != "binary"
                found[number] = value.decode(errors="replace") if text else value
            return found

        return ValuesUnderTest(
            lambda schema: RedisSink(
                redis.url(), "n", None if hashes else schema[1].name, mode, key_prefix="row:",
                durability="none",
            ),
            read,
        )  # fmt: skip
