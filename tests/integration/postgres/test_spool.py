"""A decided transaction, rolled back by an operator, is written again from the spool, once.

How: a real server, and drivers without Spark, killed by kill -9 at each new point (`spool_kit.py`).
Without a spool the same loss stops the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seamark.model.errors import LostTransactionError
from tests.integration.postgres import sink_kit as kit
from tests.integration.spool_kit import SpooledJob, lost_and_written_again
from tests.servers.postgres import PostgresServer


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    with kit.fresh_schema(postgres) as name:
        postgres.execute(f"CREATE TABLE {name}.orders (id bigint, text text)")
        yield name


@pytest.mark.parametrize("mode", ["prepared", "staged"])
def test_a_transaction_rolled_back_by_an_operator(
    postgres: PostgresServer, schema: str, tmp_path: Path, mode: str
) -> None:
    def roll_back(transaction: Any) -> None:
        if mode == "staged":
            postgres.execute(f"DROP TABLE {schema}.{transaction.stage}")
        else:
            postgres.execute(f"ROLLBACK PREPARED '{transaction.handle}'")

    def open_transactions() -> int:
        stages = postgres.execute(
            f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' "
            "AND tablename LIKE '\\_seamark\\_stage%'"
        )
        return len(stages) + len(postgres.execute("SELECT gid FROM pg_prepared_xacts"))

    lost_and_written_again(
        SpooledJob(tmp_path, kit.sink_on(postgres, schema, mode, spool=True)),
        kit.numbers,
        lambda: kit.visible(postgres, schema),
        open_transactions,
        roll_back,
    )


def test_a_loss_that_cannot_be_mended_is_loud(
    postgres: PostgresServer, schema: str, tmp_path: Path
) -> None:
    """Without a spool; with a damaged one; and with a sink in doubt about its fate."""

    def rolled_back(directory: Path, **how: Any) -> SpooledJob:
        job = SpooledJob(directory, kit.sink_on(postgres, schema, **how))
        job.directory.mkdir()
        (lost,) = job.run_epoch(0, [kit.numbers(range(10))])
        if lost.prepared:
            postgres.execute(f"ROLLBACK PREPARED '{lost.handle}'")
        return job

    damaged = rolled_back(tmp_path / "damaged", spool=True)
    (file,) = (damaged.directory / "wal/out/0").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(LostTransactionError, match=rf"spool .*{file.name}: it has \d+ bytes"):
        damaged.driver()
    forgotten = rolled_back(tmp_path / "forgotten", mode="staged", spool=True)
    postgres.execute(f"DELETE FROM {schema}._seamark_ledger")
    with pytest.raises(LostTransactionError, match="cannot tell any more what became of them"):
        forgotten.driver()
    assert kit.visible(postgres, schema) == []
