"""Whatever a setting of a sink is given, it is taken, or refused with ConfigurationError.

How: every setting of every sink is given values of every kind, one at a time.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import seamark as sm
from seamark.model.schema import Column

SINKS: dict[Callable[..., Any], dict[str, Any]] = {
    sm.KafkaSink: {"bootstrap_servers": "h:1", "topic": "t", "transactional_id_prefix": "p"},
    sm.PostgresSink: {"url": "postgresql://u:p@h/d", "table": "t"},
    sm.MySQLSink: {"url": "mysql://u:p@h/d", "table": "t"},
    sm.SqlSink: {"url": "postgresql+psycopg://u:p@h/d", "table": "t"},
    sm.SQLiteSink: {"path": "/tmp/x.db", "table": "t"},
    sm.FileSink: {"path": "/tmp/x"},
    sm.DeltaSink: {"path": "/tmp/x"},
    sm.IcebergSink: {"table": "a.b"},
    sm.RedisSink: {"url": "redis://h/0", "key": "k", "value": "v"},
    sm.WriteAheadSink.http: {"url": "http://h/"},
    sm.WriteAheadSink.spark_format: {"format": "jdbc"},
}
PARAMETERS = [
    (make, parameter)
    for make in SINKS
    for parameter in inspect.signature(make).parameters.values()
    if parameter.name not in ("_", "_schema_ids")
]
VALUES = [
    None, 5, -1, 0, 1.5, True, "", " ", "x\0y", b"b", b"", [], {}, [None], ["a", "a"], {"a": 1},
    {1: "a"}, object(), "no", float("nan"), "é" * 300, [1], ("a",), "10 parsecs",
    "http://[", "postgresql://u:s3cr3t-of-me@[::1", "mysql://h:99999/d", "redis://h:x/0",
]  # fmt: skip
SCHEMA = (Column("k", "string"), Column("v", "string"), Column("value", "string"))


@pytest.mark.parametrize(
    ("make", "parameter"), PARAMETERS, ids=[f"{m.__qualname__}-{p.name}" for m, p in PARAMETERS]
)
def test_any_value(make: Callable[..., Any], parameter: inspect.Parameter) -> None:
    for value in VALUES:
        try:
            sink = make(**{**SINKS[make], parameter.name: value})
        except sm.ConfigurationError as error:
            if "url" in parameter.name:
                assert "s3cr3t-of-me" not in str(error)
            continue
        if isinstance(parameter.default, bool):
            assert isinstance(value, bool), f"{value!r} was taken for a switch"
        assert f"{sink!r}{sink.describe()}"
        with contextlib.suppress(sm.ConfigurationError):
            sink.select_expressions(SCHEMA)
