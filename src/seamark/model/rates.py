"""The data rates, from the statistics of checkpoints: records in and out, lag, busy time.

Pure. `model/checkpoint_series.py` has the figures of each checkpoint; the job's graph and the
Prometheus metrics show the rates and sums (docs/operations/metrics.md defines each).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seamark.model.checkpoint_statistics import CheckpointStatistics, TaskCheckpointStatistics
from seamark.model.stats_summary import UNKNOWN

OFFSETS_BEHIND = "offsetsBehindLatest"
"""A source's metric: rows it held at the epoch's planning beyond those in the epoch."""

WATERMARK = "currentInputWatermark"
"""A source's and an operator's metric: the stream counts as complete up to this time, in ms since
1970. Spark has one for the whole query."""

WINDOW_MS = 60_000
WINDOW_CHECKPOINTS = 10
LATE = 2.0
"""Data no longer flows if no next checkpoint came within this many usual gaps."""
_STATE_TIMES = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")


def records_in(checkpoint: CheckpointStatistics) -> int | None:
    """Return the rows from the checkpoint's sources; None until Spark reports them. Spark counts a
    row once for each branch of the plan that scans its source."""
    sources = [task for task in checkpoint.tasks if task.kind == "source"]
    return sum(task.rows for task in sources) if sources else None


def records_out(checkpoint: CheckpointStatistics) -> int | None:
    """Return the rows taken by the checkpoint's sinks; None before its pre-commit is complete."""
    sinks = [task for task in checkpoint.tasks if task.kind == "sink"]
    return sum(task.rows for task in sinks) if sinks else None


def lag(checkpoint: CheckpointStatistics) -> int | None:
    """Return the rows held by the sources at planning but left to later checkpoints. None if no
    source reports them."""
    known = [
        task.metrics[OFFSETS_BEHIND]
        for task in checkpoint.tasks
        if task.kind == "source" and OFFSETS_BEHIND in task.metrics
    ]
    return sum(known) if known else None


def busy_ms(checkpoint: CheckpointStatistics, uid: str, slots: int) -> float | None:
    """Return the working time of one part of the job on a checkpoint, as if by one subtask.

    The work of parallel tasks is divided by the number that can run at once (`slots`).

    - a sink: its writers' `write` and `prepare_commit`, and its commit.
    - a stateful operator: Spark's times for updates, removals and the store's commit, which include
      any work before the operator in the same stage.
    - a source: planning (latestOffset, getBatch), and the pre-commit tasks' time without the
      sinks': reading and stateless processing. None, not measured, if stages come before the
      pre-commit (there are stateful operators), or if there are several sources.
    """
    task = next((task for task in checkpoint.tasks if task.uid == uid), None)
    if task is None:
        return None
    if task.kind == "sink":
        commit = max(task.async_duration, 0)
        return commit + sum(_parallel(task, [s.sync_duration for s in task.subtasks], slots))
    if task.kind == "operator":
        known = [task.metrics[name] for name in _STATE_TIMES if name in task.metrics]
        return sum(known) / min(max(task.num_subtasks, 1), slots) if known else None
    kinds = [other.kind for other in checkpoint.tasks]
    if "operator" in kinds or kinds.count("source") > 1:
        return None
    return _reading_ms(checkpoint, slots)


def _reading_ms(checkpoint: CheckpointStatistics, slots: int) -> float | None:
    sinks = [task for task in checkpoint.tasks if task.kind == "sink" and task.subtasks]
    durations = checkpoint.spark_durations
    if not sinks or "latestOffset" not in durations:
        return None
    left = [
        max(part.end_to_end_duration - part.start_delay, 0) - sum(
            max(sink.subtasks[place].sync_duration, 0) for sink in sinks
        )
        for place, part in enumerate(sinks[0].subtasks)
    ]  # fmt: skip
    planning = durations["latestOffset"] + durations.get("getBatch", 0)
    return planning + sum(_parallel(sinks[0], left, slots))


def _parallel(
    task: TaskCheckpointStatistics, times_ms: Sequence[int], slots: int
) -> Iterator[float]:
    lanes = min(max(len(task.subtasks), 1), slots)
    return (max(time_ms, 0) / lanes for time_ms in times_ms)


@dataclass(frozen=True)
class Rates:
    """The rates of one part of a job; None: not known."""

    records_per_second: float | None = None
    busy_share: float | None = None


NO_RATES = Rates()


def rates(completed: Sequence[CheckpointStatistics], uid: str, now_ms: float, slots: int) -> Rates:
    """Return one part's rates over the last minute of checkpoints, the last ten at least.

    `completed` are the completed checkpoints, oldest first. Each counts from its trigger to the
    next trigger. The newest counts only once the next one is late, with the time up to now, so the
    rates fall when data no longer comes. A checkpoint without figures of the part is left out, with
    its time.
    """
    recent = [
        checkpoint
        for place, checkpoint in enumerate(completed)
        if len(completed) - place <= WINDOW_CHECKPOINTS
        or checkpoint.trigger_timestamp >= completed[-1].trigger_timestamp - WINDOW_MS
    ]
    if len(recent) < 2:
        return NO_RATES
    triggers = [float(checkpoint.trigger_timestamp) for checkpoint in recent]
    usual_ms = (triggers[-1] - triggers[0]) / (len(recent) - 1)
    if now_ms - triggers[-1] > LATE * usual_ms:
        triggers.append(now_ms)
    rows, worked_ms, counted_ms, measured_ms = 0, 0.0, 0.0, 0.0
    for place, elapsed_ms in enumerate(b - a for a, b in pairwise(triggers)):
        checkpoint = recent[place]
        task = next((task for task in checkpoint.tasks if task.uid == uid), None)
        if task is None or task.rows == UNKNOWN:
            continue
        rows += task.rows
        counted_ms += elapsed_ms
        worked = busy_ms(checkpoint, uid, slots)
        if worked is not None:
            worked_ms += worked
            measured_ms += elapsed_ms
    return Rates(
        records_per_second=rows / counted_ms * 1e3 if counted_ms > 0 else None,
        busy_share=min(worked_ms / measured_ms, 1.0) if measured_ms > 0 else None,
    )
