"""A job's past run twice: a savepoint restored while its job goes on, and afterwards.

How: a job writes the rows of numbered files into Kafka, PostgreSQL (prepared and staged), SQLite,
files and a Delta table at once; jobs restored from its savepoint write into the very same places,
in epochs of the same numbers. The visible rows in each are counted one by one: every lineage has to
bring every row it has read, once. With `make chaos` MySQL, Redis and a write-ahead target have
their turn, and restored jobs are killed around their commits, while the first goes on.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import seamark as sm
from seamark.dev.kafka import LocalKafka
from seamark.model.errors import UserError
from tests.chaos.driver import Driver, wait_until
from tests.chaos.outputs import (
    DeltaOutput,
    FilesOutput,
    KafkaOutput,
    MySQLOutput,
    Output,
    PostgresOutput,
    RedisOutput,
    SentOutput,
    SQLiteOutput,
)
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.threads import RunningJob

PROGRAM = Path(__file__).parents[2] / "chaos" / "app_sinks.py"
ROWS = 20


class Files:
    """The input: `add` puts one more file of rows there: one epoch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._numbers = itertools.count()

    def add(self) -> None:
        number = next(self._numbers)
        lines = [json.dumps({"key": str(number), "value": f"{number},{i}"}) for i in range(ROWS)]
        hidden = self.directory / f".{number}.json"
        hidden.write_text("\n".join(lines))
        hidden.rename(self.directory / f"{number}.json")


@pytest.fixture
def outputs(
    kafka: LocalKafka, postgres: PostgresServer, tmp_path: Path
) -> Iterator[Sequence[Output]]:
    found = [
        KafkaOutput(kafka.bootstrap_servers),
        PostgresOutput(postgres, "prepared"),
        PostgresOutput(postgres, "staged"),
        SQLiteOutput(tmp_path),
        FilesOutput(tmp_path),
        DeltaOutput(tmp_path),
    ]
    yield found
    for output in found:
        output.close()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "in")


@pytest.fixture
def start() -> Iterator[Callable[..., RunningJob]]:
    """Start jobs; the jobs left by a failed test are stopped."""
    started: list[RunningJob] = []

    def run(job: sm.Job, **how: Any) -> RunningJob:
        started.append(RunningJob(job, **how))
        return started[-1]

    yield run
    for one in started:
        with contextlib.suppress(UserError):  # it has ended
            one.job.cancel()


def sinks(outputs: Sequence[Output]) -> list[dict[str, Any]]:
    """Return how each sink is made; Kafka's has the same prefix in each job."""
    return [
        {
            "uid": output.uid, "frame": "rows", "maker": output.maker, "dead_letters": None,
            "arguments": {
                **output.arguments,
                **(
                    {"transactional_id_prefix": output.arguments["topic"]}
                    if isinstance(output, KafkaOutput) else {}
                ),
            },
        }
        for output in outputs
    ]  # fmt: skip


def declare(home: Path, name: str, files: Files, outputs: Sequence[Output]) -> sm.Job:
    job = sm.Job(name, sm.CheckpointConfig(storage=str(home / "store"), interval="100ms"))
    source = sm.FileSource(
        str(files.directory), format="json", schema="key STRING, value STRING",
        options={"maxFilesPerTrigger": "1"},
    )  # fmt: skip
    rows = job.source(source, uid="input")
    for one in sinks(outputs):
        module, _, name = one["maker"].rpartition(":")
        maker = getattr(importlib.import_module(module or "seamark"), name)
        job.sink(rows, maker(**one["arguments"]), uid=one["uid"])
    return job


def shown(output: Output) -> dict[int, int]:
    """Return how often each file's rows are seen; every row of a file as often as the others."""
    seen = Counter(output.rows())
    by_file: dict[int, set[int]] = {}
    for row, count in seen.items():
        by_file.setdefault(int(row.key), set()).add(count)
    assert all(len(counts) == 1 for counts in by_file.values()), (output.uid, seen)
    assert len(seen) == ROWS * len(by_file), output.uid
    return {number: counts.pop() for number, counts in by_file.items()}


def require(outputs: Sequence[Output], expected: dict[int, int]) -> None:
    for output in outputs:
        assert shown(output) == expected, output.uid
        assert output.left_open() == [], output.uid


def test_every_lineage_brings_each_of_its_rows_once(
    files: Files, outputs: Sequence[Output], start: Callable[..., RunningJob], tmp_path: Path
) -> None:
    files.add()
    first = start(declare(tmp_path, "first", files, outputs))
    first.wait_for_epochs(1)
    path = first.take("savepoint", tmp_path / "savepoints")

    # The first job goes on, and both have one prefix at the broker.
    heir = start(declare(tmp_path, "heir", files, outputs), restore=path)
    for epochs in (2, 3):
        files.add()
        first.wait_for_epochs(epochs)
        heir.wait_for_epochs(epochs - 1)
    first.end()
    heir.end()
    require(outputs, {0: 1, 1: 2, 2: 2})

    # Both have gone further; from the savepoint on it is done once more, with
    # one sink less, and another for the rows from now on.
    (removed,) = (output for output in outputs if isinstance(output, SQLiteOutput))
    kept = [output for output in outputs if output is not removed]
    added = FilesOutput(tmp_path / "added")
    added.uid = "added"
    third = start(declare(tmp_path, "third", files, [added, *kept]), restore=path)
    third.wait_for_epochs(2)
    third.end()
    require(kept, {0: 1, 1: 3, 2: 3})
    require([removed], {0: 1, 1: 2, 2: 2})
    require([added], {1: 1, 2: 1})
    # And each of them goes on by itself, from where it was.
    files.add()
    again = start(declare(tmp_path, "heir", files, outputs), restore=path)
    again.wait_for_epochs(3)
    again.end()
    require(kept, {0: 1, 1: 3, 2: 3, 3: 1})
    require([removed], {0: 1, 1: 2, 2: 2, 3: 1})


@pytest.mark.chaos
def test_lineages_in_mysql_redis_and_where_a_write_ahead_sink_sends(
    files: Files, start: Callable[..., RunningJob], tmp_path: Path
) -> None:
    with MariaDBServer() as mariadb, RedisServer() as redis:
        outputs = [
            MySQLOutput(mariadb, "xa"),
            MySQLOutput(mariadb, "staged"),
            SentOutput(tmp_path),
        ]
        keyed = [MySQLOutput(mariadb, "upsert"), RedisOutput(redis, "staged", "strings")]
        files.add()
        first = start(declare(tmp_path, "first", files, [*outputs, *keyed]))
        first.wait_for_epochs(1)
        path = first.take("savepoint", tmp_path / "savepoints")
        heir = start(declare(tmp_path, "heir", files, [*outputs, *keyed]), restore=path)
        for epochs in (2, 3):
            files.add()
            first.wait_for_epochs(epochs)
            heir.wait_for_epochs(epochs - 1)
        first.end()
        heir.end()
        third = start(declare(tmp_path, "third", files, [*outputs, *keyed]), restore=path)
        third.wait_for_epochs(2)
        third.end()
        require(outputs, {0: 1, 1: 3, 2: 3})
        require(keyed, {0: 1, 1: 1, 2: 1})
        keyed[1].close()


@pytest.mark.chaos
@pytest.mark.parametrize(
    "failpoint",
    [
        "prepared:1", "decided:1", "sealed:1", "sink-committed:1", "sink-committed:3",
        "sink-committed:5", "committed:1", "restore-begun", "restored",
    ],
)  # fmt: skip
def test_restored_jobs_are_killed_while_the_first_goes_on(
    files: Files,
    outputs: Sequence[Output],
    start: Callable[..., RunningJob],
    tmp_path: Path,
    failpoint: str,
) -> None:
    files.add()
    first = start(declare(tmp_path, "first", files, outputs))
    drivers: list[Driver] = []
    try:
        first.wait_for_epochs(1)
        path = first.take("savepoint", tmp_path / "savepoints")
        files.add()
        first.wait_for_epochs(2)
        options = {
            "name": "heir", "storage": str(tmp_path / "heirs"), "interval": "100ms",
            "input": str(files.directory), "sinks": sinks(outputs),
        }  # fmt: skip
        restore = {"SEAMARK_RESTORE": path}
        drivers.append(
            Driver(PROGRAM, options, tmp_path / "dies.log", failpoint, environment=restore)
        )
        drivers[-1].die(180)
        files.add()
        first.wait_for_epochs(3)
        drivers.append(Driver(PROGRAM, options, tmp_path / "heir.log", environment=restore))
        kafka = outputs[0]
        wait_until("the heir has caught up", lambda: kafka.count() >= 5 * ROWS, 180, 0.2)
        wait_until(
            "it has told every sink", lambda: shown(outputs[-1]) == {0: 1, 1: 2, 2: 2}, 60, 0.2
        )
        drivers[-1].stop()
    finally:
        for driver in drivers:
            driver.kill_tree()
        first.end()
    require(outputs, {0: 1, 1: 2, 2: 2})
