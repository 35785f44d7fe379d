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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame

from seamark.api.declarations import DeclaredSink
from seamark.spark.java.compiled import loaded_class
from seamark.spark.java_calls import items_of
from seamark.spark.plans import Compared, analysed, java_plans, selected, without_watermarks


@dataclass(frozen=True)
class Branch:
    """Sinks with a shared stream. `shared` is the plan computed once for all of them. `stream` has
    a struct column for each sink, in the order of `sinks`; it is null in rows not for that sink."""

    sinks: tuple[DeclaredSink, ...]
    shared: Any
    make_stream: Callable[[], DataFrame]

    @cached_property
    def stream(self) -> DataFrame:
        """The stream, made at the first access."""
        return self.make_stream()

    def without_watermarks(self) -> "Branch":
        """Return the branch without the watermarks in its plan; itself if it has none."""
        stream = without_watermarks(self.stream)
        return self if stream is self.stream else replace(self, make_stream=lambda: stream)

    @property
    def name(self) -> str:
        """The uid of the first sink: it stays when branches change places."""
        return self.sinks[0].uid


@dataclass(frozen=True, eq=False)
class _Path:
    """A sink's plan: `plans` are its base, and the plan with each stateless step over it, the
    lowest first; `compared` are the same, for comparison with those of other paths."""

    sink: DeclaredSink
    plans: Sequence[Any]
    compared: Sequence[Compared]


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
    plans = items_of(_java_stream().path(analysed(selected(sink))))
    return _Path(sink, plans, [Compared(plan) for plan in plans])


def _branch(paths: Sequence[_Path], declaration: str) -> Branch:
    """Return the branch of the first of `paths`, with every other path that fits into it."""
    first, names = paths[0], list[str | None]()
    group = []
    for path in paths:
        if path.compared[0] != first.compared[0]:
            continue
        own = items_of(java_plans().names(path.plans[0], declaration))
        if all(None in pair or len(set(pair)) == 1 for pair in zip(names, own, strict=False)):
            group.append(path)
            names = [one or other for one, other in zip_longest(names, own)]
    java = _java_stream()
    while True:
        height = _common_height(group)
        fitting = [path for path in group if java.fits(path.plans[height:])]
        if first in fitting:
            break
        # The paths that do not fit may share more steps.
        group = [path for path in group if path not in fitting] if fitting else [first]
    numbers = _numbers([path.compared[height:] for path in fitting])
    places = items_of(java.withoutClashes([path.plans[height:] for path in fitting], numbers))
    members = [fitting[place] for place in places]

    def stream() -> DataFrame:
        spark = first.sink.dataframe.sparkSession
        plans, own = [path.plans[height:] for path in members], [numbers[n] for n in places]
        return DataFrame(_java_stream().stream(spark._jsparkSession, plans, own), spark)

    return Branch(tuple(path.sink for path in members), first.plans[height], stream)


def _common_height(paths: Sequence[_Path]) -> int:
    first, height = paths[0], 0
    while height + 1 < min(len(path.plans) for path in paths) and all(
        path.compared[height + 1] == first.compared[height + 1] for path in paths[1:]
    ):
        height += 1
    return height


def _numbers(paths: Sequence[Sequence[Compared]]) -> list[list[int]]:
    """Return a number for each plan of each path, the same for equal plans."""
    different = dict.fromkeys(plan for path in paths for plan in path)
    numbers = {plan: number for number, plan in enumerate(different)}
    return [[numbers[plan] for plan in path] for path in paths]


def _java_stream() -> Any:
    return loaded_class(SparkContext._jvm, "SeamarkStream").newInstance()
