"""A job that is to end with a savepoint fails while the savepoint is written.

How: the counting job of test_savepoints.py has a savepoint held just before it is whole; meanwhile
its run fails. If the job goes on after that, a restore of the savepoint would write its later rows
again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.model import failpoints
from seamark.model.errors import SavepointError
from tests.chaos.driver import wait_until
from tests.spark.savepoints.test_savepoints import Numbers, declare, expected, shown
from tests.threads import PATIENCE_S, RunningJob


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Future[str]], None]]:
    """Savepoints wait before they are whole: the function waits for that, and its next call lets
    them go on."""
    there, goes_on = threading.Event(), threading.Event()

    def reached(name: str) -> None:
        if name == "savepoint-written":
            there.set()
            goes_on.wait(PATIENCE_S)

    def step(asked: Future[str]) -> None:
        if there.is_set():
            goes_on.set()
        else:
            wait_until("a savepoint", lambda: there.is_set() or asked.done(), PATIENCE_S)
            assert there.is_set(), asked.exception()

    monkeypatch.setattr(failpoints, "reached", reached)
    yield step
    goes_on.set()


def fail(job: sm.Job) -> None:
    assert job._run is not None and job._run.coordinator is not None
    job._run.coordinator.fail(RuntimeError("its source is away"))


def test_a_job_that_was_restarted_meanwhile_goes_on_and_the_savepoint_is_not_its_last(
    spark: SparkSession, tmp_path: Path, written: Callable[[Future[str]], None]
) -> None:
    numbers = Numbers(tmp_path / "in")
    numbers.add()
    strategy = sm.RestartStrategy.fixed_delay(attempts=1000, delay="100ms")
    job = declare(tmp_path, "first", numbers, restart_strategy=strategy)
    first = RunningJob(job)
    first.wait_for_epochs(1)
    asked = job.stop_with_savepoint(str(tmp_path / "savepoints"))
    written(asked)
    fail(job)
    numbers.add()
    wait_until("an epoch", lambda: shown(tmp_path, "first") == expected(2), PATIENCE_S)
    written(asked)
    with pytest.raises(SavepointError, match=r"is whole \(file:.*\), but a failure has restarted"):
        asked.result(PATIENCE_S)

    path = first.take("stop_with_savepoint", tmp_path / "savepoints")
    first.join()
    numbers.add()
    second = RunningJob(declare(tmp_path, "second", numbers), restore=path)
    second.wait_for_epochs(1)
    second.end()
    assert shown(tmp_path, "first", "second") == expected(3)


def test_a_job_that_failed_meanwhile_has_its_last_savepoint(
    spark: SparkSession, tmp_path: Path, written: Callable[[Future[str]], None]
) -> None:
    numbers = Numbers(tmp_path / "in")
    numbers.add()
    job = declare(tmp_path, "first", numbers)
    first = RunningJob(job)
    first.wait_for_epochs(1)
    asked = job.stop_with_savepoint(str(tmp_path / "savepoints"))
    written(asked)
    fail(job)
    with pytest.raises(RuntimeError, match="its source is away"):
        first.join()
    written(asked)
    path = asked.result(PATIENCE_S)
    numbers.add()
    second = RunningJob(declare(tmp_path, "second", numbers), restore=path)
    second.wait_for_epochs(1)
    second.end()
    assert shown(tmp_path, "first", "second") == expected(2)
