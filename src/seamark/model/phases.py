"""The phases of an epoch, one after another: where a checkpoint's time went."""

from __future__ import annotations

from dataclasses import dataclass

from seamark.model.checkpoint_statistics import CheckpointStatistics
from seamark.model.stats_summary import UNKNOWN


@dataclass(frozen=True)
class Phases:
    """Milliseconds; UNKNOWN for a phase still running.

    The phases of a completed checkpoint add up to its `end_to_end_duration`.

    - `read_and_process`: from the trigger until the last task is done, less its `pre_commit`.
    - `pre_commit`: the longest time of any task for writing to the sinks and flushing. Tasks read,
      process and write in turns, so it is no stretch of time of its own.
    - `decision`: storing the attempt, Spark's commit of its state, and the wait to see that commit.
    - `commit`: the sinks' commits and their record; the next epoch may run meanwhile.
    """

    read_and_process: int = UNKNOWN
    pre_commit: int = UNKNOWN
    decision: int = UNKNOWN
    commit: int = UNKNOWN


def phases(checkpoint: CheckpointStatistics) -> Phases:
    """Return the phases of one checkpoint."""
    if checkpoint.sync_duration < 0:
        return Phases()
    sinks = [task.subtasks for task in checkpoint.tasks if task.kind == "sink"]
    writing = (
        sum(max(subtask.sync_duration, 0) for subtask in task) for task in zip(*sinks, strict=True)
    )
    # Tasks measure by their machines' clocks; the duration is by the driver's clock.
    pre_commit = min(max(writing, default=0), checkpoint.sync_duration)
    read_and_process = checkpoint.sync_duration - pre_commit
    if checkpoint.async_duration < 0 or checkpoint.end_to_end_duration < 0:
        return Phases(read_and_process, pre_commit)
    decision = max(
        checkpoint.end_to_end_duration - checkpoint.sync_duration - checkpoint.async_duration, 0
    )
    return Phases(read_and_process, pre_commit, decision, checkpoint.async_duration)
