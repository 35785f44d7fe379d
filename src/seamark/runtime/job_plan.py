"""Spark's analysed plan of a declared job: its one stream, the uids of its parts, and the flow from
sources and operators to operators and sinks.

The query's plan is the union of its branches (`branches.py`). So the branches' shared plans, from
left to right, hold the operators in the order of the query's numbers (`operator_uids.py`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.declarations import JobDeclaration
from seamark.model.job_graph import JobGraph, Vertex
from seamark.runtime.branches import United
from seamark.runtime.keyed_process import claim_keyed
from seamark.runtime.operator_uids import (
    OperatorUids,
    distinct_sources,
    find_uids,
    is_operator,
)
from seamark.runtime.plans import children, name_of
from seamark.runtime.shared_stream import Branch, branches_of, shared_plans

log = logging.getLogger(__name__)


class JobPlan(United):
    """The plan of a declared job with at least one sink. Made once, for all runs of the job and for
    all reports on it. Asks Spark: some tenths of a second."""

    def __init__(self, declared: JobDeclaration) -> None:
        self.keyed = claim_keyed(declared)
        sources = {source.uid: source.dataframe for source in declared.sources.values()}
        sinks = [sink for sink in declared.sinks.values() if not sink.dead_letters_of]
        super().__init__(branches_of(sinks, sources, declared.operators))
        self.declared = declared
        self.spark: SparkSession = sinks[0].dataframe.sparkSession
        self.uids = find_uids(shared_plans(self.branches), sources, declared.operators)

    def graph(self) -> JobGraph:
        """Return the job's graph; raises Spark's errors."""
        sources = distinct_sources(shared_plans(self.branches).values())[0]
        plan = _Plan(self.declared, self.uids, sources)
        ends = [
            Vertex(sink.uid, "sink", sink.description, inputs)
            for branch in self.branches
            for inputs in [plan.feeding(branch.shared)]
            for sink in branch.sinks
        ]
        letters = [
            Vertex(sink.uid, "sink", sink.description, (sink.dead_letters_of,))
            for sink in self.declared.sinks.values()
            if sink.dead_letters_of
        ]
        vertices = (*plan.sources.values(), *plan.operators, *ends, *letters)
        return JobGraph(vertices, tuple(_sharing(self.branches, self.uids)))


def job_graph(declared: JobDeclaration, plan: JobPlan | None = None) -> JobGraph:
    """Return the graph of a declared job; `plan` is the job's plan, if it exists already. It is for
    people alone: if the plan cannot be walked, return an empty graph."""
    try:
        return (plan or JobPlan(declared)).graph()
    except Exception as error:
        log.warning("the graph of job %s cannot be shown: %s", declared.name, error)
        return JobGraph()


def _sharing(branches: Sequence[Branch], uids: OperatorUids) -> Iterator[str]:
    for branch in branches:
        if len(branch.sinks) > 1:
            names = ", ".join(sink.uid for sink in branch.sinks)
            yield f"{names} share one stream: what they have in common is computed once"
        for sink in branch.sinks:
            if sink.process is not None:
                tasks = f"process {sink.process.uid} runs in the tasks of {sink.uid}"
                yield f"{tasks}: unaligned epochs interrupt it"
    for number, times in sorted(Counter(uids.source_lines).items()):
        if times > 1:
            yield f"source {uids.of_source(number)} is read {times} times in each epoch"
    several = Counter(uid.partition("@")[0] for uid in uids.operators.values())
    for uid, times in several.items():
        if times > 1:
            names = ", ".join(n for n in uids.operators.values() if n.startswith(f"{uid}@"))
            yield f"operator {uid} is computed {times} times, each with state of its own: {names}"


class _Plan:
    """The parts met while walking the branches, in the order of the data."""

    def __init__(
        self, declared: JobDeclaration, uids: OperatorUids, sources: Sequence[Any]
    ) -> None:
        self._declared = declared
        self._uids = uids
        self._nodes = sources
        self._numbers = iter(range(1_000_000))
        self.sources: dict[str, Vertex] = {}
        self.operators: list[Vertex] = []

    def feeding(self, node: Any) -> tuple[str, ...]:
        """Return the ids of the nearest parts upstream of a node of the plan, its own too."""
        if not node.isStreaming():
            return ()
        below = list(children(node))
        if not below:
            return self._source(node)
        number = next(self._numbers) if is_operator(node) else None
        inputs = tuple(dict.fromkeys(id_ for child in below for id_ in self.feeding(child)))
        if number is None:
            return inputs
        id_, has_uid = self._uids.of_operator(number), number in self._uids.operators
        self.operators.append(Vertex(id_, "operator", name_of(node), inputs, has_uid))
        return (id_,)

    def _source(self, leaf: Any) -> tuple[str, ...]:
        for same in (leaf.equals, leaf.sameResult):  # two streams of one topic are two sources
            for number, node in enumerate(self._nodes):
                if same(node):
                    return self._numbered_source(number)
        return ()

    def _numbered_source(self, number: int) -> tuple[str, ...]:
        id_, has_uid = self._uids.of_source(number), number in self._uids.sources
        known = self._declared.sources.get(id_)
        name = known.description if known is not None else "Spark stream"
        if (times := self._uids.source_lines.count(number)) > 1:
            name = f"{name} (read {times} times)"
        self.sources.setdefault(id_, Vertex(id_, "source", name, (), has_uid))
        return (id_,)
