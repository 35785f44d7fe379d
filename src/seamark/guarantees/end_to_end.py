"""The end-to-end guarantee: the weakest of source, processing, sink and checkpoint mode.

| sink \\ source       | not replayable | replayable                                           |
|---------------------|----------------|------------------------------------------------------|
| none                | at-most-once   | at-least-once                                        |
| idempotent          | at-most-once   | exactly-once (transient inconsistency in a recovery) |
| write-ahead log     | at-most-once   | at-least-once                                        |
| … with a token      | at-most-once   | exactly-once                                         |
| two-phase commit    | at-most-once   | exactly-once                                         |

`job.explain()` calls `analyse`. A sink has the sources that feed it in Spark's plan. Without a plan
it has every source: then a job may be better than its report, never worse.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seamark.guarantees.facts import JobFacts, OperatorPart, PlannedFunction, SinkPart, SourcePart
from seamark.guarantees.rules import declared_findings, repeated_remedy
from seamark.model.findings import Finding, Severity, heaviest_first
from seamark.model.guarantee import Guarantee, SinkWay
from seamark.model.records import read_as, record_of

TRANSIENT = "transient inconsistency while recovering"

_SINK_LEVEL = {
    SinkWay.NONE: Guarantee.AT_LEAST_ONCE,
    SinkWay.WRITE_AHEAD_LOG: Guarantee.AT_LEAST_ONCE,
    SinkWay.WRITE_AHEAD_LOG_WITH_TOKEN: Guarantee.EXACTLY_ONCE,
    SinkWay.IDEMPOTENT: Guarantee.EXACTLY_ONCE,
    SinkWay.TWO_PHASE_COMMIT: Guarantee.EXACTLY_ONCE,
}
_SINK_WHY = {
    SinkWay.NONE: "rows are visible as they are written; a replayed epoch writes them again",
    SinkWay.WRITE_AHEAD_LOG: (
        "rows are sent after the decision; a crash between sending and its confirmation sends twice"
    ),
    SinkWay.WRITE_AHEAD_LOG_WITH_TOKEN: (
        "rows are sent after the decision, with a token by which the target drops a repetition"
    ),
    SinkWay.IDEMPOTENT: (
        "a replayed epoch overwrites its own rows; until it has, a reader may see older values"
    ),
    SinkWay.TWO_PHASE_COMMIT: "rows become visible once, after the decision",
}
_RANK = {level: rank for rank, level in enumerate(Guarantee)}


def weakest(levels: Iterable[Guarantee]) -> Guarantee:
    """Return the lowest level; EXACTLY_ONCE without any."""
    return min(levels, key=_RANK.__getitem__, default=Guarantee.EXACTLY_ONCE)


def source_to_sink(replayable: bool, way: SinkWay) -> Guarantee:
    """Return the table's entry."""
    return _SINK_LEVEL[way] if replayable else Guarantee.AT_MOST_ONCE


@dataclass(frozen=True)
class PartGuarantee:
    """The best level of a job with this part, and the reason. `kind`: source, operator, sink or
    storage. `places`: see `TwoPhaseCommitSink`."""

    uid: str
    kind: str
    description: str
    guarantee: Guarantee
    why: str
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinkGuarantee:
    """How often a reader of one sink sees each source row. `note` is the condition. `weakest` is
    the part with the lowest level (a uid, or ``checkpoint mode``) and `remedy` the way to raise it;
    both are "" without such a part. `chain` lists the uids from its sources to the sink."""

    uid: str
    guarantee: Guarantee
    note: str
    weakest: str
    remedy: str
    chain: tuple[str, ...] = ()


@dataclass(frozen=True)
class GuaranteeReport:
    """The parts in the order of the data, the end-to-end level of each sink, and the job's. The job
    has the level of its weakest sink, with the part responsible and the remedy ("" without such a
    part). `sharing` has a line for each stream shared by sinks, and for each computed more than
    once. `findings` are the heaviest first. `asked` tells whether real systems were asked."""

    mode: Guarantee
    parts: tuple[PartGuarantee, ...]
    sinks: tuple[SinkGuarantee, ...]
    guarantee: Guarantee
    weakest: str
    remedy: str
    sharing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    asked: bool = False

    def with_findings(self, findings: Iterable[Finding]) -> "GuaranteeReport":
        """Return the report with further findings, of the systems asked."""
        return replace(self, findings=heaviest_first((*self.findings, *findings)), asked=True)

    def hidden(self, hide: Callable[[Any], Any]) -> "GuaranteeReport":
        """Return the report with `hide` applied to its texts (`Redactor.everywhere`)."""
        return GuaranteeReport.from_json(hide(self.to_json()), self.mode.value)

    def __str__(self) -> str:
        rows = [("", "KIND", "UID", "GUARANTEE", "WHAT", "WHY")]
        rows += [
            (self._mark(p.uid), p.kind, p.uid, p.guarantee.value, p.description, p.why)
            for p in self.parts
        ]
        mode = f"{self._mark('checkpoint mode')} checkpoint mode: {self.mode.value}".lstrip()
        lines = [*_table(rows), "", mode, "end to end:"]
        for sink in self.sinks:
            note = f" ({sink.note})" if sink.note else ""
            lowered = f", because of {sink.weakest}" if sink.weakest else ""
            lines.append(f"  into {sink.uid}: {sink.guarantee.value}{note}{lowered}")
            lines += [f"    {' -> '.join(sink.chain)}"] if sink.chain else []
        if not self.sinks:
            lines.append("  no sink is declared yet")
        lines.append(f"the job: {self.guarantee.value}")
        if self.weakest:
            lines.append(f"weakest link: {self.weakest}; to raise it, {self.remedy}")
        lines += (f"plan: {line}" for line in self.sharing)
        return "\n".join([*lines, *self._findings()])

    def _mark(self, uid: str) -> str:
        return ">" if uid == self.weakest else ""

    def _findings(self) -> Iterator[str]:
        asked = "servers asked" if self.asked else "no server asked: --preflight does"
        counts = Counter(finding.weight for finding in self.findings)
        shown = ", ".join(
            f"{n} {kind.value}{'s' if n > 1 else ''}" for kind in Severity if (n := counts[kind])
        )
        yield f"findings: {shown or 'none'} ({asked})"
        for one in self.findings:
            yield f"  {one.weight.value} {one.code.name} {one.subject}: {one.found}; {one.remedy}"
        if self.findings:
            yield "  docs/findings.md explains each code"

    def to_json(self) -> dict[str, Any]:
        """Return it in the fields of ``/jobs/:id/guarantees``."""
        findings = [finding.to_json() for finding in self.findings]
        return {**record_of(replace(self, findings=())), "findings": findings}

    @staticmethod
    def from_json(page: Mapping[str, Any], mode: str) -> "GuaranteeReport":
        """Read a stored page of ``/jobs/:id/guarantees``; an older version's lacks some fields.
        Raises KeyError, TypeError or ValueError if it has another form."""
        findings = tuple(Finding.from_json(one) for one in page.get("findings", ()))
        fields = {**page, "mode": mode, "findings": ()}
        return replace(read_as(GuaranteeReport, fields, newer=True), findings=findings)


_EPHEMERAL = PartGuarantee(
    "checkpoint storage",
    "storage",
    "ephemeral, for tests",
    Guarantee.NONE,
    "checkpoints are deleted at the end of the program: after a crash the job starts anew, so rows "
    "may be missing or written again",
)


def analyse(job: JobFacts) -> GuaranteeReport:
    """Return the job's guarantees, and the findings of the rules on its declaration. Pure."""
    cap = Guarantee(job.mode)
    parts = (
        *(_source(source) for source in job.sources),
        *(_operator(operator) for operator in job.operators),
        *(_sink(sink) for sink in job.sinks),
        *(() if job.durable else (_EPHEMERAL,)),
    )
    ends = tuple(_end_to_end(job, sink) for sink in job.sinks)
    lowest = min(ends, key=lambda end: _RANK[end.guarantee], default=None)
    level, weakest_part, remedy = (
        # not runnable, but can be explained while being written
        (weakest([cap, *(part.guarantee for part in parts)]), "", "")
        if lowest is None
        else (lowest.guarantee, lowest.weakest, lowest.remedy)
    )
    findings = declared_findings(job)
    return GuaranteeReport(cap, parts, ends, level, weakest_part, remedy, job.sharing, findings)


def _source(part: SourcePart) -> PartGuarantee:
    if part.replayable:
        level, why = Guarantee.EXACTLY_ONCE, "replayable: a failed epoch reads the same rows again"
    else:
        level, why = Guarantee.AT_MOST_ONCE, "not replayable: rows of a failed epoch are gone"
    return PartGuarantee(part.uid, "source", part.description, level, why, part.places)


def _operator(part: OperatorPart) -> PartGuarantee:
    why = "state is committed with the epoch"
    if not part.named:
        why += "; it has no uid: name it with job.uid(dataframe, 'a-name') of an sm.Job, or a "
        why += "restore into a changed program cannot find its state"
    return PartGuarantee(part.uid, "operator", part.description, Guarantee.EXACTLY_ONCE, why)


def _sink(part: SinkPart) -> PartGuarantee:
    why = f"{part.way.value}: {_SINK_WHY[part.way]}"
    if part.way is SinkWay.IDEMPOTENT and part.varying:
        why += f"; a replay may give other values ({_listed(part.varying)}), which stand beside "
        why += "the first where they make another key"
    if part.epoch_time:
        why += f"; the time in {_listed(part.epoch_time)} is the epoch's own: a replay gives the "
        why += "same"
    return PartGuarantee(
        part.uid, "sink", part.description, _SINK_LEVEL[part.way], why, part.places
    )


def _end_to_end(job: JobFacts, sink: SinkPart) -> SinkGuarantee:
    """Gather the reasons to be below EXACTLY_ONCE; the first of the lowest is the weakest link."""
    idempotent = sink.way is SinkWay.IDEMPOTENT
    reasons: list[tuple[Guarantee, str, str]] = []
    if not job.durable:
        remedy = "give CheckpointConfig a storage that outlives the program, e.g. a directory"
        reasons.append((Guarantee.NONE, _EPHEMERAL.uid, remedy))
    for source in job.sources_of(sink):
        if not source.replayable:
            remedy = (
                f"read {source.uid} from a source that keeps its rows, e.g. put them into Kafka "
                "first and use KafkaSource"
            )
            reasons.append((source_to_sink(False, sink.way), source.uid, remedy))
    level = _SINK_LEVEL[sink.way]
    if level is not Guarantee.EXACTLY_ONCE:
        reasons.append((level, sink.uid, repeated_remedy(sink)))
    if idempotent and sink.varying:
        remedy = (
            f"make {_listed(sink.varying)} deterministic, or give {sink.uid} a sink with "
            "two-phase commit: an idempotent one holds only if a replay gives the same rows"
        )
        reasons.append((Guarantee.AT_LEAST_ONCE, sink.uid, remedy))
    cap = Guarantee(job.mode)
    if cap is not Guarantee.EXACTLY_ONCE:
        remedy = 'set CheckpointConfig mode to "exactly-once"'
        reasons.append((cap, "checkpoint mode", remedy))

    guarantee, weakest_part, remedy = min(
        reasons, key=lambda reason: _RANK[reason[0]], default=(Guarantee.EXACTLY_ONCE, "", "")
    )
    note = TRANSIENT if idempotent and guarantee is Guarantee.EXACTLY_ONCE else ""
    chain = () if sink.upstream is None else (*sink.upstream, sink.uid)
    return SinkGuarantee(sink.uid, guarantee, note, weakest_part, remedy, chain)


def _listed(functions: Sequence[PlannedFunction]) -> str:
    return ", ".join(map(str, functions))


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
