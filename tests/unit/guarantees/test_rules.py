"""Each rule alone: facts with one mistake give its one finding, facts without it give none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from seamark.contracts.places import kafka_prefix, kafka_topic
from seamark.guarantees.end_to_end import GuaranteeReport, analyse
from seamark.guarantees.facts import (
    JobFacts,
    OperatorPart,
    OtherJob,
    PlannedFunction,
    SinkPart,
    SourcePart,
)
from seamark.guarantees.rules import RULES, declared_findings
from seamark.model.findings import Severity
from seamark.model.guarantee import SinkWay

TOPIC = kafka_topic("b:1,a:1", "out")
PREFIX = kafka_prefix("a:1,b:1", "shop")
SOURCE = SourcePart("in", "Kafka topics in", True, (kafka_topic("a:1", "in"),), "read_committed")
SINK = SinkPart("out", "Kafka topic out", SinkWay.TWO_PHASE_COMMIT, places=(TOPIC, PREFIX))
KEYED = SinkPart("keyed", "Redis", SinkWay.IDEMPOTENT, places=("redis: s:1",))
MERGED = SinkPart(
    "merged", "SQLite", SinkWay.TWO_PHASE_COMMIT, places=("sqlite: table t",), replaces=True
)
WELL = JobFacts(
    [SOURCE],
    [OperatorPart("count", "a count")],
    [SINK, KEYED],
    "exactly-once",
    storage="hdfs://n/jobs",
)
UUID = PlannedFunction("id", "uuid", "app.py:12")


def sink(**changed: Any) -> dict[str, Any]:
    return {"sinks": [replace(SINK, **changed)]}


def source(**changed: Any) -> dict[str, Any]:
    return {"sources": [replace(SOURCE, **changed)]}


def other(**places: frozenset[str]) -> dict[str, Any]:
    return {"others": [OtherJob("billing", **places)]}


MISTAKES = [
    ("SC001", source(replayable=False), "source `in`", "those of a failed epoch are gone"),
    ("SC002", source(isolation="read_uncommitted"), "source `in`", "aborted transactions are read"),
    ("SC003", source(fails_on_data_loss=False), "source `in`", "skipped in silence"),
    ("SC003", source(skips=("ignoreCorruptFiles",)), "source `in`", "ignoreCorruptFiles is true"),
    ("SC003", source(skips=("cleanSource",)), "source `in`", "without the rows read since"),
    ("SC006", source(unknown_options=(("maxOffset", "did you mean 'max'? "),)), "source `in`",
     "no option 'maxOffset': it is passed over"),
    ("ST001", {"operators": [OperatorPart("operator-0", "x", named=False)]}, "operator", "no uid"),
    ("ST002", {"sinks": [replace(KEYED, varying=(UUID,))]}, "sink `keyed`", "id: uuid() at app.py"),
    ("ST003", {"sinks": [replace(KEYED, python=(UUID,))]}, "sink `keyed`", "is Python"),
    ("CP001", {"ephemeral": "file:///tmp/x is below /tmp"}, "checkpoint storage", "/tmp/x"),
    ("CP001", {"durable": False}, "checkpoint storage", "sm.EphemeralStorage"),
    ("CP002", {"storage": "file:///x", "on_cluster": True}, "checkpoint storage", "file:///x"),
    ("CP006", {"storage": "abfss://c@a/x"}, "checkpoint storage", "has run on abfss:"),
    ("CP004", {"num_retained": 2}, "checkpoint num_retained", "it is 2"),
    (
        "CP004", {"num_retained": 5, "max_concurrent_checkpoints": 4},
        "checkpoint num_retained", "max_concurrent_checkpoints 4",
    ),
    ("CP005", {"mode": "at-least-once"}, "checkpoint mode", "`out`, `keyed` could be written"),
    ("SK001", sink(way=SinkWay.NONE), "sink `out`", "writes the rows of a replayed epoch again"),
    ("SK001", sink(way=SinkWay.WRITE_AHEAD_LOG), "sink `out`", "write-ahead log"),
    (
        "SK006", {"output_mode": "update", **sink(output_modes=("append",))},
        "sink `out`", "output mode is 'update'",
    ),
    ("SK006", sink(output_modes=("complete",)), "sink `out`", "would delete the rows of the ep"),
    ("SK002", other(writes=frozenset({TOPIC})), "sink `out`", "job 'billing', which has not ended"),
    ("SK002", {"sinks": [KEYED, replace(KEYED, uid="two")]}, "sink `keyed`", "sink `two`"),
    ("SK002", {"sinks": [MERGED, replace(MERGED, uid="two", replaces=False)]}, "sink `merged`",
     "rows of one key overwrite each other"),
    ("SK007", source(places=(TOPIC,)), "sink `out`", "source `in` reads kafka"),
    ("SK008", sink(in_checkpoint=True), "sink `out`", "where the job's checkpoint is"),
    ("SK003", other(reads_uncommitted=frozenset({TOPIC})), "sink `out`", "job 'billing' reads"),
    ("KF002", other(writes=frozenset({PREFIX})), "sink `out`", "job 'billing', which has not"),
    ("KF002", {"sinks": [SINK, replace(SINK, uid="two", places=(PREFIX,))]}, "sink `out`", "`two`"),
    ("KF003", sink(places=(kafka_prefix("a:1", "p" * 81),)), "sink `out`", "81 characters"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "mistake", "subject", "found"), MISTAKES)
def test_a_mistake_is_found_by_its_own_rule_alone(
    code: str, mistake: dict[str, Any], subject: str, found: str
) -> None:
    (finding,) = declared_findings(replace(WELL, **mistake))
    assert finding.code.name == code
    assert finding.subject.startswith(subject)
    assert found in finding.found
    assert finding.remedy


def test_a_job_without_mistakes_has_no_finding() -> None:
    assert declared_findings(WELL) == ()


def test_a_report_is_read_as_it_was_stored() -> None:
    for _, mistake, _, _ in MISTAKES:
        report = analyse(replace(WELL, **mistake))
        page = json.loads(json.dumps(report.to_json()))
        assert GuaranteeReport.from_json(page, report.mode.value) == report
        assert f"{report.findings[0].code.name} {report.findings[0].subject}" in str(report)


def test_every_rule_has_a_mistake_here() -> None:
    found = set()
    for _, mistake, _, _ in MISTAKES:
        found |= {code for code, rule in RULES.items() if list(rule(replace(WELL, **mistake)))}
    assert found == {*RULES}


def test_a_source_of_the_job_that_reads_its_own_sink_uncommitted() -> None:
    looped = replace(WELL, **source(isolation="read_uncommitted", places=(TOPIC,)))
    assert [one.code.name for one in declared_findings(looped)] == [
        "SC002", "SK007", "SK003"
    ]  # fmt: skip


def test_what_two_sinks_of_one_job_share_weighs_less_than_what_two_jobs_do() -> None:
    two = replace(WELL, sinks=[SINK, replace(SINK, uid="two")])
    (note,) = declared_findings(two)
    (topic, prefix) = declared_findings(replace(WELL, **other(writes=frozenset({TOPIC, PREFIX}))))
    assert note.weight is Severity.NOTE
    assert topic.weight is prefix.weight is Severity.WARNING


def test_a_lower_mode_is_no_fault_of_a_sink_that_cannot_do_more() -> None:
    plain = replace(WELL, mode="at-least-once", **sink(way=SinkWay.NONE))
    assert declared_findings(plain) == ()


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_sink_that_adds_rows_must_not_be_given_one_again(mode: str) -> None:
    def refused(**changed: Any) -> list[str]:
        return [f.subject for f in declared_findings(replace(WELL, output_mode=mode, **changed))]

    adding = replace(SINK, output_modes=("append",))
    once = OperatorPart("once", "a deduplication", repeats=False)
    operators = [once, OperatorPart("count", "a count")]
    assert refused() == []  # each takes every mode
    assert refused(sinks=[adding]) == ["sink `out`"]  # the plan is not known: any row may repeat
    for upstream, found in {
        ("in",): [],  # Spark repeats no row of a stream without state
        ("in", "once"): [],
        ("in", "once", "count"): ["sink `out`"],
    }.items():
        assert refused(operators=operators, sinks=[replace(adding, upstream=upstream)]) == found
