"""Staged epochs, their commit killed, cut off or met by another; a server without answers.

How: stages of several small blocks; committers in processes dying at a failpoint, two at once, and
behind a proxy cutting the line after the server has executed a request.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import PreCommitError, PreflightError
from seamark.sinks.redis import RedisSink, committer, rows
from seamark.sinks.redis.committable import RedisCommittable
from seamark.verify.conformance import CuttingProxy
from seamark.verify.conformance.steps import answered, attempt, driver, in_child, until_proved
from tests.integration.redis import sink_kit as kit
from tests.servers.redis import RedisServer

COMMITTED, ALREADY = CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK_ROWS", 3)


def stage(sink: RedisSink, numbers: range, **at: Any) -> list[RedisCommittable]:
    writer = sink.create_writer(attempt(**at))
    writer.write(kit.batch(numbers))
    return list(writer.prepare_commit())


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_commit_that_dies_between_blocks_is_ended_by_the_next(
    redis: RedisServer, nth: int
) -> None:
    sink = kit.sink_on(redis, mode="staged")
    made = stage(sink, range(10))
    assert made[0].blocks == 4
    status, _ = in_child(
        sink, "commit", driver(), [sink.dump(c) for c in made], failpoint=f"block-applied:{nth}"
    )
    assert status == -signal.SIGKILL
    assert len(kit.visible(redis)) == min(3 * nth, 10)
    successor = sink.create_committer(driver(2))
    # A begun commit can't be taken back any more.
    assert list(successor.abort(made)) == [AbortOutcome.COMMITTED]
    assert until_proved(successor.commit, made) == [ALREADY if nth == 4 else COMMITTED]
    assert sorted(kit.visible(redis)) == list(range(10))
    assert list(successor.list_lingering()) == []


def test_two_committers_of_one_stage_apply_each_block_once(redis: RedisServer) -> None:
    """A key's rows must come in their order also then."""
    sink = kit.sink_on(redis, mode="staged")
    for epoch in range(3):
        writer = sink.create_writer(attempt(epoch=epoch))
        for value in range(30):
            writer.write(kit.versions([1], 1000 * epoch + value))
        made = list(writer.prepare_commit())
        outcomes: list[CommitOutcome] = []

        def commit(made: Any = made, outcomes: Any = outcomes) -> None:
            outcomes += until_proved(sink.create_committer(driver()).commit, made)

        threads = [threading.Thread(target=commit) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(o.name for o in outcomes) == ["ALREADY_COMMITTED"] * 2 + ["COMMITTED"]
        assert kit.shown(redis) == {1: 1000 * epoch + 29}


def test_a_commit_whose_reply_is_lost_goes_on(redis: RedisServer) -> None:
    with CuttingProxy("127.0.0.1", redis.port) as proxy:
        sink = kit.sink_on(redis, mode="staged", port=proxy.port)
        made = stage(sink, range(10))
        through = sink.create_committer(driver())
        proxy.lose_reply_to(made[0].handle.encode())
        assert answered(through.commit, made, CommitOutcome.RETRY) == [CommitOutcome.RETRY]
        assert proxy.cuts == 1
        assert sorted(kit.visible(redis)) == [0, 1, 2]
        assert until_proved(through.commit, made) == [COMMITTED]
        assert sorted(kit.visible(redis)) == list(range(10))


def test_a_long_commit_answers_in_between(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "COMMIT_CALL_S", 0.0)
    sink = kit.sink_on(redis, mode="staged")
    made = stage(sink, range(10))
    side = sink.create_committer(driver())
    for seen in (3, 6, 9):
        assert list(side.commit(made)) == [CommitOutcome.RETRY]
        assert len(kit.visible(redis)) == seen
    assert list(side.commit(made)) == [COMMITTED]


def test_an_aborted_stage_is_not_begun_again_by_its_writer(redis: RedisServer) -> None:
    sink = kit.sink_on(redis, mode="staged")
    writer = sink.create_writer(attempt())
    writer.write(kit.batch(range(6)))
    side = sink.create_committer(driver(2))
    (left,) = side.list_lingering()
    assert until_proved(side.abort, [left.committable]) == [AbortOutcome.ABORTED]
    with pytest.raises(PreCommitError, match="holds 0 blocks"):
        writer.write(kit.batch(range(6, 12)))
        writer.prepare_commit()
    assert [k for k in redis.client().scan_iter("seamark:*") if ":stage" in k] == []


def test_after_a_change_of_mode_what_is_open_is_still_ended(redis: RedisServer) -> None:
    staged, upsert = kit.sink_on(redis, mode="staged"), kit.sink_on(redis)
    decided, left = stage(staged, range(5)), stage(staged, range(5, 9), partition=1)
    side = upsert.create_committer(driver(2))
    side.preflight()
    assert until_proved(side.commit, decided) == [COMMITTED]
    (found,) = side.list_lingering()
    assert found.committable.handle == left[0].handle
    assert until_proved(side.abort, [found.committable]) == [AbortOutcome.ABORTED]
    assert sorted(kit.visible(redis)) == list(range(5))


def test_the_proofs_of_old_epochs_are_forgotten(redis: RedisServer) -> None:
    sink = kit.sink_on(redis, mode="staged")
    side = sink.create_committer(driver())
    for epoch in (0, 1, 1001):
        until_proved(side.commit, stage(sink, range(3), epoch=epoch))
    (key,) = redis.client().scan_iter("seamark:*:committed")
    assert [int(at) for _, at in redis.client().zrange(key, 0, -1, withscores=True)] == [1, 1001]


def test_a_server_that_is_away_at_the_start(own_redis: RedisServer) -> None:
    own_redis.kill()
    with pytest.raises(PreflightError, match="cannot be used") as caught:
        kit.sink_on(own_redis).create_committer(driver()).preflight()
    assert "s3cr3t" not in str(caught.value)
