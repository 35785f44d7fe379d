"""`seamark verify --app`: what a program declares, and the programs it refuses before any start.

A program is executed in a process of its own, with a Spark of its own: the first one here; the
others in the tests' process, by the same `main`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from seamark.model.errors import UserError
from seamark.operations import verify_app
from seamark.operations.verify_app import (
    KAFKA_VARIABLE,
    POSTGRES_VARIABLE,
    AppUnderTest,
    declared,
)

ORDERS = Path(__file__).parents[2] / "chaos" / "app_orders.py"


def program(directory: Path, *changes: tuple[str, str]) -> Path:
    text = ORDERS.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    app = directory / "app.py"
    app.write_text(text)
    return app


def test_what_a_program_declares() -> None:
    found = declared(AppUnderTest(ORDERS))
    assert (found.job, found.topic, found.needs_postgres) == ("orders", "orders", False)
    assert {uid: sink["kind"] for uid, sink in found.sinks.items()} == {
        "to-kafka": "kafka",
        "to-sqlite": "sqlite",
    }
    assert found.sinks["to-sqlite"]["path"] == "orders.db", "below each run's own directory"
    assert found.not_read == {}


@pytest.fixture
def in_this_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(
        command: Sequence[str], cwd: str, env: Mapping[str, str], **_: Any
    ) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [
            sys.executable, "-c", "from seamark.operations.verify_app import main; main()"
        ]  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr(sys, "argv", ["-c", *command[3:]])
            patched.chdir(cwd)
            for name in (KAFKA_VARIABLE, POSTGRES_VARIABLE):
                patched.setenv(name, env[name])
            verify_app.main()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(verify_app, "subprocess", SimpleNamespace(run=run))


@pytest.mark.usefixtures("in_this_process")
def test_a_sink_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    app = program(tmp_path, ('sink_class("orders.db", table="orders")', 'sm.FileSink("out")'))
    found = declared(AppUnderTest(app))
    assert [*found.sinks] == ["to-kafka"]
    assert "is of no kind that is read: Kafka, PostgreSQL, SQLite" in found.not_read["to-sqlite"]
    app = program(tmp_path)
    found = declared(AppUnderTest(app, id="number"))
    assert "it has no column 'number' (but customer, id); give --id" in found.not_read["to-sqlite"]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            [('os.environ.get("SEAMARK_VERIFY_KAFKA", "localhost:9092")', '"prod:9092"')],
            r"source 'orders' reads from prod:9092.*SEAMARK_VERIFY_KAFKA.*--kafka prod:9092",
        ),
        (
            [('interval="1s"', 'interval="1s", mode="at-least-once"')],
            "has mode 'at-least-once'; only exactly-once can be verified",
        ),
        (
            [('topics=["orders"]', 'topics=["orders", "returns"]')],
            "a job that can be fed has one KafkaSource with one topic",
        ),
        (
            [('topics=["orders"]', 'topics=["orders"], starting_offsets="latest"')],
            "every row must be read: give 'earliest' in this test",
        ),
    ],
)
def test_a_program_that_cannot_be_judged_is_refused(
    changes: list[tuple[str, str]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        declared(AppUnderTest(program(tmp_path, *changes)))


def test_a_row_without_its_number_is_refused() -> None:
    with pytest.raises(UserError, match=r"put \{n\} where the row's number belongs"):
        declared(AppUnderTest(ORDERS, row='{"id": 1}'))


def test_no_such_program(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        declared(AppUnderTest(tmp_path / "app.py"))
