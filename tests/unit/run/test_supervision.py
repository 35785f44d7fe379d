"""A cancelled job's checkpoints are deleted, on a real local directory; and the end of a job with
the run of its last savepoint. Without Spark."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seamark as sm
from seamark.checkpoint.lineages import lineages_of
from seamark.checkpoint.store import CheckpointStore
from seamark.checkpoint.upkeep import Upkeep
from seamark.files.deadline import open_local
from seamark.files.local import LocalDirectory
from seamark.model import failpoints
from seamark.model.job_state import JobState
from seamark.protocol.procedures import check_fence, supersede
from seamark.run import supervision
from seamark.run.supervision import Supervisor
from tests.chaos.driver import wait_until
from tests.unit.checkpoint.test_lineages import lineage


def cancelled(
    job: Path, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, before: Any = lambda: None
) -> Supervisor:
    """A cancelled driver of generation 1; `before` runs after each look at its fence."""

    def still_needed() -> str:
        try:
            check_fence(store, 1)
        except Exception as error:
            return str(error)
        before()
        return ""

    monkeypatch.setattr(
        supervision, "open_files", lambda _, uri: open_local(uri.removeprefix("file://"))
    )
    found = Supervisor.__new__(Supervisor)
    given: dict[str, Any] = {
        "_run": SimpleNamespace(
            coordinator=SimpleNamespace(generation=1, still_needed=still_needed)
        ),
        "_spark": None,
        "_name": "job",
        "_directory": f"file://{job}",
    }
    vars(found).update(given)
    return found


def test_all_of_a_job_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = lineage(tmp_path / "job", 1)
    store.write_prepared(0, 1, {}, None)
    cancelled(tmp_path / "job", store, monkeypatch)._delete_checkpoints()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("look", [1, 2, 3])
def test_a_driver_that_slept_until_a_restore_superseded_it_deletes_no_later_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    job = tmp_path / "job"
    store = lineage(job, 1)
    store.write_prepared(0, 1, {}, None)
    looks = itertools.count(1)

    def superseded() -> None:  # just after the look, before the deletion
        if next(looks) == look:
            failpoints.drive(supersede(1, {"lineage": 2}, store))
            lineage(job, 2)

    supervisor = cancelled(job, store, monkeypatch, superseded)
    assert supervisor.coordinator is not None and not supervisor.coordinator.still_needed()
    supervisor._delete_checkpoints()
    assert {"job.json", "lease/1.json"} <= LocalDirectory(job / "lineages/2").tree().keys()
    assert lineages_of(open_local(job)) == [1, 2]


class OneRun:
    """A run that goes on until it is stopped, or fails when it is told to."""

    def __init__(self) -> None:
        self.coordinator: Any = SimpleNamespace(
            identity=SimpleNamespace(job_id="job"), failing_epoch=3, upkeep=Upkeep()
        )
        self.started = self.settled = self.fails = False
        self._stopped = threading.Event()

    def start(self) -> None:
        self.started = True

    def settle(self) -> None:
        self.settled = True

    def give_up_recovery(self) -> None:
        pass

    def stop(self, patience_s: float) -> None:
        self._stopped.set()

    def wait(self, timeout_s: float) -> bool:
        if self.fails:
            raise RuntimeError("its source is away")
        return self._stopped.wait(timeout_s)


@contextmanager
def supervised(
    made: Callable[[Supervisor, list[OneRun]], object] = lambda supervisor, runs: None,
) -> Iterator[tuple[Supervisor, list[OneRun]]]:
    """A job that is restarted at once, and its runs so far; `made` is called as one is made."""
    runs: list[OneRun] = []

    def new_run() -> Any:
        made(supervisor, runs)
        runs.append(OneRun())
        return runs[-1]

    strategy = sm.RestartStrategy.fixed_delay(attempts=9, delay="1ms")
    declared: Any = SimpleNamespace(
        name="job", bounded=False, checkpoint=sm.CheckpointConfig(restart_strategy=strategy)
    )
    begun: Any = None  # what only people need is spared
    supervisor = Supervisor(Any, declared, new_run, "file:///job", lambda text: text, begun)  # type: ignore[arg-type]
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()
    wait_until("a run", lambda: runs and runs[0].started, 30)
    yield supervisor, runs
    supervisor.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_a_job_does_not_end_with_a_run_that_has_a_later_one() -> None:
    with supervised() as (supervisor, runs):
        runs[0].fails = True
        wait_until("a later run", lambda: len(runs) == 2 and runs[1].started, 30)
        assert not supervisor.end_with(runs[0], supervisor.stop)  # type: ignore[arg-type]
        assert supervisor.state is JobState.RUNNING
        assert supervisor.end_with(runs[1], supervisor.stop)  # type: ignore[arg-type]
        assert supervisor.outcome.result(30) is JobState.FINISHED

        asked: list[bool] = []
        assert supervisor.end_with(runs[1], lambda: asked.append(True))  # type: ignore[arg-type]
        assert not asked  # `Job.stop` would end the program's next run of the job


def test_a_job_that_ends_with_a_failed_run_has_no_later_one() -> None:
    answers: list[bool] = []

    def made(supervisor: Supervisor, runs: list[OneRun]) -> None:
        if len(runs) == 1:  # as late as can be
            answers.append(supervisor.end_with(runs[0], supervisor.stop))  # type: ignore[arg-type]

    with supervised(made) as (supervisor, runs):
        runs[0].fails = True
        assert supervisor.outcome.result(30) is JobState.FINISHED
        assert answers == [True]
        assert [run.started for run in runs] == [True, False, False]
        assert runs[2].settled


def test_a_run_that_settles_alone_is_no_later_one() -> None:
    def made(supervisor: Supervisor, runs: list[OneRun]) -> None:
        if len(runs) == 1:
            supervisor.stop()  # by somebody else, who does not wait for the savepoint

    with supervised(made) as (supervisor, runs):
        runs[0].fails = True
        assert supervisor.outcome.result(30) is JobState.FINISHED
        assert [run.started for run in runs] == [True, False, False]
        assert supervisor.end_with(runs[0], supervisor.stop)  # type: ignore[arg-type]
