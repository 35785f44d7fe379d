"""Maps the sources and stateful operators of Spark's plan to their uids.

Spark numbers the sources of a query from left to right in its plan, each once. It numbers stateful
operators from the sink's side (`IncrementalExecution`'s StateOpIdRule): ``state/<number>``. Its
offset log has a line for each occurrence of a source in the plan. A user gives a uid to a
DataFrame, so its source or last stateful operator is looked up in the whole plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from seamark.runtime.plans import Compared, analysed, children, items, name_of

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
    """The uids by Spark's numbers; a part without a uid is called by its number. `source_lines`
    lists, line by line, the numbers of the sources with offsets in the offset log."""

    sources: Mapping[int, str] = field(default_factory=dict)
    operators: Mapping[int, str] = field(default_factory=dict)
    source_lines: tuple[int, ...] = ()
    operator_count: int = 0
    source_names: Mapping[int, str] = field(default_factory=dict)
    """The names given by ``DataStreamReader.name``, by number: Spark's keys in the offset log."""

    def lines_of(self, offsets: Mapping[int | str, Any]) -> list[Any]:
        """Return the offset of each source in `source_lines`, from `read_offsets`; as many as there
        are if they are another program's."""
        last = {number: str(line) for line, number in enumerate(self.source_lines)}
        keys = {**last, **self.source_names}
        by_name = self.source_names and 0 not in offsets
        if by_name or set(offsets) == set(keys.values()):
            return [offsets.get(keys[number]) for number in self.source_lines]
        return list(offsets.values())

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
    plans: Mapping[str, Any], sources: Mapping[str, DataFrame], operators: Mapping[str, DataFrame]
) -> OperatorUids:
    """Return the uids in a query. The query is the union of `plans`, each keyed by the name of its
    branch; `sources` and `operators` map uids to the user's DataFrames."""
    leaves, lines = distinct_sources(plans.values())
    named_leaves, named_nodes = named_parts(sources, operators)
    nodes = [list(_stateful(plan)) for plan in plans.values()]
    # Among equal operators of one branch, only the first gets the uid, as ever.
    found = [_matched(of_branch, named_nodes) for of_branch in nodes]
    in_branches = Counter(uid for uids in found for uid in uids.values())
    by_number, first = {}, 0
    for branch, of_branch, uids in zip(plans, nodes, found, strict=True):
        for index, uid in uids.items():
            by_number[first + index] = f"{uid}@{branch}" if in_branches[uid] > 1 else uid
        first += len(of_branch)
    names = {n: name for n, leaf in enumerate(leaves) if (name := name_in_spark(leaf))}
    return OperatorUids({**names, **_matched(leaves, named_leaves)}, by_number, lines, first, names)


def name_in_spark(leaf: Any) -> str:
    """Return the name given to a source by ``DataStreamReader.name``; "" if it has none."""
    try:
        name = leaf.sourceIdentifyingName()
    except Py4JError:  # Spark before 4.2, or no source of its own
        return ""
    return str(name.name()) if name_of(name) == "UserProvided" else ""


def moved(kind: str, before: Sequence[str], now: Mapping[int, str]) -> Iterator[str]:
    """Yield a sentence for each operator, or source, with another uid in the program than in the
    checkpoint, by Spark's number. A part without a uid may have got one since."""
    for number, uid in enumerate(before):
        if uid != f"{kind}-{number}" and now.get(number, uid) != uid:
            here = now[number]
            yield f"{kind} {number} of the checkpoint is {uid!r}, and {here!r} in the program"


def named_parts(
    sources: Mapping[str, DataFrame], operators: Mapping[str, DataFrame]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sources, and the stateful operators, by their DataFrames' uids."""
    leaves = {uid: next(_streaming_leaves(analysed(frame)), None) for uid, frame in sources.items()}
    nodes = {uid: next(_stateful(analysed(frame)), None) for uid, frame in operators.items()}
    return _there(leaves), _there(nodes)


def _there(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {uid: part for uid, part in parts.items() if part is not None}


def own_names(plan: Any, named: Mapping[str, Any]) -> list[str | None]:
    """Return a uid for each source and stateful operator of a plan: the uid if the part itself is
    one of `named`, None if it is not or is merely equal. Equal plans give equal orders."""
    parts = [*_stateful(plan), *_streaming_leaves(plan)]
    return [next((uid for uid, own in named.items() if part.equals(own)), None) for part in parts]


def _matched(nodes: Sequence[Any], named: Mapping[str, Any]) -> dict[int, str]:
    """Return the uids by the nodes' numbers. Of equal nodes the named one itself has the uid."""
    found: dict[int, str] = {}
    for form in (lambda plan: plan, Compared):  # py4j compares plans by their `equals`
        left = {uid: form(own) for uid, own in named.items() if uid not in found.values()}
        free = {n: form(node) for n, node in enumerate(nodes) if left and n not in found}
        for uid, own in left.items():
            number = next((n for n, node in free.items() if node == own), None)
            if number is not None:
                found[number] = uid
                del free[number]
    return found


def distinct_sources(plans: Iterable[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Return the streaming sources of a union of plans by number, and each occurrence's number."""
    distinct: list[Any] = []
    lines = []
    for leaf in (leaf for plan in plans for leaf in _streaming_leaves(plan)):
        number = next((n for n, one in enumerate(distinct) if leaf.equals(one)), len(distinct))
        if number == len(distinct):
            distinct.append(leaf)
        lines.append(number)
    return distinct, tuple(lines)


def _streaming_leaves(plan: Any) -> Iterator[Any]:
    return (leaf for leaf in items(plan.collectLeaves()) if leaf.isStreaming())


def is_operator(node: Any) -> bool:
    """Tell whether a streaming node of an analysed plan keeps state."""
    name = name_of(node)
    return name in _STATEFUL or (
        name == "Join" and node.left().isStreaming() and node.right().isStreaming()
    )


def _stateful(plan: Any) -> Iterator[Any]:
    """Yield the plan's stateful operators from the sink's side."""
    if not plan.isStreaming():
        return
    if is_operator(plan):
        yield plan
    for child in children(plan):
        yield from _stateful(child)
