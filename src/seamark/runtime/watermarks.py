"""Makes sure no stateful operator runs without the watermark of its stream.

Spark computes equal parts of a plan once (``spark.sql.exchange.reuse``). It finds each operator's
watermark on a walk through the physical plan, and the walk ends at a reused part. An operator above
such a part never learns the progress of event time: it emits nothing in append mode, and keeps its
state for ever (docs/spark-exchange-reuse.md). So the queries of stateful jobs do not reuse
exchanges, and `require_watermarks` checks the plan before Spark runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError

from seamark.model.errors import WatermarkLostError
from seamark.runtime.plans import children, name_of

NO_EXCHANGE_REUSE = {"spark.sql.exchange.reuse": "false"}


def require_watermarks(job: str, executed_plan: Any) -> None:
    """Raise WatermarkLostError if an operator of a physical plan does not get the watermark below
    it. Called in the first epoch of a run, before its tasks."""
    for node in _nodes(executed_plan):
        if _follows_watermark(node) and any(map(_hides_watermark, _nodes(node))):
            key = next(iter(NO_EXCHANGE_REUSE))
            raise WatermarkLostError(
                f"job {job}: in Spark's plan the stateful operator {name_of(node)} gets no "
                "watermark, because the part below it that has the watermark is reused "
                "(ReusedExchange): it would give no rows, and keep its state for ever. Nothing of "
                f"this epoch was written; set {key} to false for the Spark session, and see "
                "docs/spark-exchange-reuse.md"
            )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in children(plan):
        yield from _nodes(child)


def _follows_watermark(node: Any) -> bool:
    try:
        node.eventTimeWatermarkForEviction()
    except Py4JError:  # it has no such method
        return False
    return True


def _hides_watermark(node: Any) -> bool:
    return name_of(node) == "ReusedExchangeExec" and any(
        name_of(hidden) == "EventTimeWatermarkExec" for hidden in _nodes(node.child())
    )
