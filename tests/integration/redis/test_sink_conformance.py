"""RedisSink under the conformance suites, strings and hashes: staged under the one for two-phase
commit, upserting under the one for idempotent sinks; on a real server, read by a client of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import pyarrow as pa
import pytest

from seamark.model.errors import PreflightError
from seamark.sinks.redis import RedisSink
from seamark.sinks.redis.committable import RedisCommittable
from seamark.verify.conformance import (
    CuttingProxy,
    DeadLetterConformance,
    ExpiryConformance,
    ForgettingConformance,
    IdempotentConformance,
    KeyedServerConformance,
    KeyedSinkUnderTest,
    LineConformance,
    LineUnderTest,
    OutageConformance,
    ServerConformance,
    ServerUnderTest,
    SinkConformance,
    SinkUnderTest,
)
from seamark.verify.conformance.outages import soon
from seamark.verify.conformance.steps import attempt, committer, driver
from tests.integration.redis import sink_kit as kit
from tests.servers.redis import RedisServer


class TestStaged(
    SinkConformance, ExpiryConformance, ForgettingConformance, ServerConformance, LineConformance
):
    @pytest.fixture(params=kit.KINDS)
    def under(
        self,
        request: pytest.FixtureRequest,
        own_redis: RedisServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> SinkUnderTest:
        server = own_redis

        def drop(committable: RedisCommittable) -> None:
            """A stage has no time-out: this is somebody cleaning up."""
            server.client().delete(committable.keys.stage(committable.handle))

        return SinkUnderTest(
            sink=kit.sink_on(server, request.param, mode="staged"),
            batch=kit.batch,
            visible=partial(kit.visible, server),
            writer_failpoint="stage-written",
            commit_failpoints=tuple(f"ledger-committed:{nth}" for nth in (1, 2, 3)),
            drop=drop,
            server=ServerUnderTest(kill=server.kill, restart=server.restart),
            line=LineUnderTest(
                "127.0.0.1",
                server.port,
                lambda port: kit.sink_on(server, request.param, mode="staged", port=port),
            ),
        )


class TestOutages(OutageConformance):
    """Away, silent, read-only, full, without a login."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture
    def under(self, own_redis: RedisServer) -> SinkUnderTest:
        def sink_on(port: int = 0) -> RedisSink:
            return kit.sink_on(own_redis, mode="staged", port=port, timeout="1s")

        return SinkUnderTest(
            sink=sink_on(),
            batch=kit.batch,
            visible=partial(kit.visible, own_redis),
            server=ServerUnderTest(kill=own_redis.kill, restart=own_redis.restart),
            line=LineUnderTest("127.0.0.1", own_redis.port, sink_on),
            outages={
                "full": partial(kit.configured, own_redis, "maxmemory", "1"),
                "read-only": partial(kit.replica, own_redis),
                "no login": partial(kit.configured, own_redis, "requirepass", "another"),
            },
        )


class TestRefusedRows(DeadLetterConformance):
    """A null key; and, of hashes, a key with a string."""

    @pytest.fixture(params=kit.KINDS)
    def under(self, request: pytest.FixtureRequest, own_redis: RedisServer) -> SinkUnderTest:
        own_redis.client().set("taken:1", "a string")

        def refused() -> pa.RecordBatch:
            keys = [None, "taken:1"] if request.param == "hashes" else [None]
            columns = [pa.array(keys, pa.string()), pa.array(["0"] * len(keys), pa.string())]
            return pa.record_batch(columns, names=["number", "value"])

        sink = kit.sink_on(own_redis, request.param, mode="staged", key_prefix="")
        return SinkUnderTest(
            sink=sink,
            batch=kit.prefixed,
            visible=partial(kit.visible, own_redis),
            refused=refused,
        )


@pytest.mark.parametrize("name", ["killed", "full", "read-only", "no login", "resets", "drops"])
def test_an_upsert_in_an_outage_ends_soon(own_redis: RedisServer, name: str) -> None:
    """An attempt before its first row and one among its rows raise; so does a start, unless the
    system can answer. The next driver writes the rows."""
    outages: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "killed": ServerUnderTest(own_redis.kill, own_redis.restart).outage,
        "full": partial(kit.configured, own_redis, "maxmemory", "1"),
        "read-only": partial(kit.replica, own_redis),
        "no login": partial(kit.configured, own_redis, "requirepass", "another"),
    }
    with CuttingProxy("127.0.0.1", own_redis.port) as proxy:
        outages |= {how: partial(proxy.outage, how) for how in ("resets", "drops")}  # type: ignore[arg-type]
        sink = kit.sink_on(own_redis, port=proxy.port, timeout="1s")
        made = KeyedSinkUnderTest(sink, kit.versions, partial(kit.shown, own_redis))
        committer(made, driver()).close()
        writers = [sink.create_writer(attempt(partition=p)) for p in range(2)]
        writers[1].write(kit.versions(range(5), 1))
        with outages[name]():
            for writer in writers:
                with soon(), pytest.raises(Exception):  # noqa: B017 - each outage has its own
                    writer.write(kit.versions(range(5, 10), 1))
                    writer.prepare_commit()
                writer.abort()
            side = sink.create_committer(driver(2))
            with soon(), contextlib.suppress(PreflightError):
                side.preflight()
            side.close()
        committer(made, driver(2)).close()
        made.write(attempt(2), range(10), 2)
        made.require(dict.fromkeys(range(10), 2))


class TestUpsert(IdempotentConformance, KeyedServerConformance):
    @pytest.fixture(params=kit.KINDS)
    def keyed(self, request: pytest.FixtureRequest, own_redis: RedisServer) -> KeyedSinkUnderTest:
        return KeyedSinkUnderTest(
            sink=kit.sink_on(own_redis, request.param),
            batch=kit.versions,
            shown=partial(kit.shown, own_redis),
            writer_failpoint="rows-written",
            server=ServerUnderTest(kill=own_redis.kill, restart=own_redis.restart),
        )
