"""A decided XA transaction, rolled back by an operator, is written again from the spool, once.

How: a real server, and drivers without Spark, killed by kill -9 at each new point (`spool_kit.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.integration.mysql import sink_kit as kit
from tests.integration.spool_kit import SpooledJob, lost_and_written_again
from tests.servers.mariadb import MariaDBServer


def test_a_transaction_rolled_back_by_an_operator(
    mariadb: MariaDBServer, database: str, tmp_path: Path
) -> None:
    target = kit.target_on(mariadb, database)
    lost_and_written_again(
        SpooledJob(tmp_path, replace(target.sink, spool=True)),
        kit.batch,
        target.visible,
        lambda: len(mariadb.execute("XA RECOVER")),
        lambda lost: kit.end_prepared(mariadb, f"XA ROLLBACK {lost.name.xid}"),
    )
