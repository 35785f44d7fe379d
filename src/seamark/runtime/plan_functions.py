"""Finds functions in the plan of a sink's rows: those with other values in a replay, those with the
epoch's time, and Python's. Each with its column and, if known, its line in the program."""

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.sql import DataFrame

from seamark.guarantees.facts import PlannedFunction
from seamark.runtime.plans import analysed, children, contains, items, name_of

_LONGEST_SQL = 60
_PYTHON = "PythonUDF"


def varying_functions(frame: DataFrame, declared_at: str = "") -> tuple[PlannedFunction, ...]:
    """Return the nondeterministic functions in the rows of `frame`, by Spark's judgement. Python
    functions are deterministic unless the program says ``asNondeterministic()``.

    `declared_at`: the place in the program (file and line) where these rows got their sink.
    """
    return _functions(frame, declared_at, lambda part: not part.deterministic())


def epoch_time_functions(frame: DataFrame) -> tuple[PlannedFunction, ...]:
    """Return the functions with the current time. Spark keeps it in the plan, for replays too."""
    return _functions(frame, "", lambda part: contains(part, "CURRENT_LIKE"), lines=False)


def python_functions(
    frame: DataFrame, varying: Sequence[PlannedFunction], declared_at: str = ""
) -> tuple[PlannedFunction, ...]:
    """Return the Python functions, without those `varying`."""
    found = _functions(frame, declared_at, lambda part: contains(part, "PYTHON_UDF"))
    return tuple(one for one in found if one not in varying)


def _functions(
    frame: DataFrame, declared_at: str, has: Callable[[Any], bool], *, lines: bool = True
) -> tuple[PlannedFunction, ...]:
    """Return the functions that satisfy `has`. `has` takes a plan or an expression, and holds for
    it if it holds for a part of it."""
    found = []
    for node, path in _found(analysed(frame), has):
        column, function = _names(node, path)
        line = _line(path, function, declared_at) if lines else ""
        found.append(PlannedFunction(column, function, line))
    return tuple(dict.fromkeys(found))


def _found(node: Any, has: Callable[[Any], bool]) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Yield each function with its plan node, as the path of expressions down to it."""
    if not has(node):
        return
    for expression in filter(has, items(node.expressions())):
        path = [expression]
        while below := next(filter(has, items(path[-1].children())), None):
            path.append(below)
        yield node, path
    for child in children(node):
        yield from _found(child, has)


def _names(node: Any, path: Sequence[Any]) -> tuple[str, str]:
    function = path[-1]
    is_python = name_of(function) == _PYTHON
    name = str(function.name() if is_python else function.prettyName())
    try:
        if name_of(path[0]) == _PYTHON:  # mapInPandas and its like: the rows themselves
            return name_of(node).lower(), name
        return str(path[0].name()), name
    except Py4JError:  # a condition, a key: no column
        return name_of(node).lower(), name


def _line(path: Sequence[Any], function: str, declared_at: str) -> str:
    """Return the function's place in the program. PySpark notes the line of `Column`'s own methods
    alone: of an enclosing alias or sum, or of an argument."""
    parts = [*reversed(path), *items(path[-1].children())]
    found = next(filter(None, map(_call_site, parts)), "")
    if not found and name_of(path[-1]) == _PYTHON:
        found = _definition(path[-1])
    if found:
        return _short(found)
    if sql := next(filter(None, map(_sql, parts)), ""):
        return sql
    file = declared_at.rpartition(":")[0]
    if only := _only_line(file, function):
        return _short(f"{file}:{only}")
    return f"a line before {_short(declared_at)}" if declared_at else ""


def _call_site(expression: Any) -> str:
    context = expression.origin().context()
    if context is None or name_of(context) != "DataFrameQueryContext":
        return ""
    noted = context.pysparkErrorContext()
    return str(noted.get()._2()).splitlines()[0] if noted.isDefined() else ""


def _sql(expression: Any) -> str:
    text = expression.origin().sqlText()
    if not text.isDefined():
        return ""
    sql = " ".join(str(text.get()).split())
    return f'"{sql if len(sql) <= _LONGEST_SQL else sql[: _LONGEST_SQL - 1] + "…"}"'


def _definition(udf: Any) -> str:
    """Return the place of a Python function's definition; "" if it has none."""
    try:
        numbers = str(udf.func().command().mkString(",")).split(",")  # a Scala Seq of signed bytes
        function, *_ = cloudpickle.loads(bytes(int(number) & 0xFF for number in numbers))
        code = getattr(function, "__wrapped__", function).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"
    except Exception:  # whatever the program's function is made of: the line is for people alone
        return ""


def _only_line(file: str, function: str) -> int | None:
    """Return the line of the program's only definition of a function of this name, or of its only
    call if there is no definition; else None."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    nodes = list(ast.walk(tree))
    made = [n.lineno for n in nodes if isinstance(n, ast.FunctionDef) and n.name == function]
    lines = made or [
        call.lineno
        for call in nodes
        if isinstance(call, ast.Call)
        and getattr(call.func, "attr", getattr(call.func, "id", None)) == function
    ]
    return lines[0] if len(lines) == 1 else None


def _short(place: str) -> str:
    file, _, line = place.rpartition(":")
    return f"{Path(file).name}:{line}"
