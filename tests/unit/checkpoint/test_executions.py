"""How: the records of executions are written to and read from a real directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seamark.checkpoint import executions
from seamark.checkpoint.executions import (
    ExecutionEnd,
    ExecutionFailure,
    ExecutionRecorder,
    ExecutionStart,
    ExecutionStore,
)
from seamark.files.local import LocalDirectory
from seamark.model.job_graph import JobGraph, Vertex
from seamark.model.job_state import JobState

GRAPH = JobGraph((Vertex("rows", "source", "rows"), Vertex("out", "sink", "files", ("rows",))))
START = ExecutionStart(
    "j" * 32, "clicks", "host", 7, 1000.5, "http://127.0.0.1:1", GRAPH.to_record()
)


def failure(number: int) -> ExecutionFailure:
    return ExecutionFailure(1001.0, number, "OSError", f"failure {number}", True)


def test_an_execution_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    recorder, store = ExecutionRecorder(), ExecutionStore(LocalDirectory(tmp_path))
    assert store.newest() is None
    recorder.add_failure(failure(0))  # in the first start, before the directory is the job's
    recorder.begin(LocalDirectory(tmp_path), START)
    recorder.add_failure(failure(1))
    found = store.newest()
    assert found is not None
    assert (found.number, found.start, found.end) == (1, START, None)
    assert found.failures == [failure(0), failure(1)]
    recorder.end(ExecutionEnd(JobState.FAILED, 1002.0, "failure 1"))
    found = store.newest()
    assert found is not None and found.end is not None
    assert found.end == ExecutionEnd(JobState.FAILED, 1002.0, "failure 1")
    assert store.all() == [found]


def test_each_run_has_a_number_of_its_own_and_the_last_ones_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executions, "EXECUTIONS_KEPT", 2)
    store = ExecutionStore(LocalDirectory(tmp_path))
    assert [store.begin(START) for _ in range(4)] == [1, 2, 3, 4]
    assert [store.read(number) is not None for number in (3, 4)] == [True, True]
    assert sorted(p.name for p in (tmp_path / "executions").iterdir()) == ["3", "4"]


def test_a_sink_that_goes_on_elsewhere_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a relative path, if the program is started in another directory."""

    def told(*vertices: Vertex) -> list[str]:
        caplog.clear()
        start = replace(START, graph=JobGraph(vertices).to_record())
        ExecutionRecorder().begin(LocalDirectory(tmp_path), start)
        return caplog.messages

    assert told(*GRAPH.vertices) == []
    assert told(*GRAPH.vertices) == []
    (words,) = told(Vertex("rows", "source", "others"), Vertex("out", "sink", "files in /b"))
    assert words.startswith("sink 'out' is now: files in /b. In the job's last run it was: files; ")
    assert told(Vertex("new", "sink", "a table")) == []


def test_the_last_failures_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "FAILURES_KEPT", 2)
    recorder = ExecutionRecorder()
    recorder.begin(LocalDirectory(tmp_path), START)
    for number in range(4):
        recorder.add_failure(failure(number))
    found = ExecutionStore(LocalDirectory(tmp_path)).newest()
    assert found is not None
    assert found.failures == recorder.failures == [failure(2), failure(3)]


def test_a_damaged_record_hides_itself_only(tmp_path: Path) -> None:
    store = ExecutionStore(LocalDirectory(tmp_path))
    for _ in range(2):
        store.begin(START)
    store.record_failure(1, 0, failure(0))
    (tmp_path / "executions/2/started.json").write_text("{")
    found = store.newest()
    assert found is not None
    assert (found.number, found.failures) == (1, [failure(0)])
    (tmp_path / "executions/1/failure.0.json").write_text("{")
    found = store.newest()
    assert found is not None
    assert found.failures == []
