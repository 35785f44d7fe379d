"""The stored form of each kind of column, by both modes; the effect of a taken key.

How: batches as Spark hands them to a writer, on a real server, read by a client of its own.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import (
    CommitFailedError,
    ConfigurationError,
    PreCommitError,
    WriteRefusedError,
)
from seamark.sinks.redis import RedisSink, rows
from seamark.verify.conformance.steps import attempt, driver, until_proved
from tests.chaos.driver import wait_until
from tests.integration.redis import sink_kit as kit
from tests.servers.redis import RedisServer

MODES = ("upsert", "staged")
AWKWARD = "line\r\nbreak, \0 nul, $5, é, 😀, '\"\\"


def put(sink: RedisSink, *batches: pa.RecordBatch, epoch: int = 0) -> None:
    """Write and, if there is something to commit, commit."""
    writer = sink.create_writer(attempt(epoch=epoch))
    for batch in batches:
        writer.write(batch)
    made = list(writer.prepare_commit())
    assert bool(made) == (sink.mode == "staged")
    if made:
        committer = sink.create_committer(driver())
        assert until_proved(committer.commit, made) == [CommitOutcome.COMMITTED]
        committer.close()


@pytest.mark.parametrize("mode", MODES)
def test_strings(redis: RedisServer, mode: str) -> None:
    sink = RedisSink(redis.url(), "k", "v", mode=mode)  # type: ignore[arg-type]
    rows = {AWKWARD: AWKWARD, "": "", "a": "1", "gone": "x"}
    put(sink, pa.record_batch({"k": list(rows), "v": list(rows.values())}))
    # Nulls delete, and the last row of a key counts, in one batch and from batch to batch.
    put(
        sink,
        pa.record_batch({"k": ["gone", "a", "b", "b"], "v": [None, None, None, "2"]}),
        pa.record_batch({"k": ["c"], "v": ["3"]}),
        pa.record_batch({"k": ["c"], "v": pa.array([None], pa.string())}),
        epoch=1,
    )
    client = redis.client()
    assert {k: client.get(k) for k in client.scan_iter() if not k.startswith("seamark:")} == {
        AWKWARD: AWKWARD, "": "", "b": "2",
    }  # fmt: skip


def _blocks_or_rows(server: RedisServer, count: int) -> bool:
    """Whether the server has so many. Its answers to them are on their way before that to this."""
    with contextlib.closing(server.client()) as client:
        stages = [key for key in client.scan_iter() if client.type(key) == "list"]
        return len(kit.shown(server)) == count or any(client.llen(key) == count for key in stages)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", kit.KINDS)
def test_a_connection_that_is_cut_between_two_batches_is_made_anew(
    redis: RedisServer, mode: str, kind: str
) -> None:
    """As a server with a `timeout`, and many a proxy, does to one that waits for rows."""
    sink = kit.sink_on(redis, kind, mode=mode)
    writer = sink.create_writer(attempt())
    for number in (1, 2, 3):
        writer.write(kit.batch([number]))
        wait_until("the answer", partial(_blocks_or_rows, redis, number), 30)
        with contextlib.closing(redis.client()) as client:
            client.client_kill_filter(_type="normal", skipme=True)
    made = list(writer.prepare_commit())
    with contextlib.closing(sink.create_committer(driver())) as committer:
        until_proved(committer.commit, made)
    assert kit.shown(redis) == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_comes_up_again_between_two_batches_fails_the_attempt(
    own_redis: RedisServer, mode: str
) -> None:
    """It may have lost what it confirmed before."""
    writer = kit.sink_on(own_redis, mode=mode).create_writer(attempt())
    writer.write(kit.batch([1]))
    wait_until("the answer", partial(_blocks_or_rows, own_redis, 1), 30)
    own_redis.kill()
    own_redis.restart()
    with pytest.raises(PreCommitError, match="the server is another one"):
        writer.write(kit.batch([2]))


@pytest.mark.parametrize("mode", MODES)
def test_the_longest_ttl(redis: RedisServer, mode: str) -> None:
    sink = RedisSink(redis.url(), "k", "v", mode=mode, ttl=9e15)  # type: ignore[arg-type]
    put(sink, pa.record_batch({"k": ["far"], "v": ["x"]}))
    assert redis.client().get("far") == "x"
    with pytest.raises(ConfigurationError, match=r"ttl is 9100000000000000\.0; give at most 9e15"):
        replace(sink, ttl=9.1e15)


@pytest.mark.parametrize("mode", MODES)
def test_a_hash_of_more_fields_than_lua_passes_on_at_once(redis: RedisServer, mode: str) -> None:
    sink = RedisSink(redis.url(), "k", mode=mode)  # type: ignore[arg-type]
    whole = {f"f{number}": str(number) for number in range(9001)}
    put(sink, pa.record_batch({"k": ["a"], **{name: [text] for name, text in whole.items()}}))
    assert redis.client().hgetall("a") == whole
    none = pa.array([None], pa.string())
    fields = {name: none if name != "f7" else pa.array(["7"]) for name in whole}
    put(sink, pa.record_batch({"k": ["a"], **fields}), epoch=1)
    assert redis.client().hgetall("a") == {"f7": "7"}


@pytest.mark.parametrize("mode", MODES)
def test_bytes_dates_and_prefix(redis: RedisServer, mode: str) -> None:
    sink = RedisSink(redis.url(), "at", "raw", key_prefix="é:", mode=mode)  # type: ignore[arg-type]
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.timezone.utc)
    put(
        sink,
        pa.record_batch(
            [pa.array([at], pa.timestamp("us", "Asia/Tokyo")), pa.array([b"\xff\0\r\n"])],
            names=["at", "raw"],
        ),
    )
    raw = redis.client()
    raw.connection_pool.connection_kwargs["decode_responses"] = False
    assert raw.get("é:2026-01-02 03:04:05.000006Z") == b"\xff\0\r\n"


@pytest.mark.parametrize("mode", MODES)
def test_hashes(redis: RedisServer, mode: str) -> None:
    client = redis.client()
    client.hset("row:1", mapping={"kept": "x", "b": "old"})
    sink = kit.sink_on(redis, "hashes", mode=mode)
    names = ["a", "number", "b"]
    put(
        sink,
        pa.record_batch(
            [pa.array(["1", None, None]), pa.array(["1", "2", "3"]), pa.array([None, "2", None])],
            names=names,
        ),
    )
    assert client.hgetall("row:1") == {"kept": "x", "a": "1"}
    assert client.hgetall("row:2") == {"b": "2"}
    assert not client.exists("row:3")
    put(
        sink,
        pa.record_batch([["3", "4"], ["2", "2"], pa.array([None, "9"])], names=names),
        pa.record_batch(
            [pa.array([None], pa.string()), ["1"], pa.array([None], pa.string())], names=names
        ),
        epoch=1,
    )
    assert client.hgetall("row:2") == {"a": "4", "b": "9"}
    assert client.hgetall("row:1") == {"kept": "x"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", kit.KINDS)
def test_time_to_live(redis: RedisServer, mode: str, kind: str) -> None:
    put(kit.sink_on(redis, kind, mode=mode, ttl="1h"), kit.batch(range(3)))
    assert sorted(kit.visible(redis)) == [0, 1, 2]
    assert all(3_500_000 < redis.client().pttl(f"row:{n}") <= 3_600_000 for n in range(3))
    # A sink without one takes it back.
    put(kit.sink_on(redis, kind, mode=mode), kit.batch(range(2)), epoch=1)
    assert [redis.client().pttl(f"row:{n}") > 0 for n in range(3)] == [False, False, True]
    assert sorted(kit.visible(redis)) == [0, 1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_many_rows_of_many_sizes(redis: RedisServer, mode: str) -> None:
    """Blocks are cut by rows and by bytes; each row arrives whole."""
    sizes = [(7919 * i) % 5000 for i in range(9000)]
    sink = kit.sink_on(redis, mode=mode)
    put(
        sink,
        pa.record_batch(
            {"number": [str(i) for i in range(9000)], "value": ["x" * n for n in sizes]}
        ),
    )
    client = redis.client()
    found = client.mget([f"row:{i}" for i in range(9000)])
    assert [len(text) for text in found] == sizes


@pytest.mark.parametrize("kind", kit.KINDS)
def test_a_key_of_another_type(redis: RedisServer, kind: str) -> None:
    """A string's SET replaces whatever is there; a hash's HSET is refused: by an upsert before the
    decision, at a staged epoch's commit after it; and goes on when the key is deleted."""
    client = redis.client()
    client.rpush("row:1", "a list")
    upsert, staged = (kit.sink_on(redis, kind, mode=mode) for mode in MODES)
    if kind == "strings":
        put(upsert, kit.batch([1]))
        assert kit.visible(redis) == [1]
        return
    with pytest.raises(WriteRefusedError, match=r"no hash.*WRONGTYPE"):
        put(upsert, kit.batch([0, 1, 2]))
    writer = staged.create_writer(attempt(epoch=1))
    writer.write(kit.batch([0, 1, 2]))
    made = list(writer.prepare_commit())
    committer = staged.create_committer(driver())
    with pytest.raises(CommitFailedError, match="delete the key"):
        committer.commit(made)
    client.delete("row:1")
    assert until_proved(committer.commit, made) == [CommitOutcome.COMMITTED]
    assert sorted(kit.visible(redis)) == [0, 1, 2]


@pytest.mark.parametrize("kind", kit.KINDS)
def test_refused_rows_of_an_upsert_are_named_and_the_others_written(
    redis: RedisServer, kind: str
) -> None:
    client = redis.client()
    client.set("row:taken", "a string")
    sink = kit.sink_on(redis, kind)
    writer = sink.create_selective_writer(attempt())
    for start in (0, 10):  # the second batch comes while the first one's block is on its way
        keys = [None, "taken", *map(str, range(start, start + 10)), None]
        values = ["0", "7", *map(str, range(start, start + 10)), "0"]
        refused = writer.write_accepted(pa.record_batch({"number": keys, "value": values}))
        taken = [1] if kind == "hashes" else []  # SET goes over whatever is there
        assert [row.index for row in refused] == [0, *taken, 12]
        assert "null" in refused[0].reason
    assert list(writer.prepare_commit()) == []
    assert client.get("row:taken") == ("a string" if kind == "hashes" else "7")
    client.delete("row:taken")
    assert sorted(kit.visible(redis)) == list(range(20))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", [None, "op"])
@pytest.mark.parametrize("prefix", ["", "sea"])
def test_a_row_does_not_reach_the_sinks_own_keys(
    redis: RedisServer, mode: str, op: str | None, prefix: str
) -> None:
    """A guard or a stage that a row overwrote or deleted would stop its job, or lose an epoch."""
    staged = kit.sink_on(redis, mode="staged")
    writer = staged.create_writer(attempt(epoch=1))
    writer.write(kit.batch([7]))
    made = list(writer.prepare_commit())
    client = redis.client()
    own = [key.removeprefix(prefix) for key in client.scan_iter("seamark:*")]
    assert len(own) == 2
    settings = {"mode": mode, "op": op, "key_prefix": prefix}
    sink = RedisSink(redis.url(), "k", "v", **settings)  # type: ignore[arg-type]
    values = pa.array([*[None] * len(own), "1"], pa.string())
    rows = pa.record_batch({"k": [*own, "seamark"], "v": values})
    if op:
        rows = rows.append_column("op", pa.array(["delete"] * len(own) + ["insert"]))
    other = sink.create_selective_writer(replace(attempt(), sink_uid="other"))
    refused = other.write_accepted(rows)
    assert [row.index for row in refused] == [0, 1]
    assert "'seamark:', Seamark's own" in refused[0].reason
    for committable in other.prepare_commit():
        committer = sink.create_committer(driver())
        assert committer.commit([committable]) == [CommitOutcome.COMMITTED]
        committer.close()
    assert client.get(f"{prefix}seamark") == "1"
    assert staged.create_committer(driver()).commit(made) == [CommitOutcome.COMMITTED]
    assert kit.visible(redis) == [7]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", ["v", None])
def test_a_row_that_is_too_long_once_packed_is_refused(
    redis: RedisServer, mode: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the server hangs up at it, each time that it comes. Here its limit is 2 MiB."""
    limit = 2 * 2**20
    monkeypatch.setattr(rows, "LARGEST_BYTES", limit)
    sink = RedisSink(redis.url(), "k", value, mode=mode, ttl="1h")  # type: ignore[arg-type]
    with kit.configured(redis, "proto-max-bulk-len", str(limit)):
        writer = sink.create_selective_writer(attempt())
        lengths = [limit // 2, limit - 1000, limit - 20, limit]
        batch = pa.record_batch({"k": list("abcd"), "v": ["x" * length for length in lengths]})
        if value is None:
            batch = batch.append_column("w", pa.array(["y" * (limit // 2), "", "", ""]))
        refused = {row.index: row.reason for row in writer.write_accepted(batch)}
        assert list(refused) == ([0, 2, 3] if value is None else [2, 3])
        assert f"bytes; Redis holds at most {limit}" in refused[2]
        if committables := writer.prepare_commit():
            committer = sink.create_committer(driver())
            assert committer.commit(committables) == [CommitOutcome.COMMITTED]
        client = redis.client()
        found = client.hget("b", "v") if value is None else client.get("b")
        assert len(found) == limit - 1000
