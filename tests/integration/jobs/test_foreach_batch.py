"""`foreach_batch`, killed by kill -9 between the function's return and its record: the ways of
docs/how-to/write-once-by-foreach-batch.md, each counted in its target.

Three files make three epochs. Two drivers die: one in its second epoch, one in its recovery, after
the function has returned again for the same token.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seamark.spark.jars import Request, resolve
from tests.chaos.driver import Driver
from tests.chaos.scenario import HERE
from tests.integration.delta.test_sink_spark import delta_jars
from tests.servers.needed import needed
from tests.servers.postgres import PostgresServer

EPOCHS = [list(range(n, n + 5)) for n in (0, 5, 10)]
NUMBERS = [number for epoch in EPOCHS for number in epoch]
PROGRAM = HERE / "app_foreach_batch.py"


@pytest.fixture
def options(tmp_path: Path, postgres: PostgresServer) -> Iterator[dict[str, Any]]:
    (tmp_path / "in").mkdir()
    for number, numbers in enumerate(EPOCHS):
        file = tmp_path / f"in/{number}.json"
        file.write_text("\n".join(json.dumps({"number": n}) for n in numbers))
        os.utime(file, (1_700_000_000 + number,) * 2)  # the oldest is read first
    postgres.execute("CREATE TABLE target (number bigint)")
    postgres.execute("CREATE TABLE tokens (token text PRIMARY KEY)")
    yield {"storage": str(tmp_path / "store"), "input": str(tmp_path / "in"), "url": postgres.url()}
    for table in ("target", "tokens", "stage"):
        postgres.execute(f"DROP TABLE IF EXISTS {table}")


def killed_twice(options: dict[str, Any], directory: Path) -> None:
    """Let two drivers die between the function's return and its record, and a third one end."""
    for number, failpoint in enumerate(("rows-sent:2", "rows-sent:1", None)):
        driver = Driver(PROGRAM, options, directory / f"{number}.log", failpoint)
        if failpoint is not None:
            driver.die()
            continue
        assert driver.wait(240) == 0, driver.tail()
        driver.kill_tree()


def times(postgres: PostgresServer) -> Counter[int]:
    return Counter(number for (number,) in postgres.execute("SELECT number FROM target"))


def test_a_function_that_keeps_the_token_counts_each_row_once(
    options: dict[str, Any], tmp_path: Path, postgres: PostgresServer
) -> None:
    killed_twice({**options, "way": "with_token"}, tmp_path)
    assert times(postgres) == Counter(NUMBERS)
    assert postgres.execute("SELECT count(*) FROM tokens") == [(3,)]


def test_without_the_token_the_killed_epoch_is_there_again(
    options: dict[str, Any], tmp_path: Path, postgres: PostgresServer
) -> None:
    """Nothing is lost, and no epoch but the one under way at a kill is doubled."""
    killed_twice({**options, "way": "without_token"}, tmp_path)
    assert times(postgres) == Counter([*NUMBERS, *EPOCHS[1], *EPOCHS[1]])


def test_sparks_jdbc_writer_with_a_stage_and_the_token(
    options: dict[str, Any], tmp_path: Path, postgres: PostgresServer
) -> None:
    server = postgres.url().removeprefix("postgresql://")
    login, _, place = server.rpartition("@")
    user, _, password = login.partition(":")
    with needed("PostgreSQL's JDBC driver"):
        (driver,) = resolve(
            "postgresql-jdbc",
            Request(("org.postgresql:postgresql:42.7.8",), transitive=False),
            Request(("org.postgresql:postgresql:42.7.4",), transitive=False),
        )
    properties = {"user": user, "password": password, "driver": "org.postgresql.Driver"}
    more = {"jdbc": f"jdbc:postgresql://{place}", "login": properties}
    killed_twice(
        {**options, **more, "way": "by_jdbc", "spark": {"spark.jars": str(driver)}}, tmp_path
    )
    assert times(postgres) == Counter(NUMBERS)


def test_deltas_merge_takes_each_epoch_once(options: dict[str, Any], tmp_path: Path) -> None:
    """A MERGE that adds up would count a repeated epoch again; Delta knows the token's version."""
    spark = {
        "spark.jars": ",".join(map(str, delta_jars())),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    table, shown = str(tmp_path / "table"), tmp_path / "shown.json"
    more = {"way": "by_merge", "spark": spark, "table": table, "shown": str(shown)}
    killed_twice({**options, **more}, tmp_path)
    assert json.loads(shown.read_text()) == [[key, 3] for key in range(5)]
