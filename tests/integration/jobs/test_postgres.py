"""Files into PostgreSQL by all three ways in one job, killed between and within their commits.

One scenario as in `test_embedded.py`; then the server itself is killed with -9 under the last
driver. Each row must be in both tables exactly once, each count once, and nothing may be left open.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos import checker
from tests.chaos.driver import wait_until
from tests.chaos.outputs import Output, PostgresOutput
from tests.chaos.scenario import SinksScenario
from tests.servers.postgres import PostgresServer

POINTS = [
    "prepared-committed:2",  # one table shows a part of the epoch
    "ledger-committed:3",  # the prepared rows and one table's stages, but not the merged counts
]


def outputs(server: PostgresServer) -> list[PostgresOutput]:
    return [
        PostgresOutput(server, "prepared"),
        PostgresOutput(server, "staged"),
        PostgresOutput(server, "upsert", "counts"),
    ]


def test_killed_between_and_within_the_ways(tmp_path: Path) -> None:
    with PostgresServer() as server, SinksScenario(tmp_path, outputs(server)) as scenario:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(3)
        server.restart()
        scenario.finish(scenario.outlive(driver))
        scenario.require_settled()


def test_a_restored_job_writes_lost_rows_again_from_the_first_jobs_spool(tmp_path: Path) -> None:
    """The first job dies with a decided epoch, and the server then loses its transactions; a new
    job goes on from this epoch's checkpoint. The rows are in the first job's directory alone."""
    with PostgresServer() as server:
        output = PostgresOutput(server, "prepared", spool=True)
        with SinksScenario(tmp_path, [output]) as scenario:
            scenario.die_at("decided:3")
            lost = output.left_open()
            assert lost
            for transaction in lost:
                server.execute(f"ROLLBACK PREPARED '{transaction}'")
            epoch = max(scenario.epochs_in("spark/commits"))
            scenario.environment["SEAMARK_RESTORE"] = f"{scenario.job_directory}/epochs/{epoch}"
            heir = scenario.start(name="heir")
            scenario.feeder.close()
            rows = scenario.feeder.rows
            wait_until("the heir has caught up", lambda: output.count() >= len(rows), 120, 0.2)
            heir.stop()
            checker.require_none(scenario.check())
            assert f"of the decided epoch {epoch} is lost" in heir.text()
            assert output.left_open() == []


def change_the_mode(tmp_path: Path, output: Output) -> None:
    """Drivers die with transactions of a named mode, the next start has the default mode, and back
    again: each ends what the other has left, decided or not."""
    with SinksScenario(tmp_path, [output]) as scenario:
        mode = output.arguments.pop("mode")
        for named, point in ((True, "prepared:2"), (False, "decided:2"), (True, "decided:2")):
            if named:
                output.arguments["mode"] = mode
            else:
                output.arguments.pop("mode")
            scenario.die_at(point)
            assert output.left_open()
        output.arguments.pop("mode")
        scenario.finish(scenario.start())
        scenario.require_settled()


def test_a_start_without_the_mode_ends_the_transactions_of_a_named_one(tmp_path: Path) -> None:
    with PostgresServer() as server:
        change_the_mode(tmp_path, PostgresOutput(server, "prepared"))
