"""The phases of an epoch, one after another: where a checkpoint's time went."""

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


def phases_of(sync: int, writing: int, commit: int, whole: int) -> Phases:
    """Return the phases of an epoch that took `whole`: `sync` until its last task was done, with
    `writing` for the slowest task's writes, and `commit`; each UNKNOWN until it is over."""
    if sync < 0:
        return Phases()
    # Tasks measure by their machines' clocks; the duration is by the driver's clock.
    pre_commit = min(writing, sync)
    if commit < 0 or whole < 0:
        return Phases(sync - pre_commit, pre_commit)
    return Phases(sync - pre_commit, pre_commit, max(whole - sync - commit, 0), commit)


def phases(checkpoint: CheckpointStatistics) -> Phases:
    """Return the phases of one checkpoint."""
    sinks = [task.subtasks for task in checkpoint.tasks if task.kind == "sink"]
    writing = (
        sum(max(subtask.sync_duration, 0) for subtask in task) for task in zip(*sinks, strict=True)
    )
    return phases_of(
        checkpoint.sync_duration,
        max(writing, default=0),
        checkpoint.async_duration,
        checkpoint.end_to_end_duration,
    )
