"""What ``format("seamark")`` guarantees: the same report as a job's, of its one sink."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from seamark.api.config import CheckpointMode
from seamark.checkpoint.batch_log import UID
from seamark.contracts.sink import FilesSink, TwoPhaseCommitSink
from seamark.files.location import holds
from seamark.guarantees.end_to_end import GuaranteeReport, analyse
from seamark.guarantees.facts import JobFacts, SinkPart
from seamark.guarantees.rules import sink_in_checkpoint
from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding, FindingCode

CONDITION = (
    "if the plan gives the same rows again: a batch that Spark runs again after its decision is "
    "passed over (docs/data-source.md)"
)


def guarantee_of(sink: TwoPhaseCommitSink[Any]) -> GuaranteeReport:
    """Return the report. Nothing is known of the query's sources and operators."""
    report = analyse(_facts(sink))
    sinks = tuple(
        replace(one, note="; ".join(filter(None, (one.note, CONDITION)))) for one in report.sinks
    )
    return replace(report, sinks=sinks)


def require_apart(sink: TwoPhaseCommitSink[Any], own: Iterable[str]) -> None:
    """Raise ConfigurationError if the sink's directory shows the query's `own` ones to readers."""
    shown = isinstance(sink, FilesSink) and any(
        holds(getattr(sink, "path", None), at) for at in own
    )
    for told in sink_in_checkpoint(_facts(sink, in_checkpoint=shown)):
        raise ConfigurationError(Finding(FindingCode.SK008, *told))


def _facts(sink: TwoPhaseCommitSink[Any], *, in_checkpoint: bool = False) -> JobFacts:
    part = SinkPart(
        UID, sink.describe(), sink.way, places=tuple(sink.places), in_checkpoint=in_checkpoint
    )
    return JobFacts([], [], [part], CheckpointMode.EXACTLY_ONCE.value)
