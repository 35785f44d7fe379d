"""Builds `explain`'s report on a declared job: the guarantees of its parts, and the columns with
different values after a replay. Spark's own plan tells these columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from seamark.api.config import CheckpointMode
from seamark.api.declarations import DeclaredSink, JobDeclaration
from seamark.api.ephemeral_storage import EphemeralStorage
from seamark.guarantees.end_to_end import (
    GuaranteeReport,
    OperatorPart,
    SinkPart,
    SourcePart,
    analyse,
)
from seamark.model.job_graph import JobGraph
from seamark.runtime.plans import analysed, children, contains, items, name_of


def job_report(declared: JobDeclaration, graph: JobGraph) -> GuaranteeReport:
    """Return the job's guarantees. Spark analyses the sinks' plans for it."""
    return analyse(
        [SourcePart(s.uid, s.description, s.replayable) for s in declared.sources.values()],
        [
            OperatorPart(part.id, f"stateful operator ({part.name})", named=part.has_uid)
            for part in graph.vertices
            if part.kind == "operator"
        ],
        [_sink_part(sink) for sink in declared.sinks.values()],
        CheckpointMode(declared.checkpoint.mode).value,
        durable=not isinstance(declared.checkpoint.storage, EphemeralStorage),
        sharing=graph.sharing,
    )


def _sink_part(sink: DeclaredSink) -> SinkPart:
    varying: tuple[str, ...] = ()
    epoch_time: tuple[str, ...] = ()
    if sink.dataframe is not None:
        rows = sink.dataframe.selectExpr(*sink.select_expressions)
        varying, epoch_time = varying_columns(rows), epoch_time_columns(rows)
    return SinkPart(sink.uid, sink.description, sink.sink.way, varying, epoch_time)


def varying_columns(frame: DataFrame) -> tuple[str, ...]:
    """Return the nondeterministic functions in the rows of `frame`, by Spark's judgement, each with
    its column: ``id: uuid()``. Python functions are deterministic unless the program says
    ``asNondeterministic()``."""
    return _columns_with(frame, lambda part: not part.deterministic())


def epoch_time_columns(frame: DataFrame) -> tuple[str, ...]:
    """Return the columns with the current time, in the form of `varying_columns`. Spark keeps this
    time in an epoch's plan, so a replay gives the same values."""
    return _columns_with(frame, lambda part: contains(part, "CURRENT_LIKE"))


def _columns_with(frame: DataFrame, has: Callable[[Any], bool]) -> tuple[str, ...]:
    """Return the columns whose expression satisfies `has`. `has` takes a plan or an expression, and
    holds for it if it holds for a part of it."""
    return tuple(dict.fromkeys(_found(analysed(frame), has)))


def _found(node: Any, has: Callable[[Any], bool]) -> Iterator[str]:
    if not has(node):
        return
    for expression in filter(has, items(node.expressions())):
        innermost = expression
        while below := next(filter(has, items(innermost.children())), None):
            innermost = below
        yield _shown(node, expression, innermost)
    for child in children(node):
        yield from _found(child, has)


def _shown(node: Any, expression: Any, function: Any) -> str:
    try:
        column = str(expression.name())
    except Py4JError:  # a condition, a key: no column
        column = name_of(node).lower()
    is_python = name_of(function) == "PythonUDF"
    return f"{column}: {function.name() if is_python else function.prettyName()}()"
