"""Watches for a stuck stream thread of Spark while no epoch is under way.

From `foreachBatch` to its decision an epoch has its own timeout (`checkpoint/coordinator.py`).
Before `foreachBatch`, Spark asks the sources for new offsets and writes its offset log; after the
decision it cleans up. Without the watch, a source or file system hanging there would hold up the
job for ever, unseen.
"""

import logging
import threading
import time
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql.streaming import StreamingQuery

from seamark.checkpoint.coordinator import Coordinator
from seamark.model.errors import CheckpointExpiredError

log = logging.getLogger(__name__)

LONGEST_POLL_S = 5.0
IDLE = object()


def watch_stream(
    query: StreamingQuery, coordinator: Coordinator, timeout_s: float, ended: threading.Event
) -> None:
    """Start a thread that watches the query until `ended`. Fail the run with CheckpointExpiredError
    when Spark neither begins nor ends anything for `timeout_s`, outside of an epoch."""
    if timeout_s < threading.TIMEOUT_MAX:
        threading.Thread(
            target=_watch,
            args=(query, coordinator, timeout_s, ended),
            name="seamark-stream-watch",
            daemon=True,
        ).start()


def _watch(
    query: StreamingQuery, coordinator: Coordinator, timeout_s: float, ended: threading.Event
) -> None:
    seen, since_s = IDLE, time.monotonic()
    while not ended.wait(min(timeout_s / 10, LONGEST_POLL_S)) and coordinator.failure is None:
        try:
            spark = spark_trigger(query)
        except Py4JError as error:
            log.debug("Spark does not say what the query does: %s", error)
            return
        waiting = spark.begun >= 0 and not spark.active
        trigger = IDLE if waiting else spark.begun
        if trigger is IDLE or trigger != seen or not coordinator.epochs.awaits_spark:
            seen, since_s = trigger, time.monotonic()
        elif time.monotonic() - since_s > timeout_s:
            coordinator.fail(
                CheckpointExpiredError(
                    f"Spark has not begun epoch {coordinator.last_stored + 1} for {timeout_s:g} s; "
                    f"it was at: {spark.message!r}. A source or the checkpoint storage hangs, or "
                    "needs more than CheckpointConfig timeout"
                )
            )
            return


class SparkTrigger(NamedTuple):
    """The position of Spark's stream thread: the start of its newest trigger (`begun`, ms since
    1970, -1 for none yet), whether the trigger is under way (`active`), and Spark's message."""

    begun: int
    active: bool
    message: str


def spark_trigger(query: StreamingQuery) -> SparkTrigger:
    """Ask Spark. Triggers come one after another; a trigger without new rows makes no epoch."""
    stream = query._jsq.streamingQuery()
    context = stream.getLatestExecutionContext()
    begun = int(context.currentTriggerStartTimestamp()) if context is not None else -1
    status = stream.status()
    return SparkTrigger(begun, bool(status.isTriggerActive()), str(status.message()))
