"""Which source and which stateful operator of Spark's plan has which uid.

Spark numbers the sources of a query as they stand in its plan from left to right, each once, and
its stateful operators from the sink's side (`IncrementalExecution`'s StateOpIdRule):
``state/<number>``. Its offset log has a line for each time that a source stands in the plan. What a
user has named is a DataFrame, so its own source or last stateful operator is looked up in the plan
of the whole query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

_STATEFUL = frozenset(
    (
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "TransformWithState",
        "TransformWithStateInPySpark",
    )
)


@dataclass(frozen=True)
class OperatorUids:
    """The uids by Spark's numbers; what has none is called by its number. `source_lines` are the
    numbers of the sources whose offsets stand in the offset log, line by line."""

    sources: Mapping[int, str] = field(default_factory=dict)
    operators: Mapping[int, str] = field(default_factory=dict)
    source_lines: tuple[int, ...] = ()
    operator_count: int = 0

    def of_source(self, index: int) -> str:
        """Return the uid of a source."""
        return self.sources.get(index, f"source-{index}")

    def of_operator(self, index: int) -> str:
        """Return the uid of a stateful operator."""
        return self.operators.get(index, f"operator-{index}")

    def source_numbers(self) -> dict[str, int]:
        """Return Spark's number of each source by uid."""
        return {self.of_source(index): index for index in sorted(set(self.source_lines))}

    def operator_numbers(self) -> dict[str, int]:
        """Return Spark's number of each stateful operator by uid."""
        return {self.of_operator(index): index for index in range(self.operator_count)}


def find_uids(
    stream: DataFrame, sources: Mapping[str, DataFrame], operators: Mapping[str, DataFrame]
) -> OperatorUids:
    """Return the uids in the plan of `stream`, given the DataFrames that they were given for."""
    plan = analysed(stream)
    distinct, lines = distinct_sources(plan)
    stateful = list(_stateful(plan))
    return OperatorUids(
        _matched(distinct, sources, _streaming_leaves),
        _matched(stateful, operators, _stateful),
        lines,
        len(stateful),
    )


def moved(kind: str, before: Sequence[str], now: Mapping[int, str]) -> Iterator[str]:
    """Yield which operators, or sources, of a checkpoint have another uid in the program, by
    Spark's number; one that had no uid may have got one."""
    for number, uid in enumerate(before):
        if uid != f"{kind}-{number}" and now.get(number, uid) != uid:
            here = now[number]
            yield f"{kind} {number} of the checkpoint is {uid!r}, and {here!r} in the program"


def is_stateful(stream: DataFrame) -> bool:
    """Whether the query keeps state."""
    return any(True for _ in _stateful(analysed(stream)))


def _matched(nodes: Sequence[Any], declared: Mapping[str, DataFrame], parts: Any) -> dict[int, str]:
    found: dict[int, str] = {}
    for uid, frame in declared.items():
        own = next(parts(analysed(frame)), None)
        for index, node in enumerate(nodes):
            if own is not None and index not in found and node.sameResult(own):
                found[index] = uid
                break
    return found


def analysed(frame: DataFrame) -> Any:
    """Return the analysed plan, an object of Spark's."""
    return frame._jdf.queryExecution().analyzed()


def distinct_sources(plan: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the plan's streaming sources by Spark's numbers, and the number of each occurrence."""
    distinct: list[Any] = []
    lines = []
    for leaf in _streaming_leaves(plan):
        number = next((n for n, one in enumerate(distinct) if leaf.equals(one)), len(distinct))
        if number == len(distinct):
            distinct.append(leaf)
        lines.append(number)
    return distinct, tuple(lines)


def _streaming_leaves(plan: Any) -> Iterator[Any]:
    leaves = plan.collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.isStreaming():
            yield leaf


def is_operator(node: Any) -> bool:
    """Whether a streaming node of an analysed plan keeps state."""
    name = node.getClass().getSimpleName()
    return name in _STATEFUL or (
        name == "Join" and node.left().isStreaming() and node.right().isStreaming()
    )


def _stateful(plan: Any) -> Iterator[Any]:
    """Yield the plan's stateful operators from the sink's side."""
    if not plan.isStreaming():
        return
    if is_operator(plan):
        yield plan
    children = plan.children().iterator()
    while children.hasNext():
        yield from _stateful(children.next())
