"""A sink says in which of Spark's output modes it has each row once: those that replace a row by
its key, and those that pass every change on. Any other must not be given a row again."""

from __future__ import annotations

from typing import Any

import pytest

import seamark as sm
from tests.unit.checkpoint.memory_sink import MemorySink

EVERY = ("append", "update", "complete")
PG, MY = "postgresql://u@h/d", "mysql://u@h/d"


class KeyedSink(MemorySink):
    """A user's sink that says so."""

    output_modes = ("append", "update")


def ignore(*_: Any) -> None: ...


@pytest.mark.parametrize(
    ("sink", "modes"),
    [
        (sm.FileSink("/d"), EVERY[:1]),
        (sm.DeltaSink("/d"), EVERY[:1]),
        (sm.IcebergSink("a.b"), EVERY[:1]),
        (sm.DeltaSink("/d", keys=["k"]), EVERY),
        (sm.IcebergSink("a.b", mode="upsert", keys=["k"]), EVERY),
        (sm.IcebergSink("a.b", keys=["k"]), EVERY),
        (sm.DeltaSink("/t", mode="append"), EVERY[:1]),
        (sm.DeltaSink("/t", mode="upsert", keys=["k"]), EVERY),
        (sm.SQLiteSink("/t.db", "t", mode="append"), EVERY[:1]),
        (sm.SQLiteSink("/t.db", "t", mode="upsert", keys=["k"]), EVERY),
        (sm.SQLiteSink("/d.db", "t"), EVERY[:1]),
        (sm.SQLiteSink("/d.db", "t", keys=["k"]), EVERY),
        (sm.PostgresSink(PG, "t"), EVERY[:1]),
        (sm.PostgresSink(PG, "t", mode="staged"), EVERY[:1]),
        (sm.PostgresSink(PG, "t", mode="upsert", keys=["k"]), EVERY),
        (sm.MySQLSink(MY, "t", mode="staged"), EVERY[:1]),
        (sm.MySQLSink(MY, "t", mode="upsert", keys=["k"]), EVERY),
        (sm.SqlSink(PG, "t"), EVERY[:1]),
        (sm.SqlSink(PG, "t", mode="upsert", keys=["k"]), EVERY),
        (sm.RedisSink("redis://h", key="k"), EVERY),
        (sm.RedisSink("redis://h", key="k", mode="staged"), EVERY),
        (sm.KafkaSink("h:1", topic="t", transactional_id_prefix="p"), EVERY),
        (sm.WriteAheadSink.foreach_batch(ignore), EVERY),
        (sm.WriteAheadSink.http("http://h"), EVERY),
        (sm.WriteAheadSink.spark_format("jdbc"), EVERY[:1]),
        (sm.WriteAheadSink.spark_format("jdbc", mode="overwrite"), EVERY[2:]),
        (sm.WriteAheadSink.spark_format("csv", {"path": "/d/{token}"}, "overwrite"), EVERY),
        (sm.WriteAheadSink.spark_format("jdbc", {"dbtable": "t_{epoch}"}, "overwrite"), EVERY),
        (sm.WriteAheadSink.spark_format("csv", {"path": "/d/{job_id}"}, "overwrite"), EVERY[2:]),
        (
            sm.WriteAheadSink.spark_format(
                "delta", {"path": "/d", "txnVersion": "{epoch}"}, "overwrite"
            ),
            EVERY[2:],
        ),
        (MemorySink(), EVERY[:1]),
        (KeyedSink(), EVERY[:2]),
        (MemorySink(way=sm.SinkWay.IDEMPOTENT), EVERY),
    ],
    ids=lambda value: value.describe() if isinstance(value, sm.TwoPhaseCommitSink) else "",
)
def test_the_modes_of_a_sink(sink: Any, modes: tuple[str, ...]) -> None:
    assert tuple(sink.output_modes) == modes
