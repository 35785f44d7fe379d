"""Files into PostgreSQL, MariaDB and SQLite by SqlSink in one job, killed within its commits.

One scenario as in `test_embedded.py`; then MariaDB itself is killed with -9 under the last
driver. Each row must be in both tables exactly once, each count once, and nothing
may be left staged.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.outputs import sql_on_mariadb, sql_on_postgres, sql_on_sqlite
from tests.chaos.scenario import SinksScenario
from tests.servers.mariadb import MariaDBServer
from tests.servers.needed import needed
from tests.servers.postgres import PostgresServer

POINTS = ["ledger-committed:1", "ledger-committed:2"]  # one table, and two, show the epoch


def test_killed_between_the_sinks_commits(tmp_path: Path, postgres: PostgresServer) -> None:
    with needed("MariaDB"):
        server = MariaDBServer()
    with server:
        outputs = [
            sql_on_postgres(postgres, "staged"),
            sql_on_mariadb(server, "upsert", "counts"),
            sql_on_sqlite(tmp_path, "staged"),
        ]
        with SinksScenario(tmp_path, outputs) as scenario:
            driver = scenario.die_at_each(POINTS)
            driver.wait_for_epochs(3)
            server.restart()
            scenario.finish(scenario.outlive(driver))
            scenario.require_settled()
