"""The end-to-end analysis: the whole table by hand, then properties over random jobs."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.guarantees import end_to_end
from seamark.guarantees.end_to_end import TRANSIENT, GuaranteeReport, source_to_sink, weakest
from seamark.guarantees.facts import (
    JobFacts,
    OperatorPart,
    PlannedFunction,
    SinkPart,
    SourcePart,
)
from seamark.model.guarantee import Guarantee, SinkWay

AMO, ALO, EO = Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE
RANK = {AMO: 0, ALO: 1, EO: 2}
MODES = [AMO, ALO, EO]

TABLE = {
    (SinkWay.NONE, False): (AMO, ""),
    (SinkWay.NONE, True): (ALO, ""),
    (SinkWay.IDEMPOTENT, False): (AMO, ""),
    (SinkWay.IDEMPOTENT, True): (EO, TRANSIENT),
    (SinkWay.WRITE_AHEAD_LOG, False): (AMO, ""),
    (SinkWay.WRITE_AHEAD_LOG, True): (ALO, ""),
    (SinkWay.WRITE_AHEAD_LOG_WITH_TOKEN, False): (AMO, ""),
    (SinkWay.WRITE_AHEAD_LOG_WITH_TOKEN, True): (EO, ""),
    (SinkWay.TWO_PHASE_COMMIT, False): (AMO, ""),
    (SinkWay.TWO_PHASE_COMMIT, True): (EO, ""),
}


UUID = PlannedFunction("id", "uuid", "app.py:12")


def analyse(*facts: Any, **more: Any) -> GuaranteeReport:
    return end_to_end.analyse(JobFacts(*facts, **more))


def job(
    way: SinkWay,
    *,
    replayable: bool = True,
    varying: tuple[PlannedFunction, ...] = (),
    mode: object = EO,
) -> GuaranteeReport:
    return analyse(
        [SourcePart("in", "a source", replayable)],
        [OperatorPart("count", "a count")],
        [SinkPart("out", "a sink", way, varying)],
        mode,
    )


def test_the_table_names_every_way() -> None:
    assert set(TABLE) == set(product(SinkWay, [False, True]))


@pytest.mark.parametrize(("way", "replayable"), TABLE, ids=str)
def test_the_table(way: SinkWay, replayable: bool) -> None:
    level, note = TABLE[way, replayable]
    report = job(way, replayable=replayable)
    assert (report.guarantee, report.sinks[0].note) == (level, note)
    assert source_to_sink(replayable, way) is level


@pytest.mark.parametrize(
    ("way", "replayable", "mode"), list(product(SinkWay, [False, True], MODES))
)
def test_the_mode_is_a_cap(way: SinkWay, replayable: bool, mode: Guarantee) -> None:
    report = job(way, replayable=replayable, mode=mode)
    assert report.guarantee is weakest([TABLE[way, replayable][0], mode])
    assert report == job(way, replayable=replayable, mode=mode.value)


def test_no_transient_note_where_the_level_is_lower() -> None:
    assert job(SinkWay.IDEMPOTENT, mode=ALO).sinks[0].note == ""


def test_a_column_that_a_replay_changes_lowers_an_idempotent_sink_alone() -> None:
    lowered = job(SinkWay.IDEMPOTENT, varying=(UUID,))
    assert (lowered.guarantee, lowered.weakest) == (ALO, "out")
    assert "make id: uuid() at app.py:12 deterministic" in lowered.remedy
    assert "id: uuid()" in lowered.parts[-1].why
    assert job(SinkWay.TWO_PHASE_COMMIT, varying=(UUID,)).guarantee is EO


def test_what_has_no_uid_and_what_is_computed_twice_is_said() -> None:
    sinks = [
        SinkPart(
            "out", "a sink", SinkWay.TWO_PHASE_COMMIT, epoch_time=(PlannedFunction("t", "now"),)
        )
    ]
    report = analyse(
        [], [OperatorPart("operator-0", "Aggregate", named=False)], sinks, EO, sharing=("twice",)
    )
    assert report.guarantee is EO
    assert "job.uid(dataframe, 'a-name')" in str(report)
    assert "the time in t: now() is the epoch's own" in str(report)
    assert "plan: twice" in str(report).splitlines()


@pytest.mark.parametrize(
    ("report", "weakest_part", "remedy"),
    [
        (job(SinkWay.TWO_PHASE_COMMIT), "", ""),
        (job(SinkWay.NONE, replayable=False), "in", "read in from a source that keeps its rows"),
        (job(SinkWay.NONE), "out", "give out a sink with two-phase commit"),
        (job(SinkWay.WRITE_AHEAD_LOG), "out", "make its send idempotent"),
        (job(SinkWay.TWO_PHASE_COMMIT, mode=ALO), "checkpoint mode", "exactly-once"),
        # The sink is the first of two that are as low: mending it alone is not enough, but needed.
        (job(SinkWay.NONE, mode=ALO), "out", "two-phase commit"),
        (job(SinkWay.TWO_PHASE_COMMIT, replayable=False, mode=ALO), "in", "Kafka"),
    ],
)
def test_the_weakest_link_and_its_remedy(report, weakest_part: str, remedy: str) -> None:
    assert report.weakest == weakest_part
    assert remedy in report.remedy
    assert bool(report.remedy) is bool(remedy)


def test_the_job_is_its_weakest_sink() -> None:
    report = analyse(
        [SourcePart("in", "Kafka topic a", True)],
        [],
        [
            SinkPart("table", "SQLite table t", SinkWay.TWO_PHASE_COMMIT),
            SinkPart("screen", "console", SinkWay.NONE),
        ],
        "exactly-once",
    )
    assert [(s.uid, s.guarantee) for s in report.sinks] == [("table", EO), ("screen", ALO)]
    assert (report.guarantee, report.weakest) == (ALO, "screen")


def test_a_job_without_sinks_can_be_explained() -> None:
    report = analyse([SourcePart("in", "socket", False)], [], [], "exactly-once")
    assert report.guarantee is AMO
    assert "no sink is declared yet" in str(report)


def test_the_text_shows_parts_levels_and_remedy() -> None:
    text = str(job(SinkWay.IDEMPOTENT))
    assert text.splitlines()[0].split() == ["KIND", "UID", "GUARANTEE", "WHAT", "WHY"]
    assert f"into out: exactly-once ({TRANSIENT})" in text
    assert "weakest link" not in text
    lowered = str(job(SinkWay.NONE, replayable=False))
    assert "weakest link: in; to raise it, read in from a source that keeps its rows" in lowered
    assert lowered.splitlines()[1].startswith(">  source    in     at-most-once")


uids = st.integers(0, 10**6).map(str)
sources = st.lists(st.builds(SourcePart, uids, st.just(""), st.booleans()), max_size=4)
operators = st.lists(st.builds(OperatorPart, uids, st.just(""), st.booleans()), max_size=4)
columns = st.lists(st.just(UUID), max_size=1).map(tuple)
sinks = st.lists(
    st.builds(SinkPart, uids, st.just(""), st.sampled_from(SinkWay), columns), max_size=4
)


@given(sources, operators, sinks, st.sampled_from(MODES))
def test_the_result_is_never_above_any_part(sources, operators, sinks, mode) -> None:
    report = analyse(sources, operators, sinks, mode)
    assert len(report.parts) == len(sources) + len(operators) + len(sinks)
    assert RANK[report.guarantee] <= RANK[mode]
    for part in report.parts:
        assert RANK[report.guarantee] <= RANK[part.guarantee]
    shared = [p for p in report.parts if p.kind != "sink"]
    for sink, end in zip([p for p in report.parts if p.kind == "sink"], report.sinks, strict=True):
        assert RANK[report.guarantee] <= RANK[end.guarantee] <= RANK[mode]
        assert all(RANK[end.guarantee] <= RANK[p.guarantee] for p in [*shared, sink])
        assert (end.guarantee is EO) is (end.weakest == "") is (end.remedy == "")


@given(sources, operators, sinks, st.sampled_from(MODES))
def test_what_lowers_is_a_part_or_the_mode_and_nothing_is_lowered_for_nothing(
    sources, operators, sinks, mode
) -> None:
    report = analyse(sources, operators, sinks, mode)
    parts = {p.uid for p in report.parts}
    for end, sink in zip(report.sinks, sinks, strict=True):
        assert end.weakest in {*parts, "checkpoint mode", ""}
        levels = [mode, *(source_to_sink(s.replayable, sink.way) for s in sources)]
        levels.append(source_to_sink(True, sink.way))
        if sink.way is SinkWay.IDEMPOTENT and sink.varying:
            levels.append(ALO)
        assert end.guarantee is weakest(levels)


def test_checkpoints_that_end_with_the_program_guarantee_nothing() -> None:
    report = analyse(
        [SourcePart("in", "a source", True)],
        [],
        [SinkPart("out", "a sink", SinkWay.TWO_PHASE_COMMIT)],
        EO,
        durable=False,
    )
    assert report.guarantee is report.sinks[0].guarantee is Guarantee.NONE
    assert report.weakest == "checkpoint storage"
    assert "outlives the program" in report.remedy
    assert "the job: none" in str(report)
    assert "ephemeral, for tests" in str(report)
