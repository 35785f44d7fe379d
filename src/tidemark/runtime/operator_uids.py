"""Which source and which stateful operator of Spark's plan has which uid.

Spark numbers the sources of a query as they stand in its plan from left to right, and its stateful
operators from the sink's side (`IncrementalExecution`'s StateOpIdRule): ``state/<number>``. What a
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
    """The uids by Spark's numbers; what has none is called by its number."""

    sources: Mapping[int, str] = field(default_factory=dict)
    operators: Mapping[int, str] = field(default_factory=dict)

    def of_source(self, index: int) -> str:
        """Return the uid of a source."""
        return self.sources.get(index, f"source-{index}")

    def of_operator(self, index: int) -> str:
        """Return the uid of a stateful operator."""
        return self.operators.get(index, f"operator-{index}")


def find_uids(
    stream: DataFrame, sources: Mapping[str, DataFrame], operators: Mapping[str, DataFrame]
) -> OperatorUids:
    """Return the uids in the plan of `stream`, given the DataFrames that they were given for."""
    plan = analysed(stream)
    return OperatorUids(
        _matched(list(sources_of(plan)), sources, sources_of),
        _matched(list(_stateful(plan)), operators, _stateful),
    )


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


def sources_of(plan: Any) -> Iterator[Any]:
    """Yield the plan's streaming sources, each once."""
    seen: list[Any] = []
    leaves = plan.collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.isStreaming() and not any(leaf.sameResult(other) for other in seen):
            seen.append(leaf)
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
