"""How far a savepoint is, over REST: the calls to the storage, and its answers."""

from __future__ import annotations

import pytest

from seamark.rest.operations import Operation
from seamark.savepoints.take import running as taking
from seamark.savepoints.take.running import Progress, SavepointFuture


def test_progress_is_bytes_written_and_never_more_than_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taking, "PROGRESS_S", 0.0)
    future = SavepointFuture()
    operation = Operation("savepoint", lambda path: {"location": path}, future)
    assert "progress" not in operation.answer()
    written = iter([10, 70, 120])
    future.writing(100, lambda: next(written))
    assert operation.answer()["progress"] == {"bytes": 10, "total": 100}
    assert future.progress() == Progress(70, 100)
    assert future.progress() == Progress(100, 100), "a canonical one may be larger than expected"
    future.set_result("file:///savepoint")
    assert operation.answer() == {
        "status": {"id": "COMPLETED"},
        "operation": {"location": "file:///savepoint"},
    }


def test_a_storage_that_does_not_answer_stops_no_progress() -> None:
    future = SavepointFuture()

    def away() -> int:
        raise OSError("away")

    future.writing(100, away)
    assert future.progress() == Progress(0, 100)
