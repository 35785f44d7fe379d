"""Sees whether Spark's stream thread still moves while no epoch is under way.

From `foreachBatch` to its decision an epoch has its own timeout (`checkpoint/coordinator.py`).
Before that, Spark asks the sources what is new and writes its offset log, and after it Spark
cleans up; a source or a file system that hangs there would hold up the job for ever, unseen.
"""

from __future__ import annotations

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
    """From now on, in a thread, until `ended`: fail the run with CheckpointExpiredError when Spark
    neither begins nor ends anything for `timeout_s`, between two epochs or before the first."""
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
    """Where Spark's stream thread is: when its newest trigger began (ms since 1970, -1: none yet),
    whether that is under way, and what Spark says that it does."""

    begun: int
    active: bool
    message: str


def spark_trigger(query: StreamingQuery) -> SparkTrigger:
    """Ask Spark. Triggers come one after another; some make no epoch, for want of new rows."""
    stream = query._jsq.streamingQuery()
    context = stream.getLatestExecutionContext()
    begun = int(context.currentTriggerStartTimestamp()) if context is not None else -1
    status = stream.status()
    return SparkTrigger(begun, bool(status.isTriggerActive()), str(status.message()))
