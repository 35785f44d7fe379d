"""A job's data flow: sources, stateful operators and sinks, and their edges.

`run/job_plan.py` finds it in Spark's plan; REST shows it as Flink's ``vertices`` and ``plan``.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from seamark.model.guarantee import Guarantee


@dataclass(frozen=True)
class Vertex:
    """One part of a job.

    id: its uid; without one from the user, its number: ``operator-0``, ``source-0``, as in the
        checkpoint statistics.
    kind: source, operator or sink.
    name: one line for people.
    inputs: the ids of the parts feeding it.
    guarantee: the best level of a job with this part; "" before the analysis.
    """

    id: str
    kind: str
    name: str
    inputs: tuple[str, ...] = ()
    has_uid: bool = True
    guarantee: str = ""


@dataclass(frozen=True)
class JobGraph:
    """All parts of a job, each after those that feed it. `sharing` has a line for each stream
    shared by sinks, and for each computed more than once."""

    vertices: tuple[Vertex, ...] = ()
    sharing: tuple[str, ...] = ()

    def with_guarantees(self, levels: Mapping[str, Guarantee]) -> "JobGraph":
        """Return the graph with each part's level by uid. An operator without a uid has its state
        committed with the epoch too."""

        def level(vertex: Vertex) -> str:
            return levels.get(vertex.id, Guarantee.EXACTLY_ONCE).value

        graded = (replace(vertex, guarantee=level(vertex)) for vertex in self.vertices)
        return JobGraph(tuple(graded), self.sharing)

    def to_record(self) -> list[dict[str, Any]]:
        """Return the stored record: every part with its fields by their names here."""
        return [{**asdict(vertex), "inputs": list(vertex.inputs)} for vertex in self.vertices]
