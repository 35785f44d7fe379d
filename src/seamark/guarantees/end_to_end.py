"""The end-to-end guarantee: the weakest of source, processing, sink and checkpoint mode.

| sink \\ source       | not replayable | replayable                                           |
|---------------------|----------------|------------------------------------------------------|
| none                | at-most-once   | at-least-once                                        |
| idempotent          | at-most-once   | exactly-once (transient inconsistency in a recovery) |
| write-ahead log     | at-most-once   | at-least-once                                        |
| … with a token      | at-most-once   | exactly-once                                         |
| two-phase commit    | at-most-once   | exactly-once                                         |

`job.explain()` calls `analyse`. Every sink is taken to read every source, so a job whose sinks read
different sources may be better than its report, never worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seamark.model.guarantee import Guarantee, SinkWay

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
class SourcePart:
    """A source: whether the rows between two recorded offsets can be read again."""

    uid: str
    description: str
    replayable: bool


@dataclass(frozen=True)
class OperatorPart:
    """A stateful operator. `named`: its uid is the program's, not Spark's number."""

    uid: str
    description: str
    named: bool = True


@dataclass(frozen=True)
class SinkPart:
    """A sink, and its part in the checkpoint.

    `varying` are the columns of its rows whose values a replay may change, each with its function
    (``id: uuid()``); `epoch_time` the columns with the time of their epoch's planning.
    """

    uid: str
    description: str
    way: SinkWay
    varying: tuple[str, ...] = ()
    epoch_time: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartGuarantee:
    """The best level of a job with this part, and the reason.

    `kind`: source, operator, sink or storage.
    """

    uid: str
    kind: str
    description: str
    guarantee: Guarantee
    why: str


@dataclass(frozen=True)
class SinkGuarantee:
    """How often a reader of one sink sees each source row.

    `note` is the condition. `weakest` is the part with the lowest level (a uid, or ``checkpoint
    mode``) and `remedy` the way to raise it; both are "" without such a part.
    """

    uid: str
    guarantee: Guarantee
    note: str
    weakest: str
    remedy: str


@dataclass(frozen=True)
class GuaranteeReport:
    """The parts in the order of the data, the end-to-end level of each sink, and the job's.

    The job has the level of its weakest sink, with the part responsible and the remedy ("" without
    such a part). `sharing` has a line for each stream shared by sinks, and for each computed more
    than once.
    """

    mode: Guarantee
    parts: tuple[PartGuarantee, ...]
    sinks: tuple[SinkGuarantee, ...]
    guarantee: Guarantee
    weakest: str
    remedy: str
    sharing: tuple[str, ...] = ()

    def __str__(self) -> str:
        rows = [("KIND", "UID", "GUARANTEE", "WHAT", "WHY")]
        rows += [(p.kind, p.uid, p.guarantee.value, p.description, p.why) for p in self.parts]
        lines = [*_table(rows), "", f"checkpoint mode: {self.mode.value}", "end to end:"]
        for sink in self.sinks:
            note = f" ({sink.note})" if sink.note else ""
            lowered = f", because of {sink.weakest}" if sink.weakest else ""
            lines.append(f"  into {sink.uid}: {sink.guarantee.value}{note}{lowered}")
        if not self.sinks:
            lines.append("  no sink is declared yet")
        lines.append(f"the job: {self.guarantee.value}")
        if self.weakest:
            lines.append(f"weakest link: {self.weakest}; to raise it, {self.remedy}")
        return "\n".join([*lines, *(f"plan: {line}" for line in self.sharing)])

    def to_json(self) -> dict[str, Any]:
        """Return it in the fields of ``/jobs/:id/guarantees``, with the mode and `sharing`."""

        def plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            return {k: v.value if isinstance(v, Guarantee) else v for k, v in pairs}

        return asdict(self, dict_factory=plain)


_EPHEMERAL = PartGuarantee(
    "checkpoint storage",
    "storage",
    "ephemeral, for tests",
    Guarantee.NONE,
    "checkpoints are deleted at the end of the program: after a crash the job starts anew, so rows "
    "may be missing or written again",
)


def analyse(
    sources: Sequence[SourcePart],
    operators: Sequence[OperatorPart],
    sinks: Sequence[SinkPart],
    mode: Guarantee | str,
    *,
    durable: bool = True,
    sharing: tuple[str, ...] = (),
) -> GuaranteeReport:
    """Return the job's guarantees. Pure.

    `mode` is the checkpoint mode, as a `Guarantee` or its value (``"exactly-once"``): a cap.
    `durable`: whether checkpoints outlive the program; without them no guarantee does. `sharing` is
    passed to the report.
    """
    cap = Guarantee(mode)
    parts = (
        *(_source(source) for source in sources),
        *(_operator(operator) for operator in operators),
        *(_sink(sink) for sink in sinks),
        *(() if durable else (_EPHEMERAL,)),
    )
    ends = tuple(_end_to_end(sources, sink, cap, durable) for sink in sinks)
    lowest = min(ends, key=lambda end: _RANK[end.guarantee], default=None)
    if lowest is None:  # not runnable, but can be explained while being written
        level = weakest([cap, *(part.guarantee for part in parts)])
        return GuaranteeReport(cap, parts, (), level, "", "", sharing)
    return GuaranteeReport(
        cap, parts, ends, lowest.guarantee, lowest.weakest, lowest.remedy, sharing
    )


def _source(part: SourcePart) -> PartGuarantee:
    if part.replayable:
        level, why = Guarantee.EXACTLY_ONCE, "replayable: a failed epoch reads the same rows again"
    else:
        level, why = Guarantee.AT_MOST_ONCE, "not replayable: rows of a failed epoch are gone"
    return PartGuarantee(part.uid, "source", part.description, level, why)


def _operator(part: OperatorPart) -> PartGuarantee:
    why = "state is committed with the epoch"
    if not part.named:
        why += "; it has no uid: name it with job.uid(dataframe, 'a-name'), or a restore into a "
        why += "changed program cannot find its state"
    return PartGuarantee(part.uid, "operator", part.description, Guarantee.EXACTLY_ONCE, why)


def _sink(part: SinkPart) -> PartGuarantee:
    why = f"{part.way.value}: {_SINK_WHY[part.way]}"
    if part.way is SinkWay.IDEMPOTENT and part.varying:
        why += f"; a replay may give other values ({', '.join(part.varying)}), which stand beside "
        why += "the first where they make another key"
    if part.epoch_time:
        why += f"; the time in {', '.join(part.epoch_time)} is the epoch's own: a replay gives the "
        why += "same"
    return PartGuarantee(part.uid, "sink", part.description, _SINK_LEVEL[part.way], why)


def _end_to_end(
    sources: Sequence[SourcePart],
    sink: SinkPart,
    cap: Guarantee,
    durable: bool,
) -> SinkGuarantee:
    """Gather the reasons to be below EXACTLY_ONCE; the first of the lowest is the weakest link."""
    idempotent = sink.way is SinkWay.IDEMPOTENT
    reasons: list[tuple[Guarantee, str, str]] = []
    if not durable:
        remedy = "give CheckpointConfig a storage that outlives the program, e.g. a directory"
        reasons.append((Guarantee.NONE, _EPHEMERAL.uid, remedy))
    for source in sources:
        if not source.replayable:
            remedy = (
                f"read {source.uid} from a source that keeps its rows, e.g. put them into Kafka "
                "first and use KafkaSource"
            )
            reasons.append((source_to_sink(False, sink.way), source.uid, remedy))
    level = _SINK_LEVEL[sink.way]
    if level is not Guarantee.EXACTLY_ONCE:
        remedy = f"give {sink.uid} a sink with two-phase commit"
        if sink.way is SinkWay.WRITE_AHEAD_LOG:
            remedy += ", or make its send idempotent by the token it is given"
        reasons.append((level, sink.uid, remedy))
    if idempotent and sink.varying:
        remedy = (
            f"make {', '.join(sink.varying)} deterministic, or give {sink.uid} a sink with "
            "two-phase commit: an idempotent one holds only if a replay gives the same rows"
        )
        reasons.append((Guarantee.AT_LEAST_ONCE, sink.uid, remedy))
    if cap is not Guarantee.EXACTLY_ONCE:
        remedy = 'set CheckpointConfig mode to "exactly-once"'
        reasons.append((cap, "checkpoint mode", remedy))

    guarantee, weakest_part, remedy = min(
        reasons, key=lambda reason: _RANK[reason[0]], default=(Guarantee.EXACTLY_ONCE, "", "")
    )
    note = TRANSIENT if idempotent and guarantee is Guarantee.EXACTLY_ONCE else ""
    return SinkGuarantee(sink.uid, guarantee, note, weakest_part, remedy)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
