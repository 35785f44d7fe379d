"""Groups sinks with a common stream, and builds the one plan to compute this stream once.

Read a sink's plan from its root down: *stateless steps* (columns, filters, explodes) stand over a
node of another kind, such as an aggregation, a join or a source. Sinks over the same node share the
node and every step common to all of them. The group's plan adds the remaining steps of each sink as
further columns, side by side. One row of the shared node becomes one row of the group's stream,
with a struct for each sink:

- A filter becomes a condition. Columns above the filter are computed where the condition holds
  (``if(condition, column, null)``). Where it does not hold, the sink's struct is null.
- An explode would multiply the rows of every sink. So the plan multiplies the rows once and tags
  each copy with its owner. Each explode has elements in its own sink's copies alone.

A Python function runs for every row that reaches it, whatever stands around it. So a sink with a
Python function above its own filter or explode does not fit into the group. Such a sink becomes a
branch of its own, and Spark computes everything below once more for it (docs/shared-streams.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import zip_longest
from typing import Any

from pyspark.sql import DataFrame

from seamark.api.declarations import DeclaredSink
from seamark.runtime.java_calls import items_of
from seamark.runtime.plans import (
    CATALYST,
    Compared,
    analysed,
    contains,
    items,
    java_plans,
    name_of,
    scala_class,
    scala_seq,
    without_watermarks,
)

_STEPS = ("Project", "Filter", "Generate")
_EXPLODES = ("Explode", "PosExplode")
_EXPRESSIONS = f"{CATALYST}.expressions"
_PLANS = f"{CATALYST}.plans.logical"


@dataclass(frozen=True)
class Branch:
    """Sinks with a shared stream. `shared` is the plan computed once for all of them. `stream` has
    a struct column for each sink, in the order of `sinks`; it is null in rows not for that sink."""

    sinks: tuple[DeclaredSink, ...]
    shared: Any
    make_stream: Callable[[], DataFrame]

    @cached_property
    def stream(self) -> DataFrame:
        """The stream, made at the first access: the plan takes hundreds of Java calls."""
        return self.make_stream()

    def without_watermarks(self) -> Branch:
        """Return the branch without the watermarks in its plan; itself if it has none."""
        stream = without_watermarks(self.stream)
        return self if stream is self.stream else replace(self, make_stream=lambda: stream)

    @property
    def name(self) -> str:
        """The uid of the first sink: it stays when branches change places."""
        return self.sinks[0].uid


@dataclass(frozen=True, eq=False)
class _Path:
    """A sink's plan: stateless `steps`, the lowest first, over `base`."""

    sink: DeclaredSink
    base: Any
    steps: tuple[Any, ...]
    compared: tuple[Compared, ...]
    """The base and each step, for comparison with those of other paths."""

    @cache  # noqa: B019 - as long as the path
    def columns(self, height: int) -> list[Any]:
        """Return the columns of the plan with the lowest `height` steps."""
        return list(items(self.node(height).output()))

    def node(self, height: int) -> Any:
        """Return the plan with the lowest `height` steps."""
        return self.steps[height - 1] if height else self.base

    def fits_above(self, height: int) -> bool:
        """Tell whether the steps above `height` can be columns beside those of other sinks."""
        filtered = False
        for step in self.steps[height:]:
            explodes = name_of(step) == "Generate"
            if explodes and name_of(step.generator()) not in _EXPLODES:
                return False
            if (filtered or explodes) and any(
                contains(expression, "PYTHON_UDF") for expression in items(step.expressions())
            ):
                return False
            filtered = filtered or name_of(step) != "Project"
        return True

    def explode_at(self, height: int) -> int | None:
        """Return the index of the first explode among the steps above `height`."""
        names = [name_of(step) for step in self.steps[height:]]
        return height + names.index("Generate") if "Generate" in names else None


def branches_of(sinks: Sequence[DeclaredSink], declaration: str = "") -> list[Branch]:
    """Group the sinks by shared stream, ordered by the first sink of each group. Two parts with two
    uids in the job with this `declaration` stay two, even if they are equal."""
    left = [_path(sink) for sink in sinks]
    branches = []
    while left:
        branch = _branch(left, declaration)
        branches.append(branch)
        taken = {sink.uid for sink in branch.sinks}
        left = [path for path in left if path.sink.uid not in taken]
    return branches


def _path(sink: DeclaredSink) -> _Path:
    node, steps = analysed(sink.dataframe.selectExpr(*sink.select_expressions)), []
    while (name := name_of(node)) in (*_STEPS, "SubqueryAlias"):
        if name in _STEPS:
            steps.append(node)
        node = node.child()
    steps.reverse()
    return _Path(sink, node, tuple(steps), tuple(map(Compared, (node, *steps))))


def _branch(paths: Sequence[_Path], declaration: str) -> Branch:
    """Return the branch of the first of `paths`, with every other path that fits into it."""
    first, names = paths[0], list[str | None]()
    group = []
    for path in paths:
        if path.compared[0] != first.compared[0]:
            continue
        own = items_of(java_plans().names(path.base, declaration))
        if all(None in pair or len(set(pair)) == 1 for pair in zip(names, own, strict=False)):
            group.append(path)
            names = [one or other for one, other in zip_longest(names, own)]
    while True:
        height = _common_height(group)
        fitting = [path for path in group if path.fits_above(height)]
        if first in fitting:
            break
        # The paths that do not fit may share more steps.
        group = [path for path in group if path not in fitting] if fitting else [first]
    members = _without_clashes(fitting, height)
    shared = first.node(height)
    return Branch(
        tuple(path.sink for path in members),
        shared,
        lambda: _Columns(shared).stream(members, height),
    )


def _common_height(paths: Sequence[_Path]) -> int:
    first, height = paths[0], 0
    while height < min(len(path.steps) for path in paths) and all(
        path.compared[height + 1] == first.compared[height + 1] for path in paths[1:]
    ):
        height += 1
    return height


def _without_clashes(paths: Sequence[_Path], height: int) -> list[_Path]:
    """Return the first path, and the paths in which each expression id keeps one meaning.

    Spark makes a new id for each column, so nobody has seen two ids clash. Still, a plan must not
    depend on that: a clash would make it compute the wrong column.
    """
    meanings: dict[int, tuple[int, int]] = {}
    done, found = list[Compared](), list[_Path]()
    for path in paths:
        made = [path.columns(height)]
        numbers = [0]
        for step, compared in zip(path.steps[height:], path.compared[height + 1 :], strict=True):
            made.append(_new_columns(step))
            if compared not in done:
                done.append(compared)
            numbers.append(1 + done.index(compared))
        own = {
            _id(column): (number, place)
            for number, columns in zip(numbers, made, strict=True)
            for place, column in enumerate(columns)
        }
        if all(meanings.get(id_, meaning) == meaning for id_, meaning in own.items()):
            meanings.update(own)
            found.append(path)
    return found


def _new_columns(step: Any) -> list[Any]:
    """Return the columns made by a step, without the columns it passes on."""
    if name_of(step) == "Generate":
        return list(items(step.generatorOutput()))
    if name_of(step) == "Filter":
        return []
    return [e for e in items(step.projectList()) if name_of(e) != "AttributeReference"]


def _id(expression: Any) -> int:
    return int(expression.exprId().id())


class _Columns:
    """A plan that grows by the columns of several sinks. Expression ids stay those of the sinks'
    own plans, so no expression needs to be rewritten."""

    def __init__(self, shared: Any) -> None:
        self._plan = shared
        self._output = list(items(shared.output()))
        self._present = {_id(column) for column in self._output}
        self._done: dict[Compared, tuple[list[Any], Any]] = {}

    def stream(self, paths: Sequence[_Path], height: int) -> DataFrame:
        """Return the stream with a struct for each path's sink, named ``s0``, ``s1``, …"""
        shared = list(self._output)
        for path in paths:
            self._rename(shared, path.columns(height))
        rows: list[tuple[_Path, int | None, Any]] = []
        for path in paths:
            at = path.explode_at(height)
            until = len(path.steps) if at is None else at
            rows.append((path, at, self._take(path, height, until, None)))
        explodes = [path.compared[at + 1] for path, at, _ in rows if at is not None]
        copy_of, copies = self._copies(explodes) if explodes else (None, {})
        structs = []
        for number, (path, at, condition) in enumerate(rows):
            if copy_of is not None:
                wanted = self._literal(0 if at is None else copies[path.compared[at + 1]])
                copy = self._new("EqualTo", copy_of, wanted)
                condition = copy if condition is None else self._new("And", condition, copy)
            if at is not None:
                condition = self._take(path, at, len(path.steps), condition)
            structs.append(self._struct(path, condition, f"s{number}"))
        plan = self._of(f"{_PLANS}.Project", scala_seq(self._plan, structs), self._plan)
        spark = paths[0].sink.dataframe.sparkSession
        dataset = scala_class(plan, "org.apache.spark.sql.classic.Dataset")
        return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)

    def _take(self, path: _Path, start: int, end: int, condition: Any) -> Any:
        """Add a sink's steps from `start` to `end`, on the rows where `condition` holds. Return the
        condition that holds above them. Skip steps already added for another sink."""
        for height in range(start, end):
            step, compared = path.steps[height], path.compared[height + 1]
            if compared in self._done:
                columns, condition = self._done[compared]
                self._rename(columns, path.columns(height + 1))
                continue
            if name_of(step) == "Filter":
                condition = self._filter(step.condition(), condition)
            elif name_of(step) == "Generate":
                condition = self._explode(step, condition)
            else:
                self._project([self._where(condition, column) for column in _new_columns(step)])
            self._done[compared] = path.columns(height + 1), condition
        return condition

    def _filter(self, predicate: Any, condition: Any) -> Any:
        no = self._literal(False)
        holds = self._new("Coalesce", scala_seq(predicate, [predicate, no]))
        if condition is not None:
            holds = self._new("If", condition, holds, no)
        column = self._alias(holds, "_seamark_goes")
        self._project([column])
        return column.toAttribute()

    def _explode(self, step: Any, condition: Any) -> Any:
        generator, columns = step.generator(), _new_columns(step)
        if name_of(generator) == "PosExplode":
            position = columns[0]
        else:
            position = self._attribute("_seamark_position")
            columns = [position, *columns]
        # In rows of other sinks, it makes one row without a position.
        elements = self._new("PosExplode", self._if(condition, generator.child()))
        self._generate(elements, columns, outer=True)
        if step.outer():
            return condition
        return self._filter(self._new("IsNotNull", position), condition)

    def _copies(self, explodes: Sequence[Compared]) -> tuple[Any, dict[Compared, int]]:
        """Multiply the rows: copy 0 for sinks without an explode, and one copy for each different
        explode. Return the column with the copy's number, and each explode's number."""
        different = {explode: 1 + place for place, explode in enumerate(dict.fromkeys(explodes))}
        numbers = [self._literal(number) for number in range(len(different) + 1)]
        array = self._new("CreateArray", scala_seq(self._plan, numbers), False)
        copy = self._attribute("_seamark_copy")
        self._generate(self._new("Explode", array), [copy], outer=False)
        return copy, different

    def _struct(self, path: _Path, condition: Any, name: str) -> Any:
        fields = [
            part
            for column in path.columns(len(path.steps))
            for part in (self._literal(column.name()), column)
        ]
        struct = self._new("CreateNamedStruct", scala_seq(self._plan, fields))
        return self._alias(self._if(condition, struct), name)

    def _rename(self, have: Sequence[Any], want: Sequence[Any]) -> None:
        """Give columns their expression ids in another plan of the same rows."""
        if have is not want:
            self._project(
                [
                    self._alias(column, other.name(), other.exprId())
                    for column, other in zip(have, want, strict=True)
                    if _id(other) not in self._present
                ]
            )

    def _project(self, columns: Sequence[Any]) -> None:
        if columns:
            every = scala_seq(self._plan, [*self._output, *columns])
            self._plan = self._of(f"{_PLANS}.Project", every, self._plan)
            self._made([column.toAttribute() for column in columns])

    def _generate(self, generator: Any, columns: Sequence[Any], *, outer: bool) -> None:
        nullable = [column.withNullability(True) for column in columns]
        self._plan = self._of(
            f"{_PLANS}.Generate",
            generator,
            scala_seq(self._plan, []),
            outer,
            self._none(),
            scala_seq(self._plan, nullable),
            self._plan,
        )
        self._made(nullable)

    def _made(self, columns: Sequence[Any]) -> None:
        self._output += columns
        self._present.update(map(_id, columns))

    def _where(self, condition: Any, alias: Any) -> Any:
        """Return a column computed where `condition` holds, and null elsewhere."""
        if name_of(alias.child()) == "AttributeReference":
            return alias
        return alias.withNewChildren(scala_seq(alias, [self._if(condition, alias.child())]))

    def _if(self, condition: Any, value: Any) -> Any:
        if condition is None:
            return value
        return self._new("If", condition, value, self._new("Literal", None, value.dataType()))

    def _alias(self, child: Any, name: str, id_: Any = None) -> Any:
        nothing = scala_seq(child, [])
        return self._new(
            "Alias", child, name, id_ or self._new_id(), nothing, self._none(), nothing
        )

    def _attribute(self, name: str) -> Any:
        integer = self._literal(0).dataType()
        metadata = scala_class(self._plan, "org.apache.spark.sql.types.Metadata").empty()
        nothing = scala_seq(self._plan, [])
        return self._new(
            "AttributeReference", name, integer, True, metadata, self._new_id(), nothing
        )

    def _new_id(self) -> Any:
        return scala_class(self._plan, f"{_EXPRESSIONS}.NamedExpression").newExprId()

    def _literal(self, value: bool | int | str) -> Any:
        of_type = {bool: "BooleanType", int: "IntegerType", str: "StringType"}[type(value)]
        types = scala_class(self._plan, "org.apache.spark.sql.types.DataTypes")
        literals = scala_class(self._plan, f"{_EXPRESSIONS}.Literal")
        return literals.create(value, getattr(types, of_type))

    def _none(self) -> Any:
        return scala_class(self._plan, "scala.Option").empty()

    def _new(self, name: str, *arguments: Any) -> Any:
        return self._of(f"{_EXPRESSIONS}.{name}", *arguments)

    def _of(self, name: str, *arguments: Any) -> Any:
        return scala_class(self._plan, name)(*arguments)
