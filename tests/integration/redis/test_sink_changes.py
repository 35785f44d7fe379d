"""RedisSink with op: `tests/changes_suite.py`, as strings and as hashes, in both modes."""

from __future__ import annotations

import pytest

from seamark.model.errors import ConfigurationError
from seamark.sinks.redis import RedisSink
from tests.changes_suite import ChangesSuite, ChangesUnderTest, Table
from tests.servers.redis import RedisServer


class TestRedis(ChangesSuite):
    @pytest.fixture(params=["strings upsert", "hashes upsert", "strings staged", "hashes staged"])
    def under(self, request: pytest.FixtureRequest, redis: RedisServer) -> ChangesUnderTest:
        kind, mode = request.param.split()
        value = "text" if kind == "strings" else None
        client = redis.client()

        def rows() -> Table:
            found: Table = {}
            for key in client.keys("row:*"):
                row = (client.get(key), None) if value else client.hmget(key, "text", "note")
                found[int(key.removeprefix("row:"))] = (row[0], row[1])
            return found

        def mark() -> bool:
            for key in client.keys("row:*") if value is None else ():
                client.hset(key, "note", "seen")
            return value is None

        sink = RedisSink(redis.url(), "id", value, op="op", mode=mode, key_prefix="row:")
        return ChangesUnderTest(sink, rows, mark, refuses_null=False)


@pytest.mark.parametrize("op", ["id", "text"])
def test_op_is_a_column_of_its_own(op: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"op is '{op}', which is a key column"):
        RedisSink("redis://localhost/0", "id", "text", op=op)
