"""Walks and compares Spark's logical plans; py4j hands them over as opaque objects.

Plans are compared as Spark compares them, canonically (`QueryPlan.sameResult`): names, expression
ids and the order of the program's calls do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame

CATALYST = "org.apache.spark.sql.catalyst"


def analysed(frame: DataFrame) -> Any:
    """Return the analysed plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def name_of(node: Any) -> str:
    """Return the name of a node's class, e.g. ``Aggregate``."""
    return str(node.getClass().getSimpleName())


def items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a Scala collection."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def children(node: Any) -> Iterator[Any]:
    """Yield the children of a node, from left to right."""
    return items(node.children())


def scala_class(node: Any, name: str) -> Any:
    """Return a class by its full name, from the JVM of `node`. Naming it part by part
    (``jvm.org.apache…``) would ask the JVM for each part."""
    return JavaClass(name, node._gateway_client)


def scala_seq(node: Any, values: Iterable[Any]) -> Any:
    """Return a Scala ``Seq`` of `values` in the JVM of `node`."""
    return scala_class(node, "org.apache.spark.api.python.PythonUtils").toSeq(list(values))


def contains(node: Any, pattern: str) -> bool:
    """Tell whether a plan or an expression holds a node of this kind, by the name of Spark's
    ``TreePattern``."""
    patterns = scala_class(node, f"{CATALYST}.trees.TreePattern")
    return bool(node.containsPattern(getattr(patterns, pattern)()))


class Compared:
    """A plan for many comparisons. Plans with different hashes are told apart without asking Spark.

    Spark's own comparison tells two calls of ``withWatermark`` apart, since each gets a random node
    id. Here they are equal if column and delay are.
    """

    def __init__(self, plan: Any) -> None:
        self._plan = _without_node_ids(plan)
        self._hash = int(self._plan.semanticHash())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Compared)
            and self._hash == other._hash
            and (self is other or bool(self._plan.sameResult(other._plan)))
        )

    def __hash__(self) -> int:
        return self._hash


def _without_node_ids(plan: Any) -> Any:
    if not contains(plan, "EVENT_TIME_WATERMARK"):
        return plan
    below = [_without_node_ids(child) for child in children(plan)]
    if name_of(plan) != "EventTimeWatermark":
        return plan.withNewChildren(scala_seq(plan, below))
    nil = scala_class(plan, "java.util.UUID")(0, 0)
    return scala_class(plan, f"{CATALYST}.plans.logical.EventTimeWatermark")(
        nil, plan.eventTime(), plan.delay(), below[0]
    )
