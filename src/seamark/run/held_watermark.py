"""Ends the work of keyed operators at a deadline, and holds the watermark at the oldest row left.

Spark finds the next epoch's watermark after `foreachBatch`, from the greatest event times of the
epoch: each `EventTimeWatermarkExec` of the plan has an accumulator for them. `KeyedEpochs` changes
these figures before Spark reads them. While rows wait, an event time counts as the oldest
row's at most, plus the watermark's delay. So no timer and no late-row filter passes a waiting row,
in the operator or after it. When none waits, the greatest event time seen counts again, also
in an epoch without new rows.

The oldest row's time is known by the epoch of its arrival. After a restart the times of earlier
epochs are unknown: the watermark stays until their rows are processed. The greatest event times are
in the prepared record.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark import SparkContext

from seamark.checkpoint.task_reports import KeyedFigures
from seamark.model.errors import StateWrittenTwiceError
from seamark.run.keyed_operator import DEADLINE, QUERY, WATERMARKS, InFlight
from seamark.run.keyed_process import DeclaredKeyed
from seamark.spark.plans import nodes


class KeyedEpochs:
    """The keyed operators of one run of a job. `deadline_s` is the time from an epoch's start to
    its deadline; None: epochs process all their rows. Used by the thread of Spark's query."""

    def __init__(self, keyed: Sequence[DeclaredKeyed], deadline_s: float | None) -> None:
        self._keyed = keyed
        self._deadline_s = deadline_s
        self._query = ""
        self.aligning = 0
        """Epochs that begin while this is above 0 have no deadline."""
        self._held = {one.uid: Held() for one in keyed if one.event_time}
        self._newest_ms: dict[int, int] = {}
        """The greatest event time seen, by the place of a watermark in the plan."""
        self._holding = False
        self._places = 0
        self.waiting = bool(keyed)
        """Whether rows wait for the next epoch; unknown, and taken as so, before a run's first."""
        self.figures: dict[str, KeyedFigures] = {}
        """The bytes of the last epoch's chunks, by uid; those of earlier runs are not known."""
        self._watermarks: dict[str, int] = {}
        """The operators' watermarks in the last epoch, as far as tasks have told them."""

    @property
    def event_times(self) -> tuple[int | None, ...]:
        """The greatest event time seen at each watermark, while the watermarks are held back."""
        places = range(self._places) if self._holding else ()
        return tuple(self._newest_ms.get(place) for place in places)

    def go_on_from(self, event_times: Sequence[int | None]) -> None:
        """Take `event_times` of the last epoch of an earlier run; called before the first epoch."""
        self._newest_ms = {n: ms for n, ms in enumerate(event_times) if ms is not None}
        self._places = len(event_times)
        self._holding = bool(event_times)

    def begin(self, context: SparkContext, watermark_before: Callable[[], int]) -> None:
        """Set the deadline of the epoch that begins now, for its tasks. `watermark_before` reads
        the watermark of the epoch before; it is called in a run's first epoch."""
        if self._held and not self._watermarks:
            self._watermarks = dict.fromkeys(self._held, watermark_before())
        if self._keyed:
            self._query = str(context.getLocalProperty(QUERY))
            for one in self._keyed:
                one.report.value[self._query] = InFlight()
            # None of an earlier epoch is left: a replayed epoch's time counts anew.
            timed = self._deadline_s is not None and not self.aligning
            deadline = f"{time.time()} {self._deadline_s}" if timed else ""
            context.setLocalProperty(DEADLINE, deadline)
            context.setLocalProperty(WATERMARKS, json.dumps(self._watermarks))

    def end(self, epoch: int, find_execution: Callable[[], Any]) -> dict[str, Any]:
        """Hold the watermark of the next epoch back. Return what `CheckpointStore.note_own` takes.
        Called when the tasks of `epoch` have ended, with a way to Spark's `IncrementalExecution`,
        before Spark takes the watermark. Raises StateWrittenTwiceError where Spark's decision may
        name another state than the one whose rows the sinks have."""
        if not self._keyed:
            return {}
        reports = {one.uid: one.report.value[self._query] for one in self._keyed}
        self.waiting = any(report.waiting for report in reports.values())
        before = self.figures
        self.figures = {
            uid: _figures(report, before.get(uid, KeyedFigures()).persisted)
            for uid, report in reports.items()
        }
        execution = find_execution()
        plan = execution.executedPlan()
        if self._held:
            now_ms = int(execution.offsetSeqMetadata().batchWatermarkMs())
            self._hold_all(epoch, now_ms, plan, reports)
        return _written_state(plan)

    def _hold_all(
        self, epoch: int, now_ms: int, plan: Any, reports: Mapping[str, InFlight]
    ) -> None:
        known = {uid: report.watermark_ms for uid, report in reports.items()}
        self._watermarks.update({uid: ms for uid, ms in known.items() if ms is not None})
        hold_ms = min(held.after(epoch, reports[uid], now_ms) for uid, held in self._held.items())
        if hold_ms == math.inf and not self._holding:
            return
        watermarks = nodes(plan, "EventTimeWatermarkExec")
        processed = [r.newest_ms for r in reports.values() if r.newest_ms is not None]
        if len(watermarks) > 1:  # whose rows they were is not known: another's would become late
            processed.clear()
        if self._holding and self._places != len(watermarks):
            # The plan has got or lost a watermark since: each would go on from another's time.
            self._newest_ms.clear()
        self._places = len(watermarks)
        for place, node in enumerate(watermarks):
            self._hold(place, node, hold_ms, processed)
        self._holding = hold_ms < math.inf

    def _hold(self, place: int, node: Any, hold_ms: float, processed: Sequence[int]) -> None:
        times = node.eventTimeStats().value()
        seen = [*processed, *(ms for p, ms in self._newest_ms.items() if p == place)]
        if times.count():
            seen.append(int(times.max()))
        if not seen:
            return
        self._newest_ms[place] = max(seen)
        newest_ms = int(min(max(seen), hold_ms + int(node.delayMs())))
        if not times.count():
            times.add(newest_ms)  # Spark passes over figures of no row
        getattr(times, "max_$eq")(newest_ms)


class Held:
    """The event times of one operator's waiting rows, by the epoch of their arrival."""

    def __init__(self) -> None:
        self._oldest_ms: dict[int, float] = {}

    def after(self, epoch: int, report: InFlight, unknown_ms: int) -> float:
        """Return the event time of the oldest row that waits after `epoch`: infinity if there is
        none, `unknown_ms` if the rows of an earlier run wait."""
        if report.stored_new_rows:
            self._oldest_ms[epoch] = math.inf if report.oldest_ms is None else report.oldest_ms
        first = min(report.waiting, default=epoch + 1)
        self._oldest_ms = {e: ms for e, ms in self._oldest_ms.items() if e >= first}
        if report.waiting and first not in self._oldest_ms:
            return unknown_ms
        return min(self._oldest_ms.values(), default=math.inf)


def _figures(report: InFlight, waited: int) -> KeyedFigures:
    waiting = max(0, waited + report.stored_bytes - report.processed_bytes)
    return KeyedFigures(report.processed_bytes, waiting if report.waiting else 0)


def _written_state(plan: Any) -> dict[str, Any]:
    """Return an id of the state that an epoch's tasks have written; {} in Spark's checkpoint format
    1, which has none. Raises StateWrittenTwiceError."""
    written: dict[str, Any] = {}
    for node in nodes(plan, "TransformWithState"):
        tasks, state = node.checkpointInfoAccumulator().value(), node.getStateInfo()
        if tasks.size() > state.numPartitions():
            raise StateWrittenTwiceError(
                f"Spark ran {tasks.size()} tasks of a keyed function with {state.numPartitions()} "
                "partitions: an executor has died, or a task was slow, and its copy may have ended "
                "the epoch at another row. The epoch fails, and nothing is lost: it runs again at "
                "the next start, or at a restart by CheckpointConfig(restart_strategy=...)"
            )
        if tasks.size() and not written:
            store = f"{state.operatorId()}/{tasks.get(0).partitionId()}"
            written = {"store": store, "id": tasks.get(0).stateStoreCkptId().get()[0]}
    return {"state": written} if written else {}
