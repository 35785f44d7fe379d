"""A batch that takes longer than its sink's system keeps a transaction open: it is not decided, so
it can be written again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import seamark as sm
from seamark.datasource import writers
from seamark.model.errors import SeamarkError
from tests.unit.datasource.played import IDS, Query
from tests.unit.datasource.test_deleted import in_sqlite

LIMIT_S = 1000.0


@dataclass(frozen=True)
class Dropping(sm.SQLiteSink):
    """Drops what is open for so long."""

    @property
    def transaction_timeout_s(self) -> float:
        return LIMIT_S


def written(query: Query, since_s: float) -> Callable[[], None]:
    """Run a batch of two tasks, of which one has begun so long ago; return its commit."""
    writer = query.plan(IDS)
    told = [query.write(writer, 0, row) for row in (1, 2)]
    told[0] = replace(told[0], opened_at=told[0].opened_at - since_s)
    return lambda: writers.BatchCommit(query.committing()).commit(told, 0)


def test_it_is_not_decided_and_runs_again(tmp_path: Path) -> None:
    query = Query(
        sink=f"{__name__}:Dropping", path=f"{tmp_path}/t.db", table="t",
        checkpointlocation=f"{tmp_path}/checkpoint",
    )  # fmt: skip
    commit = written(query, 0.95 * LIMIT_S)
    with pytest.raises(SeamarkError, match="transaction_timeout, 1000 s; nothing is decided") as e:
        commit()
    assert "\n" not in str(e.value)
    assert in_sqlite(tmp_path) == []
    written(query, LIMIT_S / 2)()
    assert in_sqlite(tmp_path) == [1, 2]
    query.end_spark()


def test_a_sink_without_a_time_out_takes_its_time(tmp_path: Path) -> None:
    query = Query(
        sink="sqlite", path=f"{tmp_path}/t.db", table="t",
        checkpointlocation=f"{tmp_path}/checkpoint",
    )  # fmt: skip
    written(query, 10 * LIMIT_S)()
    assert in_sqlite(tmp_path) == [1, 2]
    query.end_spark()


def test_no_checkpoint_s_timeout_is_asked_for(tmp_path: Path) -> None:
    """A data source has none; that of a job's default would refuse a minute."""
    query = Query(
        sink="kafka", topic="t", transaction_timeout="1min",
        checkpointlocation=f"{tmp_path}/checkpoint", **{"kafka.bootstrap.servers": "127.0.0.1:1"},
    )  # fmt: skip
    with pytest.raises(SeamarkError) as error:
        query.plan(IDS)
    assert "KF004" not in str(error.value)
