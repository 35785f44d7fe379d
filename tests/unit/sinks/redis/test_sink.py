"""RedisSink's configuration, and how Arrow becomes blocks, without a server."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from seamark.model.errors import ConfigurationError, WriteRefusedError
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Column
from seamark.sinks.redis import RedisSink, rows, server
from seamark.sinks.redis.rows import Layout, blocks

URL = "rediss://etl:s3cr3t%2F%40@cache.example:6380/3"


def sink(**settings: Any) -> RedisSink:
    return RedisSink(**{"url": URL, "key": "id", **settings})


def test_the_url_is_taken_apart_and_the_password_is_never_shown() -> None:
    made = sink(url=f"{URL}?ssl_ca_certs=/ca.pem&ssl_check_hostname=false")
    at = made.address
    assert (at.host, at.port, at.database, at.user, at.password, at.tls) == (
        "cache.example", 6380, 3, "etl", "s3cr3t/@", True,
    )  # fmt: skip
    assert dict(at.options) == {"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}
    for text in (repr(made), str(made), made.describe(), repr(at), str(at), at.shown):
        assert "s3cr3t" not in text
    assert "cache.example:6380/3" in made.describe()
    assert pickle.loads(pickle.dumps(made)) == made
    plain = server.parse_url("redis://:s3cr3t@localhost", "sink")
    assert (plain.port, plain.database, plain.user, plain.tls) == (6379, 0, "", False)
    assert plain.shown == "redis://:***@localhost:6379/0"


def test_its_way_is_said_and_so_is_what_can_be_lost() -> None:
    assert sink().way is SinkWay.IDEMPOTENT
    assert sink(mode="staged").way is SinkWay.TWO_PHASE_COMMIT
    assert "lost with the server" in sink(durability="none").describe()


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://etl:s3cr3t@cache"},
        {"url": "redis://:s3cr3t@cache:port"},
        {"url": "redis://:s3cr3t@cache/zero"},
        {"url": "rediss://:s3cr3t@cache?password=s3cr3t"},
        {"url": "redis://:s3cr3t@cache?ssl_ca_certs=/ca.pem"},
        {"url": 7},
        {"key": ""},
        {"value": "id"},
        {"value": 3},
        {"mode": "prepared"},
        {"durability": "fsync"},
        {"key_prefix": "seamark:mine"},
        {"key_prefix": None},
        {"ttl": "soon"},
        {"ttl": 0},
        {"ttl": 9.3e15},
        {"replicas": -1},
        {"replicas": True},
    ],
)
def test_wrong_settings_are_refused_without_a_secret(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sink(**wrong)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "columns", "found"),
    [
        ("total", ["day", "total"], "key column 'id' is not in"),
        ("total", ["id"], "value column 'total' is not in"),
        ("total", ["id", "total", "day"], "column 'day' would be left out"),
        (None, ["id"], "only the key"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    value: str | None, columns: list[str], found: str
) -> None:
    with pytest.raises(ConfigurationError, match=found):
        sink(value=value).select_expressions([Column(name, "string") for name in columns])


def test_columns_become_text() -> None:
    made = sink().select_expressions(
        (Column("id", "bigint"), Column("tags", "array<string>"), Column("raw", "binary"),
         Column("at", "timestamp"))
    )  # fmt: skip
    assert made[0] == "CAST(`id` AS STRING) AS `id`"
    assert made[1].startswith("to_json(`tags`")
    assert list(made[2:]) == ["`raw`", "`at`"]


def cut(batch: pa.RecordBatch, value: str | None, *, mset: bool = True) -> list[rows.Block]:
    return list(blocks(batch, Layout("id", value, "", None), mset=mset))


def test_blocks_are_cut_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    many = pa.record_batch({"id": [f"{i:04}" for i in range(4500)], "v": ["x"] * 4500})
    assert [(b.operation, b.rows, b.arguments) for b in cut(many, "v")] == [
        ("set", 2000, 4000), ("set", 2000, 4000), ("set", 500, 1000),
    ]  # fmt: skip
    # A batch is often a slice of a longer one.
    assert b"".join(b.body for b in cut(many.slice(1000, 2), "v")) == (
        b"$4\r\n1000\r\n$1\r\nx\r\n$4\r\n1001\r\n$1\r\nx\r\n"
    )
    monkeypatch.setattr(rows, "BLOCK_BYTES", 1000)
    long = pa.record_batch({"id": ["a", "b", "c", "d"], "v": ["x" * n for n in (400, 400, 400, 9)]})
    assert [b.rows for b in cut(long, "v")] == [2, 2]
    huge = pa.record_batch({"id": ["a", "b"], "v": ["x" * 5000, "x"]})
    assert [b.rows for b in cut(huge, "v")] == [1, 1]
    assert [b.rows for b in cut(huge, None)] == [1, 1]


def test_of_a_key_with_values_and_nulls_the_last_row_counts() -> None:
    batch = pa.record_batch({"id": ["a", "b", "a", "c", "c"], "v": ["1", "2", None, None, "3"]})
    made = cut(batch, "v")
    assert [(b.operation, b.rows) for b in made] == [("delete", 1), ("set", 2)]
    assert bytes(made[0].body) == b"\xdb\x00\x00\x00\x01a"
    assert b"a" not in bytes(made[1].body)
    assert b"$1\r\nc\r\n$1\r\n3\r\n" in bytes(made[1].body)


def test_rows_that_redis_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WriteRefusedError, match="the key column 'id' is null"):
        cut(pa.record_batch({"id": ["a", None], "v": ["1", "2"]}), "v")
    monkeypatch.setattr(rows, "LARGEST_BYTES", 10)
    with pytest.raises(WriteRefusedError, match="11 bytes"):
        cut(pa.record_batch({"id": ["a"], "v": ["x" * 11]}), "v")
