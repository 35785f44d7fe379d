"""Asks Spark what a query is made of: its stateful operators and its sources, by Spark's numbers.

Spark's planner decides what keeps state, also by the output mode: a limit over an aggregation may
keep none, a set operation becomes an aggregation, a common table expression used twice becomes two
operators. So the query is planned as one of its micro-batches, and not run. Spark numbers sources
in the analysed plan, from left to right, each distinct relation once; its offset log has a line for
each place of a relation in that plan (`MicroBatchExecution.logicalPlan`). A user's uid is a tag on
the plan: ``java/SeamarkPlan.java`` finds it again in what Spark has planned.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from seamark.model.errors import ConfigurationError, SeamarkError
from seamark.model.uncaught import say_at_end
from seamark.spark.java_calls import items_of
from seamark.spark.plans import analysed, java_plans

LEAVES_ONCE = ("Deduplicate", "DeduplicateWithinWatermark", "Join", "GlobalLimit")
"""Stateful operators that a row leaves once in every output mode; no trait of Spark's tells it."""
OFFSET_LOG = "org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata"


def refuse_unsupported(stream: DataFrame, mode: str) -> None:
    """Raise Spark's error of a start if a query cannot run in its output mode."""
    spark = stream.sparkSession
    if spark.conf.get("spark.sql.streaming.unsupportedOperationCheck") == "true":
        try:
            java_plans().check(analysed(stream), mode)
        except AnalysisException as error:
            said = str(error).partition("\n")[0].rstrip(";")  # the plan follows
            say_at_end(error, f"Spark does not run this query in output mode {mode}: {said}")
            raise


def name_part(frame: DataFrame, declaration: str, uid: str, *, source: bool) -> None:
    """Give a uid to a DataFrame's source, or to its last stateful operator, in the job with this
    `declaration`. DataFrames made of this one carry it."""
    java_plans().name(analysed(frame), declaration, uid, source)


def sources_of(frame: DataFrame) -> list[Any]:
    """Return the relations of a DataFrame's sources, by Spark's numbers."""
    return items_of(java_plans().of(analysed(frame), "").sources())


@dataclass(frozen=True)
class PlannedPart:
    """A stateful operator by its `number`, or a scan of a `source`, without one.

    `place` is its node in the analysed plan, None if that is not known; `name` is what that is, and
    `uids` are those given to it or to what is over it. `above` is the operator that gets its rows,
    None for a sink. `columns` are the names of an operator's key, and for an aggregation the names
    that Spark gives to what its functions keep.
    """

    kind: str
    name: str
    branch: int
    uids: Sequence[str]
    place: int | None = None
    above: int | None = None
    number: int | None = None
    source: int | None = None
    columns: Sequence[str] = ()


class PlannedQuery:
    """The parts of a query, the union of as many plans as `branches` says.

    `leaves` are the relations of the sources, by number; `readings` tell a source's number for each
    line of the offset log, with its uids. Each of `parts` stands before those below it; `steps` are
    the other nodes on the way of the rows, by name and class. If not `traced`, Spark's optimizer
    makes other operators than the program's. `reads_tables`: whether it reads anything beside its
    streams. Raises ConfigurationError for a stream without a known line in the offset log, and
    Spark's error if it cannot plan the query.
    """

    def __init__(self, stream: DataFrame, mode: str, declaration: str, branches: int = 1) -> None:
        self.mode = mode
        self._plans = plans = java_plans().of(analysed(stream), declaration)
        self.leaves = items_of(plans.sources())
        planned = json.loads(plans.query(stream.sparkSession._jsparkSession, mode, branches))
        self.parts = [PlannedPart(**part) for part in planned["parts"]]
        self.operators = [part for part in self.parts if part.number is not None]
        self.steps: list[tuple[str, str]] = [(name, kind) for name, kind in planned["steps"]]
        self.readings = [(reading["source"], reading["uids"]) for reading in planned["readings"]]
        self.traced: bool = planned["traced"]
        self.reads_tables: bool = planned["tables"]
        for reading in planned["readings"]:
            if reading["source"] < 0:
                raise ConfigurationError(
                    f"the program reads a stream as {reading['name']}, and its line in Spark's "
                    "offset log is not known; read it with spark.readStream"
                )

    def node(self, part: PlannedPart) -> Any:
        """Return a part's node in the analysed plan."""
        return self._plans.at(part.place)

    def require_same(self, job: str, stream: Any) -> None:
        """Raise SeamarkError if Spark's `StreamExecution` has other parts. Called before an epoch's
        tasks: in each epoch of a query with state, else in a run's first."""
        planned = [f"{part.number} {part.kind}" for part in self.operators], len(self.readings)
        ran = items_of(self._plans.operators(stream.lastExecution().executedPlan()))
        if (runs := (ran, int(stream.sources().size()))) != planned:
            raise SeamarkError(
                f"job {job}: Spark runs the stateful operators {runs[0]} over {runs[1]} readings "
                f"of sources, and has planned {planned[0]} over {planned[1]} for the same program: "
                "an operator would get another one's state. Nothing of this epoch was written. If "
                "the program has a limit over one of several sources, limit after their union, or "
                "give each source a job of its own: Spark leaves such a limit out while its source "
                "has no new rows. Else please report this with the program"
            )
