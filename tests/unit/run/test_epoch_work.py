"""What the sources may give to the next epoch, by what waits and what the sinks took."""

from __future__ import annotations

from typing import Any

import pytest

import seamark as sm
from seamark.checkpoint.channel_state import NO_CHANNEL_STATE, ChannelState, Segment, Stage
from seamark.checkpoint.task_reports import TaskReport
from seamark.contracts.spool import SpoolFile
from seamark.model.errors import UserError
from seamark.run import epoch_work
from seamark.run.epoch_work import FILL, FIRST_ROWS, GROWTH, EpochWork
from seamark.run.held_watermark import KeyedEpochs

NOT_USED: Any = None


class Intake:
    """Notes the last call of `SeamarkIntake.set`: heartbeat, paused, rows."""

    last: tuple[bool, bool, int] = (False, False, 0)

    def newInstance(self) -> Intake:  # noqa: N802 - Java's name
        return self

    def set(self, *given: Any) -> None:
        self.last = given

    def isAttached(self) -> bool:  # noqa: N802
        return False

    def problem(self) -> str:
        return "no field uniqueSources"


@pytest.fixture
def intake(monkeypatch: pytest.MonkeyPatch) -> Intake:
    made = Intake()
    monkeypatch.setattr(epoch_work, "loaded_class", lambda jvm, name: made)
    return made


class NoSpark:
    _jvm = None


def work(
    state: ChannelState = NO_CHANNEL_STATE, *, tables: bool = False, **settings: Any
) -> EpochWork:
    config = sm.CheckpointConfig(**{"storage": "/s", "aligned_timeout": "2s", **settings})
    keyed, spark = KeyedEpochs((), None), NoSpark()
    return EpochWork(NOT_USED, config, state, keyed, spark, tables=tables)  # type: ignore[arg-type]


def left(rows: int, size_bytes: int = 500) -> ChannelState:
    path = f"7/g1-e7-p0-a9-{'0' * 32}.arrow"
    lane = (Segment(SpoolFile("/s", path, rows, size_bytes, 77)),)
    return ChannelState((Stage(("out",), ("id",), (lane,)),))


def wrote(rows: int) -> list[TaskReport]:
    return [TaskReport(0, 0, 0.0, 0.0, {}, rows=rows, slice_rows=1)]


def after(of: EpochWork, rows: int, state: ChannelState, took_s: float) -> None:
    of._learn(wrote(rows), state, took_s)
    of.limit_intake(state)


def begun(**settings: Any) -> EpochWork:
    """The work after a run's first epoch."""
    of = work(unaligned=True, **settings)
    after(of, 1, left(1), 2.1)
    return of


def test_the_first_epoch_takes_a_few_rows_and_is_no_measure(intake: Intake) -> None:
    of = work(unaligned=True)
    assert intake.last == (False, False, FIRST_ROWS)
    after(of, 1000, left(400), 2.1)
    assert intake.last == (True, False, FIRST_ROWS - 400)


def test_an_epoch_takes_what_the_sinks_took_less_what_waits(intake: Intake) -> None:
    of = begun()
    after(of, 2000, left(400), 2.1)
    assert intake.last == (True, False, 2000 * FILL - 400)
    after(of, 2000, left(2000), 2.1)
    assert intake.last == (True, True, 0), "an epoch's work waits"
    after(of, 2000, left(4000), 2.1)
    assert intake.last == (True, True, 0)


def test_when_all_is_written_in_time_the_next_epoch_takes_more(intake: Intake) -> None:
    of = begun()
    after(of, 1000, left(10), 2.1)
    after(of, 1000, NO_CHANNEL_STATE, 0.5)
    assert intake.last == (False, False, 4 * 1000 * FILL)
    after(of, 10, NO_CHANNEL_STATE, 0.5)
    assert intake.last == (False, False, 4 * 1000 * FILL), "few rows came"


def test_when_all_is_written_after_the_deadline_the_next_epoch_takes_a_little_more(
    intake: Intake,
) -> None:
    of = begun()
    after(of, 1000, left(10), 2.1)
    after(of, 1000, NO_CHANNEL_STATE, 2.1)
    assert intake.last == (False, False, round(1000 * GROWTH * FILL))


def test_too_many_bytes_hold_the_sources(intake: Intake) -> None:
    of = begun(max_in_flight_bytes="1MB")
    after(of, 2000, left(400, 2**20), 2.1)
    assert intake.last == (True, False, 2000 * FILL - 400)
    after(of, 2000, left(400, 2**20 + 1), 2.1)
    assert intake.last[1], "paused"


def test_rows_of_a_run_before_are_written_without_unaligned(intake: Intake) -> None:
    work(left(400))
    assert intake.last == (True, False, -1)


@pytest.mark.parametrize("done", [1, 2])
def test_a_sink_that_took_a_row_an_epoch_gets_more_when_it_is_fast_again(
    intake: Intake, done: int
) -> None:
    """With the timeout 0 no epoch ends before its deadline, and a quarter of one row is none."""
    of = work(unaligned=True, aligned_timeout=0)
    after(of, 1, left(1), 0.3)
    after(of, done, left(1), 10.0)
    for _ in range(20):
        after(of, max(1, intake.last[2]), NO_CHANNEL_STATE, 0.3)
    assert intake.last[2] > 20


def test_an_epoch_that_cannot_hold_back_one_that_reads_tables_fails(intake: Intake) -> None:
    of = work(tables=True)
    with pytest.raises(UserError, match=r"sources of Spark's query.*\(no field uniqueSources\)"):
        of.hold(0, True)
