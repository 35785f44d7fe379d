"""`format("seamark")` killed at random, twenty times a sink and engine, over two hundred thousand
rows; every fourth run is frozen instead, and wakes up when its successor has written: it may change
nothing. Where the program is not Spark's own process, in a quarter of the runs it alone dies first,
and a new one starts the query once more, at a server in which the old one may still run.

In `make chaos`; `SEED=7` repeats a run's moments, as far as processes repeat anything; `KILLS=5`
makes it shorter.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import Driver, wait_until
from tests.chaos.workload import iceberg_files_unnamed
from tests.integration.data_source.test_kills import Query, in_sqlite, pipeline, read_committed
from tests.integration.data_source.test_stores import asked
from tests.integration.mysql.conftest import serving
from tests.servers.http_endpoint import HttpEndpoint, http_endpoint
from tests.servers.needed import needed
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

FILES, ROWS = 80, 2_500
KILLS = int(os.environ.get("KILLS") or 20)
FREEZES = 4
"""Every so many runs one is frozen, and another one's program dies before its server."""
MOST_S = 6.0
"""A run's longest life after its first step. In a fifth of the runs it is the whole life: Spark
starts then."""


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
    with psycopg.connect(server.url()) as connection:
        connection.execute("DROP TABLE IF EXISTS randomly")
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


def iceberg(directory: Path, request: pytest.FixtureRequest) -> Target:
    from pyiceberg.catalog import load_catalog

    catalog = {
        "type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/w",
    }  # fmt: skip
    (directory / "w").mkdir()
    table = "shop.randomly"
    options = {f"catalog.{name}": text for name, text in catalog.items()}
    options |= {"sink": "iceberg", "table": table, "create_table": "true"}

    def read() -> list[int]:
        found = load_catalog("default", **catalog).load_table(table).scan().to_arrow()
        return list(found["id"].to_pylist())

    return Target(options, read, held_up=lambda: iceberg_files_unnamed(catalog, table))


def http(directory: Path, request: pytest.FixtureRequest) -> Target:
    """A killed query may send a batch again, by the design of a write-ahead sink: a row is doubled
    if the endpoint has it twice, though it drops each request whose key it has taken before."""
    endpoint: HttpEndpoint = request.getfixturevalue("endpoint")
    options = {"sink": "http", "url": f"{endpoint.url}/rows?keep", "idempotent": "true"}
    select = ["to_json(named_struct('number', id)) AS value"]

    def read() -> list[int]:
        keys = Counter(headers["Idempotency-Key"] for _, headers in endpoint.ask("/requests"))
        print(f"{keys.total()} requests with {len(keys)} keys")
        return endpoint.rows()

    return Target({**options, "selected": "true"}, read, select)


CLASSIC = [sqlite, kafka, postgres, mysql, redis, files, delta, iceberg, http]
PAIRS = [
    *(("classic", target) for target in CLASSIC),
    *(
        (engine, target)
        for engine in ("connect", "pipeline")
        for target in (sqlite, kafka, postgres)
    ),
]


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
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("engine", "target"), PAIRS, ids=[f"{engine}-{target.__name__}" for engine, target in PAIRS]
)
def test_killed_at_random(
    engine: str,
    target: Callable[[Path, pytest.FixtureRequest], Target],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    (tmp_path / "in").mkdir()
    for file in range(FILES - 1):
        write_rows(tmp_path, file)
    sink = target(tmp_path, request)
    if engine == "pipeline":
        query = pipeline(tmp_path, sink.options, sink.select or ["*"])
    else:
        given = {"select": list(sink.select)} if sink.select else {}
        query = Query(tmp_path, connect=engine == "connect", options=sink.options, **given)
    ended, frozen, orphaned, logs = 0, 0, 0, [0]
    for kill in range(KILLS):
        driver = query.start()
        live(driver, chance, partial(newest, query))
        if engine != "classic" and kill % FREEZES == 1:
            orphaned += kill_program(driver)
            live(driver, chance, partial(started, driver))
        ended += driver.returncode is not None
        if driver.returncode is None and kill % FREEZES == FREEZES - 1:
            frozen += 1
            sleep_through(driver, query)
        driver.kill_tree()
        logs.append(newest(query))
    write_rows(tmp_path, FILES - 1)  # only a run with rows looks for what was left open
    query.finish()
    idle = sum(after == before for before, after in itertools.pairwise(logs))
    print(
        f"{KILLS} runs killed: {idle} before their first batch, {ended} had ended before, {frozen} "
        f"were frozen, the programs of {orphaned} died before their servers; the log ends at "
        f"{newest(query)}"
    )
    counted = Counter(sink.read())
    doubled = {id_: count for id_, count in counted.items() if count > 1}
    lost = set(range(FILES * ROWS)) - counted.keys()
    assert not lost and not doubled, f"lost {len(lost)}, doubled {len(doubled)}; SEED={seed}"
    assert len(counted) == FILES * ROWS
    assert not sink.held_up()
    (tmp_path / "options").write_text("".join(f"{n}={text}\n" for n, text in sink.options.items()))
    at_sink = ("--location", str(query.location), "--options", str(tmp_path / "options"))
    assert asked("txn", "list", *at_sink) == []


def write_rows(directory: Path, file: int) -> None:
    """Write one file of the query's source, with ids of its own."""
    lines = (json.dumps({"id": file * ROWS + row, "name": f"n{row}"}) for row in range(ROWS))
    (directory / "in" / f"{file:03d}.json").write_text("\n".join(lines) + "\n")


def live(driver: Driver, chance: random.Random, steps: Callable[[], int]) -> None:
    """Wait until a moment of the run's life after another of its `steps`, or its end."""
    before, early, rest_s = steps(), chance.random() < 0.2, chance.uniform(0, MOST_S)
    wait_until("a step", lambda: early or steps() > before or driver.returncode is not None, 180)
    end = time.monotonic() + rest_s
    while time.monotonic() < end and driver.returncode is None:
        time.sleep(0.02)


def started(driver: Driver) -> int:
    """Return how many programs of this run have started the query."""
    return len(re.findall("^STARTED$|Flow .* is RUNNING", driver.text(), re.MULTILINE))


def kill_program(driver: Driver) -> bool:
    """Kill the program alone, which is started after its server; return whether it lived."""
    with contextlib.suppress(psutil.NoSuchProcess, ValueError):
        children = psutil.Process(driver.pid).children()
        _, *programs = sorted(children, key=psutil.Process.create_time)
        for process in programs:
            for one in (process, *process.children(recursive=True)):
                one.kill()
        return bool(programs)
    return False


def sleep_through(driver: Driver, query: Query) -> None:
    """Freeze a run, let the next one write, and wake the first: it ends by itself, or is killed."""
    driver.freeze()
    successor = query.start()
    before = newest(query)
    wait_until(
        "the successor has decided, or ended",
        lambda: newest(query) >= before + 4 or successor.returncode is not None,
        120,
    )
    driver.thaw()
    deadline = time.monotonic() + 20
    while driver.returncode is None and time.monotonic() < deadline:
        time.sleep(0.1)
    successor.kill_tree()


def newest(query: Query) -> int:
    entries = query.location.glob("*/log/*.json")
    return max((int(entry.stem) for entry in entries if entry.stem.isdigit()), default=0)
