"""Which columns of a sink's rows a replay may give other values, as Spark's own plan says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from tidemark.runtime.plans import analysed, children, contains, items, name_of


def varying_columns(frame: DataFrame) -> tuple[str, ...]:
    """Return what Spark does not call deterministic in the rows of `frame`, each as the column that
    it makes and the function: ``id: uuid()``. Python functions are deterministic unless the program
    says ``asNondeterministic()``."""
    return tuple(dict.fromkeys(_varying(analysed(frame))))


def epoch_time_columns(frame: DataFrame) -> tuple[str, ...]:
    """Return the columns with the current time, as `varying_columns` does. Spark keeps that time
    in an epoch's plan, so a replay gives the same."""
    return tuple(dict.fromkeys(_of_epoch(analysed(frame))))


def _varying(node: Any) -> Iterator[str]:
    if node.deterministic():
        return
    for expression in items(node.expressions()):
        if not expression.deterministic():
            innermost = expression
            while below := [c for c in items(innermost.children()) if not c.deterministic()]:
                innermost = below[0]
            yield _shown(node, expression, innermost)
    for child in children(node):
        yield from _varying(child)


def _of_epoch(node: Any) -> Iterator[str]:
    if not contains(node, "CURRENT_LIKE"):
        return
    for expression in items(node.expressions()):
        innermost = expression
        while below := [c for c in items(innermost.children()) if contains(c, "CURRENT_LIKE")]:
            innermost = below[0]
        if contains(innermost, "CURRENT_LIKE"):
            yield _shown(node, expression, innermost)
    for child in children(node):
        yield from _of_epoch(child)


def _shown(node: Any, expression: Any, function: Any) -> str:
    try:
        column = str(expression.name())
    except Py4JError:  # a condition, a key: no column
        column = name_of(node).lower()
    is_python = name_of(function) == "PythonUDF"
    return f"{column}: {function.name() if is_python else function.prettyName()}()"
