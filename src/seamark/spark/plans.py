"""Walks and compares Spark's logical plans; py4j hands them over as opaque objects.

Plans are compared as Spark compares them, canonically (`QueryPlan.sameResult`): names, expression
ids and the order of the program's calls do not matter.

No stateful operator may run without the watermark of its stream. Spark computes equal parts of a
plan once (``spark.sql.exchange.reuse``). It finds each operator's watermark on a walk through the
physical plan, and the walk ends at a reused part. An operator above such a part never learns the
progress of event time: it emits nothing in append mode, and keeps its state for ever
(docs/spark-exchange-reuse.md). So the queries of stateful jobs do not reuse exchanges, and
`require_watermarks` checks the plan before Spark runs it.
"""

from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession

from seamark.api.declarations import DeclaredSink
from seamark.model.errors import WatermarkLostError
from seamark.spark.java.compiled import loaded_class
from seamark.spark.java_calls import items_of, java_class
from seamark.spark.spark_versions import active

CATALYST = "org.apache.spark.sql.catalyst"
NO_EXCHANGE_REUSE = {"spark.sql.exchange.reuse": "false"}
_PATTERNS = "spark.sql.parser.quotedRegexColumnNames"


def require_watermarks(job: str, executed_plan: Any) -> None:
    """Raise WatermarkLostError if an operator of a physical plan does not get the watermark below
    it. Called in the first epoch of a run, before its tasks."""
    if operator := java_plans().withoutWatermark(executed_plan):
        key = next(iter(NO_EXCHANGE_REUSE))
        raise WatermarkLostError(
            f"job {job}: in Spark's plan the stateful operator {operator} gets no watermark, "
            "because the part below it that has the watermark is reused (ReusedExchange): it would "
            "give no rows, and keep its state for ever. Nothing of this epoch was written; set "
            f"{key} to false for the Spark session, and see docs/spark-exchange-reuse.md"
        )


def java_plans() -> Any:
    """Return a new ``SeamarkPlan``, which walks plans in Java."""
    return loaded_class(SparkContext._jvm, "SeamarkPlan").newInstance()


def analysed(frame: DataFrame) -> Any:
    """Return the analysed plan of a DataFrame."""
    return frame._jdf.queryExecution().analyzed()


def selected(sink: DeclaredSink) -> DataFrame:
    """Return the rows that a sink takes of its DataFrame. In its expressions a quoted name is the
    column's, whatever the session's settings: no pattern, and without variables."""
    frame, texts = sink.dataframe, sink.select_expressions
    spark = frame.sparkSession
    if spark.conf.get(_PATTERNS) == "false" and "${" not in "".join(texts):
        return frame.selectExpr(*texts)
    clone = spark._jsparkSession.cloneSession()
    for setting in (_PATTERNS, "spark.sql.variable.substitute"):
        clone.conf().set(setting, "false")
    column = java_class(spark._jvm, "org.apache.spark.sql.classic.ExpressionUtils").column
    with active(spark, clone):  # which the parser asks for its settings
        parse = clone.sessionState().sqlParser().parseExpression
        columns = [Column(column(parse(text))) for text in texts]
    return frame.select(*columns)


def list_files_again(frame: DataFrame) -> None:
    """List the files of the static tables in a plan, which keeps those that it found at first."""
    plan = analysed(frame)
    for part in (plan, *items(plan.subqueriesAll())):
        part.refresh()


def name_of(node: Any) -> str:
    """Return the name of a node's class, e.g. ``Aggregate``."""
    return str(node.getClass().getSimpleName())


def items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a Scala collection."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def nodes(plan: Any, kind: str) -> list[Any]:
    """Return the nodes of a plan, each before those below it, whose class has a name that begins
    with `kind`."""
    return items_of(java_plans().nodes(plan, kind))


def scala_class(node: Any, name: str) -> Any:
    """Return a class by its full name, from the JVM of `node`. Naming it part by part
    (``jvm.org.apache…``) would ask the JVM for each part."""
    return JavaClass(name, node._gateway_client)


def without_watermarks(frame: DataFrame) -> DataFrame:
    """Return the stream without the watermarks in its plan; itself if it has none."""
    plan = java_plans().withoutWatermarks(analysed(frame))
    return frame if plan is None else frame_of(plan, frame.sparkSession)


def frame_of(plan: Any, spark: SparkSession) -> DataFrame:
    """Return the DataFrame of a logical plan."""
    dataset = scala_class(plan, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)


class Compared:
    """A plan for many comparisons. Plans with different hashes are told apart without asking Spark.

    Spark's own comparison tells two calls of ``withWatermark`` apart, since each gets a random node
    id. Here they are equal if column and delay are.
    """

    def __init__(self, plan: Any) -> None:
        self._plan = java_plans().comparable(plan)
        self._hash = int(self._plan.semanticHash())

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Compared)
            and self._hash == other._hash
            and (self is other or bool(self._plan.sameResult(other._plan)))
        )

    def __hash__(self) -> int:
        return self._hash
