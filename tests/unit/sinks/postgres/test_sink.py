"""The configuration and the names: no server."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest

import seamark as sm
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.errors import ConfigurationError, CorruptRecordError
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Column
from seamark.sinks.postgres import copy_format
from seamark.sinks.postgres.committable import from_gid, gid
from seamark.sinks.postgres.connection import Server
from seamark.sinks.postgres.types import ColumnType

URL = "postgresql://app:secret@db:5432/shop"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"url": "host=db password=secret"}, "not a PostgreSQL URL"),
        ({"url": "mysql://app:secret@db/shop"}, "not a PostgreSQL URL"),
        ({"url": "postgresql://app:secret@[db/shop"}, "not a PostgreSQL URL"),
        ({"url": "postgresql://app:p@secret@db:5432/shop"}, "%40"),
        ({"url": "postgresql://app:p/secret@db:5432/shop"}, "%2F"),
        ({"url": "postgresql://app:12/secret@db:5432/shop"}, "%2F"),
        ({"url": 5}, "url is a int"),
        ({"table": "a.b.c"}, "'schema.name'"),
        ({"table": ""}, "'schema.name'"),
        ({"table": "s._seamark_ledger"}, "Seamark's own"),
        ({"mode": "magic"}, "'prepared', 'staged', 'upsert'"),
        ({"mode": "upsert"}, "needs the key columns"),
        ({"keys": ["id"]}, "no other mode"),
        ({"mode": "upsert", "keys": ["id", "id"]}, "a column twice"),
        ({"mode": "upsert", "keys": "id"}, "a list of column names"),
    ],
)
def test_a_bad_value_is_refused_and_no_secret_is_shown(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        sm.PostgresSink(**{"url": URL, "table": "orders", **changes})
    assert "secret" not in str(caught.value)


def test_what_it_says_of_itself() -> None:
    sink = sm.PostgresSink(URL, "sales.orders", "upsert", keys=["id"])
    assert sink.describe() == "PostgreSQL table sales.orders in shop at db:5432 (upsert)"
    assert "secret" not in repr(sink)
    assert "app:***@db:5432/shop" in repr(sink)
    assert sink.way is SinkWay.TWO_PHASE_COMMIT


@pytest.mark.parametrize(
    ("url", "place", "shown"),
    [
        ("postgresql://app:p?secret@db:5432/shop", "shop at db:5432", "app:***@db:5432/shop"),
        ("postgresql://app:p#secret@db:5432/shop#1", "shop#1 at db:5432", "app:***@db:5432/shop#1"),
        ("postgres://a:5432,[::1]:5433/shop?user=me@x", "shop at a:5432,[::1]:5433", "me@x"),
        ("postgresql://me@%2Ftmp/b@c", "b@c at %2Ftmp", "me@%2Ftmp/b@c"),
        ("postgresql://app:secret@?host=h", "app at h", "app:***@?host=h"),
        ("postgresql://", " at localhost", "postgresql://"),
    ],
)
def test_a_url_is_taken_apart_as_libpq_does(url: str, place: str, shown: str) -> None:
    server = Server(url)
    assert server.place == place
    assert server.shown.endswith(shown)
    assert "secret" not in f"{server.shown} {server.said(Exception(url))}"


def test_the_expressions_and_what_no_column_holds() -> None:
    sink = sm.PostgresSink(URL, "orders")
    schema = tuple(
        Column(f"c{i}", type_)
        for i, type_ in enumerate(
            ["string", "array<int>", "array<decimal(3,1)>", "array<array<int>>", "map<int,int>",
             "struct<a:int>", "array<struct<a:int>>", "decimal(38,2)", "timestamp_ntz"]
        )
    )  # fmt: skip
    expressions = sink.select_expressions(schema)
    as_json = [i for i, text in enumerate(expressions) if text.startswith("to_json(")]
    assert as_json == [3, 4, 5, 6]
    with pytest.raises(ConfigurationError, match="interval"):
        sink.select_expressions((Column("d", "interval day"),))
    keyed = sm.PostgresSink(URL, "orders", "upsert", keys=["id"])
    with pytest.raises(ConfigurationError, match=r"key column 'id' is not in .*which has c0"):
        keyed.select_expressions(schema[:1])


def of(job: str, uid: str) -> SinkContext:
    return SinkContext(job, "etl", uid, 3, 1.0)


def test_a_gid_names_its_attempt_and_fits() -> None:
    long = WriterContext("j" * 128, "s" * 128, 10**9, 10**12, 10**6, 2**63, 0)
    for context in (long, WriterContext("job", "out", 3, 7, 0, 1, 6)):
        text = gid(context, f"x{2**64 - 1}")
        assert len(text.encode()) <= 199  # the most of a gid
        found = from_gid(text, of(context.job_id, context.sink_uid))
        assert found is not None
        assert (found.handle, found.xid) == (text, 2**64 - 1)
        assert (found.generation, found.epoch) == (context.generation, context.epoch)
        assert from_gid(text, of(context.job_id, context.sink_uid[:-1])) is None
        assert from_gid(text + ":x", of(context.job_id, context.sink_uid)) is None
    assert from_gid("somebody's own", of("job", "out")) is None


def test_a_committable_that_means_nothing_is_refused() -> None:
    sink = sm.PostgresSink(URL, "orders")
    whole = from_gid(gid(WriterContext("job", "out", 3, 7, 0, 1, 6), "x5"), of("job", "out"))
    assert whole is not None
    assert sink.load(sink.dump(whole)) == whole
    object.__setattr__(whole, "xid", 0)
    with pytest.raises(CorruptRecordError, match="neither a prepared transaction nor a stage"):
        sink.load(sink.dump(whole))


def test_a_batch_of_empty_arrays_is_sent() -> None:
    for name, kind in (("int8", pa.int64()), ("bool", pa.bool_()), ("numeric", pa.decimal128(9))):
        array = ColumnType(f"_{name}", 1, f"{name}[]", element=ColumnType(name, 20, name))
        batch = pa.record_batch({"a": pa.array([[], None], pa.list_(kind))})
        empty, null = bytes(8) + (20).to_bytes(4, "big"), b"\xff" * 4
        sent = bytes(copy_format.rows(batch, [array]))
        assert sent == b"\0\1" + (12).to_bytes(4, "big") + empty + b"\0\1" + null


def test_a_password_with_a_plus_is_hidden() -> None:
    server = Server("postgresql://h/db?password=a+b%20c")
    assert "a+b c" not in server.said(ValueError("a+b c"))
    assert server.shown == "postgresql://h/db?password=***"


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("<a>é</a>", True),
        ('<?xml version="1.0"?><a encoding="x">é</a>', True),
        ('<?xml version="1.0" encoding="UTF-8"?><a>é</a>', True),
        ("<?xml version='1.0' encoding = 'utf8' standalone='yes'?><a/>", True),
        ('<?xml version="1.0" encoding="ISO-8859-1"?><a>é</a>', False),
        ("<?xml version='1.0'\nencoding='utf-16'?><a/>", False),
        (None, True),
    ],
)
def test_an_xml_text_is_utf8_by_its_own_words(text: str | None, taken: bool) -> None:
    """The server would read others by those: é becomes Ã©. Most test servers lack XML."""
    batch = pa.record_batch({"x": pa.array([None, text], pa.string())})
    with contextlib.nullcontext() if taken else pytest.raises(ValueError, match="encoding"):
        copy_format.rows(batch, [ColumnType("xml", 142, "xml")])
