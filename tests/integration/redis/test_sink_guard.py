"""Late writes: a paused worker waking after its driver's successor has gone on, a guard changed
between the look and the write, a cut line.

How: real writers on a real server; the paused one is a process under SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from seamark.model.errors import PreCommitError
from seamark.sinks.redis import RedisSink, scripts
from seamark.sinks.redis.committable import Keys
from seamark.sinks.redis.server import Link
from seamark.sinks.redis.writer import UpsertWriter
from seamark.verify.conformance import CuttingProxy
from seamark.verify.conformance.steps import JOB, UID, attempt, driver
from tests.chaos.driver import wait_until
from tests.integration.redis import sink_kit as kit
from tests.servers.redis import RedisServer

GUARD = Keys(JOB, UID).named("guard")


@pytest.fixture(params=kit.KINDS)
def sink(request: pytest.FixtureRequest, redis: RedisServer) -> RedisSink:
    return kit.sink_on(redis, request.param)


def start(sink: RedisSink, generation: int) -> None:
    sink.create_committer(driver(generation)).preflight()


def write(sink: RedisSink, context: object, value: int) -> None:
    writer = sink.create_writer(context)  # type: ignore[arg-type]
    writer.write(kit.versions([1], value))
    writer.prepare_commit()


@pytest.fixture
def worker(sink: RedisSink) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of generation 1, writing epoch 7."""
    start(sink, 1)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.redis.late_worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(pickle.dumps((sink, attempt(1, 7))))
    process.stdin.close()
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("gone_on", ["claimed", "same epoch", "later epochs"])
def test_a_paused_worker_wakes_when_its_drivers_successor_has_gone_on(
    redis: RedisServer, sink: RedisSink, worker: subprocess.Popen[bytes], gone_on: str
) -> None:
    assert worker.stdout is not None
    for _ in range(20):
        worker.stdout.readline()
    worker.send_signal(signal.SIGSTOP)
    start(sink, 2)
    expected = {1: -1}
    if gone_on != "claimed":
        write(sink, attempt(2, 7), -1)
    if gone_on == "later epochs":
        write(sink, attempt(2, 8), -2)
        expected = {1: -2}
    if gone_on == "claimed":
        expected = dict(kit.shown(redis))
    worker.send_signal(signal.SIGCONT)
    last = worker.stdout.read().decode().splitlines()[-1]
    assert worker.wait(30) == 0
    assert (
        "generation 1, attempt 0 at partition 0 may not write: superseded by generation 2" in last
    )
    assert kit.shown(redis) == expected


def test_a_guard_that_changes_between_the_look_and_the_write(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXEC must find its view outdated."""
    sink = kit.sink_on(redis)
    start(sink, 1)
    look, asked = UpsertWriter._ask, []

    def look_and_be_superseded(self: UpsertWriter, script: str) -> None:
        look(self, script)
        asked.append(script)
        if len(asked) == 2:  # the first one is before WATCH
            redis.client().eval(scripts.FENCE, 1, GUARD, 2)

    monkeypatch.setattr(UpsertWriter, "_ask", look_and_be_superseded)
    writer = sink.create_writer(attempt(1))
    writer.write(kit.batch([1]))
    with pytest.raises(PreCommitError, match="superseded by generation 2"):
        writer.prepare_commit()
    assert len(asked) == 2
    assert kit.shown(redis) == {}


def test_a_write_that_exec_refuses_is_no_write(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right to MSET goes between its queueing and EXEC: an error within EXEC's answer."""
    client = redis.client()
    client.execute_command("ACL", "SETUSER", "default", "+mset")
    sink = kit.sink_on(redis)
    start(sink, 1)
    send = Link.send

    def send_and_lose_the_right(self: Link, packed: Sequence[Any]) -> None:
        if b"EXEC" not in packed[-1]:
            send(self, packed)
            return
        send(self, packed[:-1])
        wait_until(
            "MSET to be queued", lambda: any(c["multi"] == "1" for c in client.client_list()), 30
        )
        client.execute_command("ACL", "SETUSER", "default", "-mset")
        send(self, packed[-1:])

    monkeypatch.setattr(Link, "send", send_and_lose_the_right)
    writer = sink.create_writer(attempt(1))
    writer.write(kit.batch([1]))
    try:
        with pytest.raises(PreCommitError, match="ACLs rules changed"):
            writer.prepare_commit()
    finally:
        client.execute_command("ACL", "SETUSER", "default", "+mset")
    assert kit.shown(redis) == {}


def test_another_tasks_first_block_does_not_keep_rows_from_being_written(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes the guard under an EXEC, and the EXEC is sent again."""
    sink = kit.sink_on(redis)
    start(sink, 1)
    look, others = UpsertWriter._ask, iter(range(1, 4))

    def look_and_meet_another(self: UpsertWriter, script: str) -> None:
        look(self, script)
        if (other := next(others, None)) is not None:
            redis.client().hset(GUARD, f"p{other}", 0)

    monkeypatch.setattr(UpsertWriter, "_ask", look_and_meet_another)
    write(sink, attempt(1), 5)
    assert kit.shown(redis) == {1: 5}


@pytest.mark.parametrize(
    ("kind", "text"),
    [("strings", b"EXEC"), ("hashes", b"cmsgpack"), ("strings", b"'done ' .. ARGV")],
)
def test_an_attempt_whose_reply_is_lost_fails_and_its_retry_writes(
    redis: RedisServer, kind: str, text: bytes
) -> None:
    with CuttingProxy("127.0.0.1", redis.port) as proxy:
        through = kit.sink_on(redis, kind, port=proxy.port)
        start(through, 1)
        writer = through.create_writer(attempt())
        proxy.lose_reply_to(text)
        writer.write(kit.versions([1], 1))
        with pytest.raises(PreCommitError) as caught:
            writer.prepare_commit()
        assert "s3cr3t" not in str(caught.value)
        writer.abort()
        assert kit.shown(redis) == {1: 1}
        write(through, attempt(attempt=1), 2)
        assert kit.shown(redis) == {1: 2}


def test_an_attempt_that_comes_after_the_winner_has_ended_is_refused(
    redis: RedisServer, sink: RedisSink
) -> None:
    """It might be killed with older rows of the epoch on top."""
    start(sink, 1)
    write(sink, attempt(), 5)
    with pytest.raises(PreCommitError, match="written already: done 0"):
        write(sink, attempt(attempt=1), 4)
    assert kit.shown(redis) == {1: 5}
