"""Spark's analysed plan of a declared job: its one stream, the uids of its parts, and the flow from
sources and operators to operators and sinks.

The query's plan is the union of its branches (`branches.py`), from left to right.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from seamark.api.declarations import JobDeclaration
from seamark.model.errors import ConfigurationError
from seamark.model.job_graph import JobGraph, Vertex
from seamark.run.branches import United
from seamark.run.keyed_process import claim_keyed
from seamark.spark.operator_uids import OperatorUids, find_uids
from seamark.spark.planned_query import PlannedPart, PlannedQuery, refuse_unsupported
from seamark.spark.shared_stream import Branch, branches_of

log = logging.getLogger(__name__)


class JobPlan(United):
    """The plan of a declared job with at least one sink. Made once, for all runs of the job and for
    all reports on it. Asks Spark: some tenths of a second. Raises Spark's error if it cannot run
    the program, and ConfigurationError."""

    def __init__(self, declared: JobDeclaration) -> None:
        self.keyed = claim_keyed(declared)
        sources = {source.uid: source.dataframe for source in declared.sources.values()}
        sinks = [sink for sink in declared.sinks.values() if not sink.dead_letters_of]
        super().__init__(branches_of(sinks, declared.key))
        self.declared = declared
        self.has_run = False
        self.spark: SparkSession = sinks[0].dataframe.sparkSession
        self.query = self._planned()
        if self._free_watermarks():
            self.query = self._planned()
        names = [branch.name for branch in self.branches]
        self.uids = find_uids(self.query, sources, declared.operators, names)

    def _planned(self) -> PlannedQuery:
        mode = self.declared.output_mode
        try:
            return PlannedQuery(self.stream, mode, self.declared.key, len(self.branches))
        except Py4JJavaError as error:
            refuse_unsupported(self.stream, mode)  # with a better message
            said = str(error.java_exception).partition("\n")[0]
            raise ConfigurationError(
                f"job {self.declared.name!r}: Spark fails to plan its query ({said}). If the query "
                "of each sink runs alone, give each a job of its own; else write it another way, a "
                "subquery in SELECT as a join, say. Nothing was written"
            ) from error

    def _free_watermarks(self) -> bool:
        """Take the watermarks out of the branches without state, if others have state. Tell whether
        there were some: a query's watermark is the lowest of all, and a rare row in a branch that
        reads none of it (alerts, say) would hold back the windows of another."""
        with_state = {operator.branch for operator in self.query.operators}
        policy = self.spark.conf.get("spark.sql.streaming.multipleWatermarkPolicy")
        if not with_state or policy != "min":
            return False
        freed = [
            branch if number in with_state else branch.without_watermarks()
            for number, branch in enumerate(self.branches)
        ]
        changed = any(new is not old for new, old in zip(freed, self.branches, strict=True))
        if changed:
            self.branches = freed
            del self.stream
        return changed

    def graph(self) -> JobGraph:
        """Return the job's graph; raises Spark's errors."""
        flow = _Flow(self)
        ends = [
            Vertex(sink.uid, "sink", sink.description, inputs)
            for number, branch in enumerate(self.branches)
            for inputs in [flow.into(None, number)]
            for sink in branch.sinks
        ]
        letters = [
            Vertex(sink.uid, "sink", sink.description, (sink.dead_letters_of,))
            for sink in self.declared.sinks.values()
            if sink.dead_letters_of
        ]
        vertices = (*flow.sources.values(), *flow.operators, *ends, *letters)
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


class _Flow:
    """The sources and operators met on the way back from the sinks, in the order of the data."""

    def __init__(self, plan: JobPlan) -> None:
        self._parts, self._uids, self._known = plan.query.parts, plan.uids, plan.declared.sources
        self.sources: dict[str, Vertex] = {}
        self.operators: list[Vertex] = []

    def into(self, operator: int | None, branch: int) -> tuple[str, ...]:
        """Return the ids of the parts next to an operator, or to the sinks of a branch."""
        parts = [p for p in self._parts if p.above == operator and p.branch == branch]
        return tuple(dict.fromkeys(self._vertex(part) for part in parts))

    def _vertex(self, part: PlannedPart) -> str:
        uids, number = self._uids, part.number
        if number is not None:
            id_, inputs = uids.of_operator(number), self.into(number, part.branch)
            made = Vertex(id_, "operator", part.name, inputs, number in uids.operators)
            self.operators.append(made)
            return id_
        assert part.source is not None
        id_ = uids.of_source(part.source)
        known = self._known.get(id_)
        name = known.description if known is not None else "Spark stream"
        if (times := uids.source_lines.count(part.source)) > 1:
            name = f"{name} (read {times} times)"
        self.sources[id_] = Vertex(id_, "source", name, (), part.source in uids.sources)
        return id_
