"""`format("seamark")` under kill -9 of its whole process tree: classic Spark, Spark Connect and
declarative pipelines. Each run but the last dies at a named point of the protocol, each in another
batch; a reader of the sink then sees each row once.

The Connect server is a process beside the program's (`beside_connect.py`), on a free port. That of
the example, as a user runs it, has port 15002.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import REPOSITORY, Driver, wait_until
from tests.servers.http_endpoint import http_endpoint
from tests.servers.postgres import PostgresServer

APP = REPOSITORY / "tests/chaos/app_data_source.py"
SERVER = REPOSITORY / "tests/chaos/beside_connect.py"
EXAMPLE = REPOSITORY / "examples/pipeline"
FILES, ROWS = 12, 50
POINTS = (
    "batch-begun:2", "batch-flushed:2", "batch-called:2", "batch-decided:2", "batch-committed:2",
    "batch-marked:2", "batch-settled", "batch-swept",
)  # fmt: skip
"""The nth time in its process: `batch-settled` and `batch-swept` come once in a run."""
FEW = ("batch-flushed:2", "batch-decided:2")
IDS = list(range(FILES * ROWS))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        lines = [
            json.dumps({"id": file * ROWS + row, "name": f"n{row % 7}"}) for row in range(ROWS)
        ]
        (tmp_path / "in" / f"{file:02d}.json").write_text("\n".join(lines) + "\n")
    return tmp_path


class Query:
    """The runs of one query, one after another."""

    def __init__(self, directory: Path, *, connect: bool = False, **given: Any) -> None:
        self.directory = directory
        self.given = {"directory": str(directory), **given}
        self.launcher = [sys.executable]
        if connect:
            self.launcher += [str(SERVER), sys.executable]
        self.program = APP
        self.location = directory / "checkpoint/seamark"
        self.runs = 0

    def start(self, failpoint: str | None = None) -> Driver:
        self.runs += 1
        log = self.directory / f"run-{self.runs}.log"
        environment = {"PYSPARK_PYTHON": sys.executable}
        return Driver(self.program, self.given, log, failpoint, environment, self.launcher)

    def die_at(self, points: Sequence[str]) -> None:
        for point in points:
            driver = self.start(f"{point}@stop")
            wait_until(
                f"stopped at {point}",
                lambda driver=driver: driver.is_stopped or driver.returncode is not None,
                120,
            )
            assert driver.returncode is None, f"{point}: ended\n{driver.tail()}"
            driver.kill_tree()

    def finish(self) -> str:
        driver = self.start()
        code = driver.wait(180)
        driver.kill_tree()
        assert code == 0, driver.text()[-4000:]
        return driver.text()


def require_once(ids: Sequence[int]) -> None:
    counted = Counter(ids)
    lost = [i for i in IDS if i not in counted]
    doubled = {i: n for i, n in counted.items() if n > 1}
    assert not lost and not doubled, f"lost {lost[:5]} of {len(lost)}, doubled {doubled}"
    assert len(counted) == len(IDS)


def in_sqlite(path: Path) -> list[int]:
    with sqlite3.connect(path) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM t")]


@pytest.mark.parametrize("connect", [False, True], ids=["classic", "connect"])
@pytest.mark.parametrize(
    "points", [FEW, pytest.param(POINTS, marks=pytest.mark.chaos)], ids=["few", "all"]
)
def test_sqlite(directory: Path, connect: bool, points: Sequence[str]) -> None:
    database = directory / "t.db"
    options = {"sink": "sqlite", "path": str(database), "table": "t"}
    query = Query(directory, options=options, connect=connect)
    query.die_at(points)
    query.finish()
    require_once(in_sqlite(database))


@pytest.mark.parametrize(
    "connect", [False, pytest.param(True, marks=pytest.mark.chaos)], ids=["classic", "connect"]
)
def test_a_location_is_deleted_while_a_run_sleeps_in_its_commit(
    directory: Path, connect: bool
) -> None:
    """The next query has begun its first batch in it when the run wakes up."""
    database = directory / "t.db"
    options = {"sink": "sqlite", "path": str(database), "table": "t"}
    query = Query(directory, options=options, connect=connect)
    sleeper = query.start("batch-called@stop")
    wait_until("it sleeps", lambda: sleeper.is_stopped or sleeper.returncode is not None, 120)
    shutil.rmtree(directory / "checkpoint")
    first = directory / "in/00.json"
    first.write_text(first.read_text().replace('"id": ', '"id": 1000'))
    successor = query.start("batch-flushed@stop")
    wait_until("it is in its batch", lambda: successor.is_stopped or successor.returncode, 120)
    assert sleeper.returncode is successor.returncode is None, sleeper.tail() + successor.tail()
    sleeper.thaw()
    assert sleeper.wait(120) != 0
    sleeper.kill_tree()
    assert "the location was deleted while this run" in sleeper.text()
    successor.thaw()
    assert successor.wait(180) == 0, successor.tail()
    successor.kill_tree()
    changed = [int(f"1000{number}") for number in range(ROWS)]
    assert Counter(in_sqlite(database)) == Counter(changed + IDS[ROWS:])


@pytest.mark.parametrize(
    "connect", [False, pytest.param(True, marks=pytest.mark.chaos)], ids=["classic", "connect"]
)
def test_the_location_before_after_a_kill(directory: Path, connect: bool) -> None:
    """The batch in which the query died is decided in the location that it had last. The refusal
    is a line, without a traceback of the worker."""
    database = directory / "t.db"
    options = {"sink": "sqlite", "path": str(database), "table": "t"}
    query = Query(directory, options=options, connect=connect)
    query.die_at(["batch-called:2"])
    query.given["options"] = {**options, "location": str(directory / "new"), "adopt": "true"}
    query.die_at(["batch-committed"])
    query.given["options"] = options
    driver = query.start()
    assert driver.wait(180) != 0
    driver.kill_tree()
    said = driver.text()
    wanted = f"batch 1, which Spark runs, is decided in the location {directory}/new, which the"
    assert re.search(rf"\[PYTHON_DATA_SOURCE_ERROR\].*Error: {wanted}", said, re.MULTILINE), said
    assert "/datasource/" not in said
    assert len(in_sqlite(database)) == 2 * ROWS
    query.given["options"] = {**options, "location": str(directory / "new")}
    query.finish()
    require_once(in_sqlite(database))


@pytest.mark.parametrize(
    ("connect", "points"),
    [
        pytest.param(False, (*POINTS, "end-transaction-sent:2"), marks=pytest.mark.chaos),
        pytest.param(True, ("batch-flushed:2", "end-transaction-sent"), marks=pytest.mark.chaos),
    ],
    ids=["classic", "connect"],
)
def test_kafka(
    kafka: LocalKafka, topic: Any, directory: Path, connect: bool, points: Sequence[str]
) -> None:
    name = topic(2)
    options = {
        "sink": "kafka",
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": name,
    }
    select = ["CAST(id AS STRING) AS key", "name AS value"]
    query = Query(directory, options=options, connect=connect, select=select)
    query.die_at(points)
    query.finish()
    found, held_up = read_committed(kafka, name, 2)
    require_once(found)
    assert not held_up


def read_committed(
    kafka: LocalKafka, topic: str, partitions: int
) -> tuple[list[int], Mapping[int, int]]:
    """Return the keys that a read_committed reader sees, and of each partition the records that it
    cannot see yet, as an open transaction is before them."""
    from confluent_kafka import Consumer, IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    places = [TopicPartition(topic, number) for number in range(partitions)]
    ends = {}
    for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        asked = admin.list_offsets(
            {place: OffsetSpec.latest() for place in places}, isolation_level=level
        )
        ends[level] = {place.partition: told.result(30).offset for place, told in asked.items()}
    stable = ends[IsolationLevel.READ_COMMITTED]
    held_up = {n: end - stable[n] for n, end in ends[IsolationLevel.READ_UNCOMMITTED].items()}
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ended = [], set()
    while len(ended) < partitions:
        message = consumer.poll(30)
        assert message is not None, "the broker does not answer"
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found.append(int(message.key()))
    consumer.close()
    return found, {n: rows for n, rows in held_up.items() if rows}


@pytest.mark.chaos
def test_http(directory: Path) -> None:
    """A batch whose requests nobody has recorded is sent again, with the same keys: each row is
    there once, as the endpoint keeps them."""
    with http_endpoint(directory) as endpoint:
        options = {
            "sink": "http", "url": f"{endpoint.url}/rows?keep", "idempotent": "true",
            "selected": "true",
        }  # fmt: skip
        select = ["to_json(named_struct('number', id)) AS value"]
        query = Query(directory, options=options, select=select)
        query.die_at(("batch-flushed:2", "rows-sent:2", "sent-recorded", "batch-committed:2"))
        query.finish()
        require_once(endpoint.rows())
        keys = Counter(headers["Idempotency-Key"] for _, headers in endpoint.ask("/requests"))
    assert sorted(keys.values()) == [1] * (FILES - 1) + [2]  # `rows-sent` alone


@pytest.mark.parametrize(
    "points", [FEW[1:], pytest.param(POINTS, marks=pytest.mark.chaos)], ids=["few", "all"]
)
def test_postgres_in_a_pipeline(
    postgres: PostgresServer, directory: Path, points: Sequence[str]
) -> None:
    """The pipeline of `examples/pipeline`, with another sink."""
    import psycopg

    table = "orders_of_a_pipeline"
    options = {
        "sink": "postgres", "url": postgres.url(), "table": table, "mode": "staged",
        "create_table": "true",
    }  # fmt: skip
    query = pipeline(directory, options)
    with psycopg.connect(postgres.url()) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    query.die_at(points)
    query.finish()
    with psycopg.connect(postgres.url()) as connection:
        found = connection.execute(f"SELECT id FROM {table}").fetchall()
    require_once([row[0] for row in found])


@pytest.mark.chaos
def test_the_example_of_a_pipeline(directory: Path) -> None:
    query = pipeline(directory)
    query.die_at(("batch-committed:3",))
    query.finish()
    with sqlite3.connect(directory / "orders.db") as connection:
        require_once([row[0] for row in connection.execute("SELECT id FROM orders")])


def pipeline(
    directory: Path, options: Mapping[str, str] | None = None, select: Sequence[str] = ("*",)
) -> Query:
    """Return the runs of the example in `directory`; `options` are those of another sink, of the
    expressions `select`, with a server beside it."""
    shutil.copytree(EXAMPLE / "definitions", directory / "definitions")
    spec = (EXAMPLE / "spark-pipeline.yml").read_text()
    spec = spec.replace("file:///tmp/orders-pipeline", f"file://{directory}/storage")
    (directory / "spark-pipeline.yml").write_text(spec)
    query = Query(directory, connect=options is not None)
    query.location = directory / "storage/_checkpoints/orders/orders_from_files/0/seamark"
    command = str(Path(sys.executable).with_name("spark-pipelines"))
    where = "[]"
    if options is not None:
        flow = directory / "definitions/orders.py"
        text = re.sub(r"\{\"sink\".*?\}", lambda _: repr(dict(options)), flow.read_text())
        assert repr(dict(options)) in text
        rows = 'reader.json(str(HERE / "in"))'
        assert rows in text
        text = text.replace(rows, f"{rows}.repartition(2).selectExpr(*{list(select)!r})")
        flow.write_text(text)
        where = "['--remote', os.environ['SPARK_REMOTE']]"
    words = f"[{command!r}, *{where}, 'run', '--spec', sys.argv[1]]"
    run = f"import os, sys; os.execv({command!r}, {words})"
    query.launcher += ["-c", run]
    query.program = directory / "spark-pipeline.yml"
    return query
