"""Counts of Kafka's windows into Iceberg, Delta and DuckDB in one job, killed at each failpoint on
the way, while the catalog's server dies too, another program writes, and others compact.

A row stands in each table once, as in the batch run. DuckDB's file is read at the end alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos import checker
from tests.chaos.matrix import PROTOCOL_POINTS, delta, iceberg, sql
from tests.chaos.outputs import DeltaOutput, DuckDBOutput, IcebergOutput
from tests.chaos.scenario import SinksScenario
from tests.chaos.test_matrix import kill_at_each
from tests.integration.iceberg.others import Others
from tests.integration.jobs.test_file_sizes import Compactor
from tests.servers.iceberg_rest import IcebergRest

FEW = ["prepared:2", "iceberg-committed:2", "delta-committed:2", "ledger-committed:1"]
AWAY_S = 3.0


class LakehouseScenario(SinksScenario):
    def expected(self) -> int:
        return 2 * len(self._rows()["counts"])

    def visible(self) -> int:
        return sum(out.count() for out in self.outputs if not isinstance(out, DuckDBOutput))


@pytest.fixture
def catalog() -> Iterator[IcebergRest]:
    with IcebergRest() as server:
        yield server


def run(
    directory: Path, kafka: LocalKafka, server: IcebergRest, kill: Callable[[SinksScenario], None]
) -> None:
    tables = IcebergOutput(directory, "counts", ["bucket(2, key)"], catalog=server.catalog)
    deltas = DeltaOutput(directory, "counts")
    outputs = [tables, deltas, DuckDBOutput(directory, "counts")]
    others = Others(tables.catalog, "shop.clicks")
    compactor = Compactor(deltas.arguments["path"])
    with LakehouseScenario(directory, outputs, servers=kafka.bootstrap_servers) as scenario:
        with others, compactor:
            kill(scenario)
            last = scenario.start()
            last.wait_for_epochs(3, 300)
            server.kill()
            time.sleep(AWAY_S)
            server.restart()
            last.wait_for_epochs(len(last.epochs()) + 3, 300)
        others.leave()
        scenario.drain(last, 300)
        last.stop()
        assert others.compactions and compactor.removed
        checker.require_none(scenario.check())
        scenario.require_settled()


@pytest.mark.timeout(900)
def test_killed_in_each_sinks_commit(
    kafka: LocalKafka, tmp_path: Path, catalog: IcebergRest
) -> None:
    run(tmp_path, kafka, catalog, lambda scenario: scenario.die_at_each(FEW).kill_tree())


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nth", [1, 2])
def test_killed_at_every_failpoint(
    kafka: LocalKafka, tmp_path: Path, catalog: IcebergRest, nth: int
) -> None:
    kinds = iceberg(), delta(), sql("sqlite", "staged")  # DuckDB's failpoints are those of SqlSink
    points = [*PROTOCOL_POINTS, *(point for kind in kinds for point in kind.committer_points)]
    writers = tuple(dict.fromkeys(point for kind in kinds for point in kind.writer_points))
    run(tmp_path, kafka, catalog, lambda scenario: kill_at_each(scenario, points, nth, writers))
