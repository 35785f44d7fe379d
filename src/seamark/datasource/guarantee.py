"""What ``format("seamark")`` guarantees: the same report as a job's, of its one sink."""

from dataclasses import replace
from typing import Any

from seamark.api.config import CheckpointMode
from seamark.checkpoint.batch_log import UID
from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.guarantees.end_to_end import GuaranteeReport, analyse
from seamark.guarantees.facts import JobFacts, SinkPart

CONDITION = (
    "if the plan gives the same rows again: a batch that Spark runs again after its decision is "
    "passed over (docs/data-source.md)"
)


def guarantee_of(sink: TwoPhaseCommitSink[Any]) -> GuaranteeReport:
    """Return the report. Nothing is known of the query's sources and operators."""
    part = SinkPart(UID, sink.describe(), sink.way, places=tuple(sink.places))
    report = analyse(JobFacts([], [], [part], CheckpointMode.EXACTLY_ONCE.value))
    sinks = tuple(
        replace(one, note="; ".join(filter(None, (one.note, CONDITION)))) for one in report.sinks
    )
    return replace(report, sinks=sinks)
