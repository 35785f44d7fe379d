"""Files into MariaDB by all three ways in one job, killed between and within their commits.

One scenario as in `test_embedded.py`; then the server itself is killed with -9 under the last
driver. Each row must be in both tables exactly once, each count once, and nothing may be left open.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.outputs import MySQLOutput
from tests.chaos.scenario import SinksScenario
from tests.integration.jobs.test_postgres import change_the_mode
from tests.servers.mariadb import MariaDBServer
from tests.servers.needed import needed

POINTS = [
    "xa-committed:2",  # one table shows a part of the epoch
    "ledger-committed:3",  # the XA rows and one table's stages, but not the merged counts
]


def outputs(server: MariaDBServer) -> list[MySQLOutput]:
    return [
        MySQLOutput(server, "xa"),
        MySQLOutput(server, "staged"),
        MySQLOutput(server, "upsert", "counts"),
    ]


def test_killed_between_and_within_the_ways(tmp_path: Path) -> None:
    with needed("MariaDB"):
        server = MariaDBServer()
    with server, SinksScenario(tmp_path, outputs(server)) as scenario:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(3)
        server.restart()
        scenario.finish(scenario.outlive(driver))
        scenario.require_settled()


def test_a_start_without_the_mode_ends_the_transactions_of_a_named_one(tmp_path: Path) -> None:
    with needed("MariaDB"):
        server = MariaDBServer()
    with server:
        change_the_mode(tmp_path, MySQLOutput(server, "xa"))
