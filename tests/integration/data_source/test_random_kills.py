"""`format("seamark")` killed at random, twenty times a sink, over two hundred thousand rows; every
fourth run is frozen instead, and wakes up when its successor has written: it may change nothing.

In `make chaos`; `SEED=7` repeats a run's moments, as far as processes repeat anything.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import Driver, wait_until
from tests.integration.data_source.test_kills import Query, in_sqlite, read_committed
from tests.integration.mysql.conftest import serving
from tests.servers.http_endpoint import HttpEndpoint, http_endpoint
from tests.servers.needed import needed
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

FILES, ROWS = 80, 2_500
KILLS = 20
FREEZES = 4
"""Every so many runs one is frozen."""
MOST_S = 14.0
"""A run's longest life: some six seconds of it are Spark's start."""


@dataclass(frozen=True)
class Target:
    """A sink: the writer's options, the rows' expressions, and who reads its ids back. `held_up`:
    what its readers still wait for, at the end."""

    options: dict[str, str]
    read: Callable[[], Sequence[int]]
    select: Sequence[str] | None = None
    held_up: Callable[[], Any] = lambda: None


def sqlite(directory: Path, request: pytest.FixtureRequest) -> Target:
    path = directory / "t.db"
    options = {"sink": "sqlite", "path": str(path), "table": "t"}
    return Target(options, lambda: in_sqlite(path))


def kafka(directory: Path, request: pytest.FixtureRequest) -> Target:
    broker: LocalKafka = request.getfixturevalue("kafka")
    name = request.getfixturevalue("topic")(2)
    options = {"sink": "kafka", "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": name}
    select = ["CAST(id AS STRING) AS key", "name AS value"]
    return Target(
        options,
        lambda: read_committed(broker, name, 2)[0],
        select,
        lambda: read_committed(broker, name, 2)[1],
    )


def postgres(directory: Path, request: pytest.FixtureRequest) -> Target:
    import psycopg

    server: PostgresServer = request.getfixturevalue("postgres")
    options = {"sink": "postgres", "url": server.url(), "table": "randomly", "create_table": "true"}

    def read() -> list[int]:
        with psycopg.connect(server.url()) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM randomly").fetchall()]

    return Target(options, read)


def mysql(directory: Path, request: pytest.FixtureRequest) -> Target:
    server = request.getfixturevalue("mariadb_server")
    server.execute("DROP TABLE IF EXISTS randomly")
    url = server.url()
    options = {"sink": "mysql", "url": url, "table": "randomly", "create_table": "true"}
    return Target(options, lambda: [row[0] for row in server.execute("SELECT id FROM randomly")])


def redis(directory: Path, request: pytest.FixtureRequest) -> Target:
    server: RedisServer = request.getfixturevalue("redis_server")
    options = {"sink": "redis", "url": server.url(), "key": "id", "value": "name", "mode": "staged"}
    options["key_prefix"] = "r:"
    return Target(options, lambda: [int(key[2:]) for key in server.client().scan_iter("r:*")])


def files(directory: Path, request: pytest.FixtureRequest) -> Target:
    import pyarrow.dataset as dataset

    options = {"sink": "files", "path": f"{directory}/out", "format": "parquet"}
    return Target(
        options,
        lambda: dataset.dataset(f"{directory}/out").to_table(columns=["id"])["id"].to_pylist(),
    )


def delta(directory: Path, request: pytest.FixtureRequest) -> Target:
    from deltalake import DeltaTable

    options = {"sink": "delta", "path": f"{directory}/delta", "create_table": "true"}
    return Target(
        options,
        lambda: DeltaTable(f"{directory}/delta").to_pyarrow_table(columns=["id"])["id"].to_pylist(),
    )


def http(directory: Path, request: pytest.FixtureRequest) -> Target:
    endpoint: HttpEndpoint = request.getfixturevalue("endpoint")
    options = {"sink": "http", "url": f"{endpoint.url}/rows?keep", "idempotent": "true"}
    return Target(options, endpoint.rows, ["id AS number"])


SINKS = [sqlite, kafka, postgres, mysql, redis, files, delta, http]


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[Any]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with needed("Redis"):
        server = RedisServer()
    with server:
        yield server


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[HttpEndpoint]:
    with http_endpoint(tmp_path) as serving_rows:
        yield serving_rows


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", SINKS, ids=lambda target: target.__name__)
def test_killed_at_random(
    target: Callable[[Path, pytest.FixtureRequest], Target],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        lines = (json.dumps({"id": file * ROWS + row, "name": f"n{row}"}) for row in range(ROWS))
        (tmp_path / "in" / f"{file:03d}.json").write_text("\n".join(lines) + "\n")
    sink = target(tmp_path, request)
    query = Query(tmp_path, options=sink.options)
    if sink.select:
        query.given["select"] = list(sink.select)
    ended, frozen = 0, 0
    for kill in range(KILLS):
        driver = query.start()
        end = time.monotonic() + chance.uniform(0, MOST_S)
        while time.monotonic() < end and driver.returncode is None:
            time.sleep(0.02)
        ended += driver.returncode is not None
        if driver.returncode is None and kill % FREEZES == FREEZES - 1:
            frozen += 1
            sleep_through(driver, query)
        driver.kill_tree()
    query.finish()
    print(f"{KILLS} runs killed, {ended} had ended before, {frozen} were frozen")
    counted = Counter(sink.read())
    doubled = {id_: count for id_, count in counted.items() if count > 1}
    lost = set(range(FILES * ROWS)) - counted.keys()
    assert not lost and not doubled, f"lost {len(lost)}, doubled {len(doubled)}; SEED={seed}"
    assert len(counted) == FILES * ROWS
    assert not sink.held_up()


def sleep_through(driver: Driver, query: Query) -> None:
    """Freeze a run, let the next one write, and wake the first: it ends by itself, or is killed."""
    for process in driver.tree():
        process.send_signal(signal.SIGSTOP)
    successor = query.start()
    log = query.directory / "checkpoint/seamark/log"
    before = newest(log)
    wait_until(
        "the successor has decided, or ended",
        lambda: newest(log) >= before + 4 or successor.returncode is not None,
        120,
    )
    for process in driver.tree():
        process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 20
    while driver.returncode is None and time.monotonic() < deadline:
        time.sleep(0.1)
    successor.kill_tree()


def newest(log: Path) -> int:
    return max((int(entry.stem) for entry in log.glob("*.json") if entry.stem.isdigit()), default=0)
