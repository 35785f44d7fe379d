"""Two drivers at one table, each with a call of its own: the whole call of one runs at one point of
the other's. For the sinks of tables, which have the same failpoints under their own names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model import failpoints

ABORTED, COMMITTED = AbortOutcome.ABORTED, CommitOutcome.COMMITTED
ALREADY = CommitOutcome.ALREADY_COMMITTED


def at(name: str, call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Make `call` once, when the failpoint `name` is reached; return its result."""
    answers: list[Any] = []

    def reached(found: str) -> None:
        if found == name and not answers:
            answers.append(None)  # not again from within
            answers[0] = call()

    monkeypatch.setattr(failpoints, "reached", reached)
    return answers


@dataclass(frozen=True)
class TwoDrivers:
    """A table of a sink of this kind, e.g. ``delta``.

    driver: makes the committer of a generation. written: writes a range of numbers, of a generation
    and an epoch, and returns the committable. data_files, numbers: what lies in the table's
    directory, and what a reader sees. points: the failpoints of a commit before its last step.
    """

    kind: str
    driver: Callable[[int], Any]
    written: Callable[..., Any]
    data_files: Callable[[], Collection[object]]
    numbers: Callable[[], Sequence[int]]
    points: Sequence[str]


class TwoDriversSuite:
    """The tests. A subclass gives the fixture `two`: a `TwoDrivers`."""

    def test_a_replay_of_an_epoch_is_not_taken_for_the_first_run(self, two: TwoDrivers) -> None:
        """At-least-once: epoch 3 is visible, then its driver dies before the decision. Its
        successor's rows of epoch 3 must not be skipped because the table has that epoch."""
        assert two.driver(1).commit([two.written(range(5), epoch=3)]) == [COMMITTED]
        again = two.written(range(5, 10), generation=2, epoch=3)
        assert two.driver(2).commit([again]) == [COMMITTED]
        assert sorted(two.numbers()) == list(range(10))

    def test_an_abort_between_the_look_and_the_commit_wins(
        self, two: TwoDrivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The old driver has seen the files there, and no outcome of theirs."""
        old, new = two.driver(1), two.driver(2)
        for point in two.points:
            parts = [two.written(range(10))]
            aborted = at(point, partial(new.abort, parts), monkeypatch)
            assert old.commit(parts) == [CommitOutcome.LOST]
            assert aborted == [[ABORTED]]
            assert not two.data_files()
            assert list(two.numbers()) == []

    def test_a_commit_between_the_look_and_the_abort_wins(
        self, two: TwoDrivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old, new = two.driver(1), two.driver(2)
        parts = [two.written(range(10))]
        committed = at(f"{two.kind}-abort-checked", partial(old.commit, parts), monkeypatch)
        assert new.abort(parts) == [AbortOutcome.COMMITTED]
        assert committed == [[COMMITTED]]
        assert sorted(two.numbers()) == list(range(10))

    def test_of_two_drivers_that_commit_the_same_epoch_one_writes_it(
        self, two: TwoDrivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old, new = two.driver(1), two.driver(2)
        for epoch, point in enumerate(two.points):
            parts = [two.written(range(10 * epoch, 10 * epoch + 10), epoch=epoch)]
            first = at(point, partial(new.commit, parts), monkeypatch)
            assert old.commit(parts) == [ALREADY]
            assert first == [[COMMITTED]]
            assert sorted(two.numbers()) == list(range(10 * epoch + 10))

    def test_an_abort_that_died_before_it_deleted_is_finished(
        self, two: TwoDrivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parts = [two.written(range(10))]

        class Died(BaseException):
            pass

        def die() -> None:
            raise Died

        at(f"{two.kind}-aborted", die, monkeypatch)
        with pytest.raises(Died):
            two.driver(2).abort(parts)
        assert len(two.data_files()) == 1
        successor = two.driver(3)
        assert list(successor.list_lingering()) == []
        assert not two.data_files()
        assert successor.commit(parts) == [CommitOutcome.LOST]
