"""The way of a job's data: sources, stateful operators and sinks, and who feeds whom.

`runtime/plan_graph.py` finds it in Spark's plan; the REST interface shows it as Flink's
``vertices`` and ``plan``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Vertex:
    """One part of a job. `id` is its uid, or where the user gave none, its number:
    ``operator-0``, ``source-0``, as in the checkpoint statistics. `kind`: source, operator or sink.
    `name` is one line for people. `inputs` are the ids of the parts that feed it.
    """

    id: str
    kind: str
    name: str
    inputs: tuple[str, ...] = ()
    has_uid: bool = True


@dataclass(frozen=True)
class JobGraph:
    """All parts of a job, each after those that feed it."""

    vertices: tuple[Vertex, ...] = ()
