"""How: committers with a note of each call, or an error; the thread's pauses cut short."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from seamark.checkpoint import source_offsets
from seamark.checkpoint.source_offsets import SourceOffsets
from tests.unit.checkpoint.test_coordinator import until


class Told:
    """An `OffsetCommitter`, away while `away`."""

    def __init__(self) -> None:
        self.ends: list[Any] = []
        self.away = self.closed = False

    def commit(self, end_offset: Any) -> None:
        if self.away:
            raise OSError("no broker\nin many lines")
        self.ends.append(end_offset)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_offsets, "PAUSE_S", 0.0)
    monkeypatch.setattr(source_offsets, "REST", 0)
    monkeypatch.setattr(source_offsets, "PAUSE_AFTER_FAILURE_S", 0.0)


def test_each_source_is_told_its_own_offset_and_the_last_at_the_end() -> None:
    first, last = Told(), Told()
    offsets = SourceOffsets(
        lambda epoch: [f"a{epoch}", None, f"c{epoch}"],
        {0: ("a", lambda: first), 1: ("b", Told), 2: ("c", lambda: last), 7: ("d", Told)},
    )
    offsets.completed(-1)
    offsets.completed(4)
    until(lambda: last.ends == ["c4"])
    offsets.completed(5)
    offsets.close()
    assert (first.ends, last.ends) == (["a4", "a5"], ["c4", "c5"])
    assert first.closed
    assert last.closed


def test_a_source_that_commits_nothing_is_asked_once() -> None:
    asked = []
    offsets = SourceOffsets(lambda epoch: ["x"], {0: ("a", lambda: asked.append(1))})  # type: ignore[func-returns-value, arg-type, return-value]
    for epoch in range(3):
        offsets.completed(epoch)
        until(lambda: bool(asked))
    offsets.close()
    assert asked == [1]


def test_a_failure_is_said_once_and_the_next_checkpoints_offsets_are_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="seamark")
    told = Told()
    told.away = True
    tries: list[int] = []
    offsets = SourceOffsets(lambda epoch: [tries.append(epoch), epoch], {1: ("a", lambda: told)})  # type: ignore[func-returns-value]
    for epoch in range(3):
        offsets.completed(epoch)
        until(lambda: epoch in tries)  # noqa: B023
    told.away = False
    offsets.completed(3)
    until(lambda: told.ends == [3])
    offsets.close()
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO"]
    assert "source a: " in caplog.messages[0]
    assert "no broker." in caplog.messages[0]
