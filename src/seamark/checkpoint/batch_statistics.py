"""The batches that a query of ``format("seamark")`` has decided, as the statistics of checkpoints:
what `seamark list`, `info`, `checkpoints` and the dashboard show of it."""

from seamark.checkpoint.batch_log import UID, StoredLog
from seamark.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    TaskCheckpointStatistics,
)
from seamark.model.checkpointing_statistics import (
    CheckpointCounts,
    CheckpointingStatistics,
    checkpointing_statistics,
)
from seamark.model.stats_summary import UNKNOWN
from seamark.protocol.batches import Begun, Decided, Entry


def batch_statistics(log: StoredLog) -> CheckpointingStatistics:
    """Return them as far as the log keeps them. A batch is completed when it is committed; its time
    is from its try's beginning to its decision. Its sizes are not known."""
    kept = log.kept()
    decided = [(n, entry) for n, entry in kept.items() if isinstance(entry, Decided)]
    history = [
        _checkpoint(f"{log.files.uri}/{log.path(number)}", entry, kept.get(entry.attempt))
        for number, entry in reversed(decided)
    ]
    completed = sum(entry.committed for _, entry in decided)
    if decided and (total := decided[-1][1].total) is not None:
        completed += decided[0][1].batch - total.since  # those that are not kept any more
    return checkpointing_statistics(CheckpointCounts(completed=completed), None, history)


def _checkpoint(path: str, decided: Decided, begun: Entry | None) -> CheckpointStatistics:
    status = CheckpointStatus.COMPLETED if decided.committed else CheckpointStatus.IN_PROGRESS
    since = begun.at if isinstance(begun, Begun) else decided.at
    tasks = len(decided.part.ledger)
    figures = {
        "status": status,
        "latest_ack_timestamp": round(decided.at * 1000),
        "end_to_end_duration": round((decided.at - since) * 1000),
        "checkpointed_size": UNKNOWN,
        "state_size": UNKNOWN,
        "rows": decided.part.rows,
        "num_subtasks": tasks,
        "num_acknowledged_subtasks": tasks,
    }
    sink = TaskCheckpointStatistics(uid=UID, kind="sink", name=UID, **figures)
    return CheckpointStatistics(
        id=decided.batch,
        trigger_timestamp=round(since * 1000),
        external_path=path,
        tasks=(sink,),
        **figures,
    )
