"""The findings of a preflight, each on a real server set up for it; and replicas."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import PreCommitError, PreflightError
from seamark.sinks.redis import RedisSink
from seamark.verify.conformance.steps import attempt, driver, until_proved
from tests.chaos.driver import wait_until
from tests.integration.redis import sink_kit as kit
from tests.servers.redis import PASSWORD, RedisServer


def check(sink: RedisSink) -> None:
    sink.create_committer(driver()).preflight()


def require_refused(sink: RedisSink, found: str) -> None:
    with pytest.raises(PreflightError, match=found) as caught:
        check(sink)
    assert "s3cr3t" not in str(caught.value)


def test_without_an_append_only_file(own_redis: RedisServer) -> None:
    """Rows confirmed by the server would be gone with it; they are, if accepted."""
    own_redis.restart(appendonly="no")
    require_refused(kit.sink_on(own_redis), r"appendonly is off.*SET appendonly yes.*RD001")
    accepting = kit.sink_on(own_redis, durability="none")
    check(accepting)
    writer = accepting.create_writer(attempt())
    writer.write(kit.batch(range(5)))
    writer.prepare_commit()
    own_redis.restart()
    assert kit.visible(own_redis) == []


def test_a_server_that_drops_any_key_when_it_is_full(own_redis: RedisServer) -> None:
    own_redis.client().config_set("maxmemory", "1gb")
    check(kit.sink_on(own_redis))
    own_redis.client().config_set("maxmemory-policy", "allkeys-lru")
    require_refused(kit.sink_on(own_redis), "maxmemory-policy is allkeys-lru.*noeviction")
    check(kit.sink_on(own_redis, durability="none"))


def test_a_server_that_drops_keys_with_a_time_to_live(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own_redis.client().config_set("maxmemory", "1gb")
    own_redis.client().config_set("maxmemory-policy", "volatile-ttl")
    check(kit.sink_on(own_redis))
    check(kit.sink_on(own_redis, durability="none", ttl="1h"))
    assert "maxmemory-policy" not in caplog.text
    check(kit.sink_on(own_redis, ttl="1h"))
    assert "maxmemory-policy is volatile-ttl at the server: when full, it drops keys" in caplog.text


def test_a_server_that_writes_through_once_a_second(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "seamark"):
        check(kit.sink_on(own_redis))
        assert caplog.text == ""
        own_redis.client().config_set("appendfsync", "everysec")
        check(kit.sink_on(own_redis))
        assert "appendfsync is everysec" in caplog.text


def test_a_cluster_node(own_redis: RedisServer) -> None:
    own_redis.kill()
    own_redis.port -= 10_000  # the nodes' own port is 10,000 above it
    own_redis.start(cluster_enabled="yes")
    require_refused(kit.sink_on(own_redis), "runs as cluster")


def test_a_wrong_password_and_a_user_without_scripts(redis: RedisServer) -> None:
    wrong = RedisSink(f"redis://:wr0ng@127.0.0.1:{redis.port}", "number", "value")
    with pytest.raises(PreflightError, match=re.escape("redis://:***@127.0.0.1")) as caught:
        check(wrong)
    assert "wr0ng" not in str(caught.value)
    redis.client().acl_setuser("etl", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"],
                               commands=["+@all", "-eval"])  # fmt: skip
    try:
        etl = RedisSink(redis.url().replace("//:", "//etl:"), "number", "value")
        require_refused(etl, "may run EVAL")
    finally:
        redis.client().acl_deluser("etl")


def test_a_user_who_may_not_ask_for_settings(redis: RedisServer) -> None:
    """As at hosted servers. The start goes on after the refusal, and raises the guard."""
    redis.client().acl_setuser("etl", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"],
                               commands=["+@all", "-config"])  # fmt: skip
    try:
        check(RedisSink(redis.url().replace("//:", "//etl:"), "number", "value"))
        assert redis.client().keys("seamark:*:guard")
    finally:
        redis.client().acl_deluser("etl")


@pytest.fixture
def replica(own_redis: RedisServer) -> Iterator[RedisServer]:
    with RedisServer() as server:
        server.client().replicaof("127.0.0.1", own_redis.port)
        wait_until(
            "the replica is in step",
            lambda: server.client().info()["master_link_status"] == "up",
            60,
        )
        yield server


@pytest.mark.parametrize("mode", ["upsert", "staged"])
def test_replicas_have_the_rows_before_the_epoch_goes_on(
    own_redis: RedisServer, replica: RedisServer, mode: str
) -> None:
    require_refused(kit.sink_on(replica), "is a replica of 127.0.0.1")
    require_refused(kit.sink_on(own_redis, replicas=2), "replicas is 2, and the server has 1")
    sink = kit.sink_on(own_redis, mode=mode, replicas=1, timeout="2s")
    side = sink.create_committer(driver())
    side.preflight()
    first = sink.create_writer(attempt())
    first.write(kit.batch(range(5)))
    made = list(first.prepare_commit())
    replica.pause()
    second = sink.create_writer(attempt(epoch=1))
    second.write(kit.batch(range(5, 9)))
    with pytest.raises(PreCommitError, match="only 0 of 1 replicas"):
        second.prepare_commit()
    if mode == "staged":
        assert list(side.commit(made)) == [CommitOutcome.RETRY]
    replica.resume()
    if mode == "staged":
        assert until_proved(side.commit, made) == [CommitOutcome.ALREADY_COMMITTED]
    assert set(kit.visible(replica)) >= set(range(5))
