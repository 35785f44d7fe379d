"""``make chaos``: jobs with checkpoints on HDFS, on S3 and on a server with Google's interface,
killed as in `test_matrix.py`.

One at every failpoint of the driver's, with files as input and SQLite and Parquet as sinks. A job
with rows in the checkpoint, at the points of its sinks: a write-ahead sink, and PostgreSQL with a
spool, its decided transactions rolled back by somebody else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark.files import HadoopSettings, open_directory
from tests.chaos import checker
from tests.chaos.matrix import PROTOCOL_POINTS, RATE
from tests.chaos.outputs import PostgresOutput, SentOutput
from tests.chaos.scenario import EmbeddedScenario, Scenario, SinksScenario
from tests.chaos.test_matrix import kill_at_each
from tests.servers.gcs import GcsServer
from tests.servers.postgres import PostgresServer
from tests.storage_servers import spark_configuration

KEEPING_POINTS = [
    "pre-committed", "prepared", "decided", "rows-sent", "sent-recorded", "prepared-committed",
    "sink-committed", "committed", "recovery-committed", "sink-aborted", "recovered",
]  # fmt: skip
KEEPING_WRITER_POINTS = ["write-ahead-written", "spool-written", "transaction-prepared"]


def below(server: Any, name: str) -> str:
    """Return the URI of a directory on HDFS, or in the bucket."""
    if not hasattr(server, "bucket"):
        return f"{server.uri}/{name}"
    return f"{'gs' if isinstance(server, GcsServer) else 's3a'}://{server.bucket}/{name}"


def let_reach(scenario: Scenario, server: Any) -> None:
    """Let the scenario's drivers find the server of the bucket."""
    if hasattr(server, "bucket"):
        scenario.environment = spark_configuration(scenario.directory / "conf", server)


def finish(scenario: Scenario) -> None:
    last = scenario.start()
    last.wait_for_epochs(2, 120)
    scenario.drain(last, 300)
    last.stop()
    checker.require_none(scenario.check())


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("store", ["hdfs", "s3", "gcs"])
def test_every_failpoint(
    store: str, nth: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(store)
    storage = below(server, f"matrix-{nth}-{tmp_path.name}")
    with EmbeddedScenario(tmp_path, storage=storage) as scenario:
        let_reach(scenario, server)
        kill_at_each(scenario, PROTOCOL_POINTS, nth)
        finish(scenario)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", ["hdfs", "s3"])
def test_rows_that_are_kept_in_the_checkpoint(
    store: str, chaos_postgres: PostgresServer, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(store)
    storage = below(server, f"kept-{tmp_path.name}")
    spooled = PostgresOutput(chaos_postgres, "prepared", spool=True)
    outputs = [SentOutput(tmp_path), spooled]
    with SinksScenario(tmp_path, outputs, rate=RATE, storage=storage) as scenario:
        let_reach(scenario, server)
        kill_at_each(scenario, KEEPING_POINTS, 1, KEEPING_WRITER_POINTS)
        scenario.die_at("decided")
        decided = spooled.left_open()
        assert decided, "no transaction is left to be lost"
        for transaction in decided:
            chaos_postgres.execute(f"ROLLBACK PREPARED '{transaction}'")
        for point in ("rewrite-prepared", "rewrite-recorded", "rewrite-committed"):
            scenario.die_at(point)
        finish(scenario)
        assert [output.left_open() for output in outputs] == [[], []]
        settings = server.spark_settings() if hasattr(server, "bucket") else {}
        wal = open_directory(f"{storage}/sinks/wal", HadoopSettings.given(settings, "the storage"))
        epochs = {int(path.split("/")[1]) for path in wal.tree()}
        assert len(epochs) <= 2, "rows of committed epochs are still kept"
