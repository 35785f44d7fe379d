"""Finds functions in the plan of a sink's rows: those with other values in a replay, those with the
epoch's time, and Python's. Each with its column and, if known, its line in the program.

`AsGiven` keeps a function that is in no plan as a plan would.
"""

import ast
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext, cloudpickle
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame

from seamark.guarantees.facts import PlannedFunction
from seamark.spark.java.compiled import loaded_class
from seamark.spark.plans import analysed

_LONGEST_SQL = 60


class AsGiven:
    """A function for tasks, as it is now. PySpark pickles a function when it is given; one that is
    pickled later would have the variables of another moment, e.g. those of a loop's last turn."""

    def __init__(self, function: Callable[..., Any]) -> None:
        context = SparkContext._active_spark_context
        pickled: Any = context._pickled_broadcast_vars if context else set()
        pickled.clear()
        self._command = CloudPickleSerializer().dumps(function)
        self._broadcasts = list(pickled)  # a task gets those that are pickled with its command
        pickled.clear()

    def __call__(self, *given: Any) -> Any:
        """Call the function, in a task."""
        if "_function" not in vars(self):
            self._function = cloudpickle.loads(self._command)
        return self._function(*given)


def varying_functions(frame: DataFrame, declared_at: str = "") -> tuple[PlannedFunction, ...]:
    """Return the nondeterministic functions in the rows of `frame`, by Spark's judgement. Python
    functions are deterministic unless the program says ``asNondeterministic()``.

    `declared_at`: the place in the program (file and line) where these rows got their sink.
    """
    return _functions(frame, declared_at, "varying")


def epoch_time_functions(frame: DataFrame) -> tuple[PlannedFunction, ...]:
    """Return the functions with the current time. Spark keeps it in the plan, for replays too."""
    return _functions(frame, "", "CURRENT_LIKE", lines=False)


def python_functions(
    frame: DataFrame, varying: Sequence[PlannedFunction], declared_at: str = ""
) -> tuple[PlannedFunction, ...]:
    """Return the Python functions, without those `varying`."""
    functions = _functions(frame, declared_at, "PYTHON_UDF")
    return tuple(function for function in functions if function not in varying)


def _functions(
    frame: DataFrame, declared_at: str, kind: str, *, lines: bool = True
) -> tuple[PlannedFunction, ...]:
    """Return the functions of a kind of ``java/SeamarkFunctions.java``."""
    java = loaded_class(SparkContext._jvm, "SeamarkFunctions").newInstance()
    functions = (
        PlannedFunction(
            function["column"], function["function"], _line(function, declared_at) if lines else ""
        )
        for function in json.loads(java.find(analysed(frame), kind))
    )
    return tuple(dict.fromkeys(functions))


def _line(function: Mapping[str, str], declared_at: str) -> str:
    """Return the function's place in the program. PySpark notes the line of `Column`'s own methods
    alone: of an enclosing alias or sum, or of an argument."""
    if place := function["site"].partition("\n")[0] or _definition(function["command"]):
        return _short(place)
    if sql := " ".join(function["sql"].split()):
        return f'"{sql if len(sql) <= _LONGEST_SQL else sql[: _LONGEST_SQL - 1] + "…"}"'
    file = declared_at.rpartition(":")[0]
    if only := _only_line(file, function["function"]):
        return _short(f"{file}:{only}")
    return f"a line before {_short(declared_at)}" if declared_at else ""


def _definition(command: str) -> str:
    """Return the place of a pickled Python function's definition; "" if it has none."""
    try:
        function, *_ = cloudpickle.loads(base64.b64decode(command))
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
