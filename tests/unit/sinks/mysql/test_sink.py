"""MySQLSink's configuration and its transactions' names, without a server."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from seamark.contracts.sink import WriterContext
from seamark.model.errors import ConfigurationError
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Column
from seamark.sinks.mysql import MySQLSink
from seamark.sinks.mysql.committable import (
    FORMAT_ID,
    from_xid,
    new_name,
    owner_of,
    parse,
    stage_prefix,
)

URL = "mysql://etl:s3cr3t%2F%40@db.example:3307/shop"


def sink(**settings: Any) -> MySQLSink:
    return MySQLSink(**{"url": URL, "table": "orders", **settings})


def test_the_url_is_taken_apart_and_the_password_is_never_shown() -> None:
    made = sink(url=f"{URL}?ssl_ca=/ca.pem&ssl_verify_identity=true")
    at = made.address
    assert (at.host, at.port, at.user, at.password, at.database) == (
        "db.example", 3307, "etl", "s3cr3t/@", "shop",
    )  # fmt: skip
    assert dict(at.options) == {"ssl_ca": "/ca.pem", "ssl_verify_identity": True}
    for text in (repr(made), str(made), made.describe(), repr(at), str(at)):
        assert "s3cr3t" not in text
    assert "db.example:3307" in made.describe()
    assert pickle.loads(pickle.dumps(made)) == made
    assert made.way is SinkWay.TWO_PHASE_COMMIT


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "postgresql://etl:s3cr3t@db/shop"},
        {"url": "mysql://etl:s3cr3t@db"},
        {"url": "mysql://:s3cr3t@db/shop"},
        {"url": "mysql://etl:s3cr3t@db:port/shop"},
        {"url": "mysql://etl:s3cr3t@db/shop?autocommit=1"},
        {"url": "mysql://etl:s3cr3t@db/shop?ssl_mode=REQUIRED"},
        {"url": "mysql://etl:s3cr3t@db/shop?ssl_ca="},
        {"url": "mysql://etl:s3cr3t@db/shop?ssl_ca=/a&ssl_verify_cert=required"},
        {"url": "mysql://etl:s3cr3t@db/shop?ssl_verify_identity=true"},
        {"url": "mysql://etl:s3cr3t@db/shop?ssl_ca=/a&ssl_key=/k"},
        {"url": 7},
        {"table": ""},
        {"table": "x" * 65},
        {"table": "_seamark_ledger"},
        {"table": "_seamark_stage_0"},
        {"mode": "two-phase"},
        {"mode": "upsert"},
        {"mode": "upsert", "keys": "id"},
        {"mode": "upsert", "keys": ["id", "ID"]},
        {"keys": ["id"]},
    ],
)
def test_wrong_settings_are_refused_without_a_secret(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sink(**wrong)
    assert "s3cr3t" not in str(caught.value)


def test_nested_columns_become_json_and_keys_must_be_there() -> None:
    schema = (Column("id", "bigint"), Column("tags", "array<string>"))
    scalar, nested = sink().select_expressions(schema)
    assert scalar == "`id`"
    assert nested.startswith("to_json(`tags`")
    with pytest.raises(ConfigurationError, match="key column 'day' is not in the DataFrame"):
        sink(mode="upsert", keys=["day"]).select_expressions(schema)


@pytest.mark.parametrize("job", ["c0ffee00" * 4, "a job / with 'quotes' and a long, long name"])
def test_the_longest_names_fit_into_an_xid_and_a_table_name(job: str) -> None:
    context = WriterContext(
        job, "s" * 300, generation=10**9 - 1, epoch=10**12 - 1, partition_id=10**7 - 1,
        attempt=10**12 - 1, settled_epoch=0,
    )  # fmt: skip
    name, again = new_name(context), new_name(context)
    assert name != again
    assert len(name.owner) <= 64
    assert len(name.branch) <= 64
    assert len(name.stage_table) <= 64
    assert name.stage_table.startswith(stage_prefix(owner_of(job, "s" * 300)))
    assert (name.generation, name.epoch) == (10**9 - 1, 10**12 - 1)
    assert parse(str(name)) == name
    data = f"{name.owner}{name.branch}".encode()
    assert from_xid(FORMAT_ID, len(name.owner), data) == name


@pytest.mark.parametrize(
    ("format_id", "length", "data"),
    [(1, 3, b"abc"), (FORMAT_ID, 1, b"\xff\x00"), (FORMAT_ID, 2, b"ab"), (FORMAT_ID, 99, b"a")],
)
def test_other_xids_are_no_names(format_id: int, length: int, data: bytes) -> None:
    assert from_xid(format_id, length, data) is None


def test_owners_of_two_jobs_and_of_two_sinks_differ() -> None:
    owners = {owner_of(job, uid) for job in ("a", "b") for uid in ("x", "y")}
    assert len(owners) == 4
