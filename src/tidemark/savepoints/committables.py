"""The transactions in a savepoint: those of its epoch that were decided, and that some sink had not
committed when it was taken.

A restored job commits them like those of an epoch of its own: its directory gets a prepared record
of the savepoint's epoch, and the recovery of its first start does the rest. The first job, if it
runs, does the same; commits are idempotent. `job_restore.py` and the restore plan ask here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import SparkSession

from tidemark.checkpoint.store import CheckpointStore, SinkEpoch
from tidemark.model.errors import TidemarkError
from tidemark.runtime.restore import RESTORED_GENERATION, open_job
from tidemark.savepoints.record import Savepoint

log = logging.getLogger(__name__)


def uncommitted(spark: SparkSession, savepoint: Savepoint) -> dict[str, SinkEpoch]:
    """Return the transactions that a job restored now has to commit, by the sink's uid: those of
    the savepoint, or none if the first job's records say that it has committed them since. Sinks
    forget transactions in time, so what is known to be committed is not asked for again."""
    if not savepoint.committables or _is_committed(spark, savepoint):
        return {}
    rows = {sink.uid: sink.rows for sink in savepoint.sinks}
    return {
        uid: SinkEpoch(rows.get(uid, 0), given)
        for uid, given in savepoint.committables.items()
        if given
    }


def _is_committed(spark: SparkSession, savepoint: Savepoint) -> bool:
    try:
        store = open_job(spark, savepoint.job_directory)
        if store.read_identity().job_id != savepoint.job_id:
            return False
        if savepoint.epoch in store.epochs():
            return store.epoch(savepoint.epoch).committed is not None
        return store.latest_decision() > savepoint.epoch  # it is deleted when it is committed
    except (OSError, TidemarkError) as error:
        log.info("%s does not say what was committed: %s", savepoint.job_directory, error)
        return False


def take_over(target: CheckpointStore, epoch: int, parts: Mapping[str, SinkEpoch]) -> None:
    """Store transactions of a savepoint's epoch as those of the job in `target`, which its recovery
    commits. It may be called again."""
    if not target.files.exists(f"epochs/{epoch}/prepared.{RESTORED_GENERATION}.json"):
        target.stage_prepared(epoch, RESTORED_GENERATION, parts)
        target.write_prepared(epoch, RESTORED_GENERATION)


def problems(savepoint: Savepoint, sinks: Mapping[str, str]) -> Iterator[str]:
    """Yield why some sink's transactions cannot be committed by a job with these `sinks` (the type
    of each by its uid): another type has the uid. What has no taker at all is named elsewhere."""
    types = {sink.uid: sink.type for sink in savepoint.sinks}
    for uid in unfit(savepoint, sinks):
        if uid in sinks:
            yield (
                f"the savepoint has {len(savepoint.committables[uid])} transactions to commit of "
                f"sink {uid!r}, a {types[uid]}, which is a {sinks[uid]} in the program; declare it "
                "as it was once more, or drop them: -n, allow_non_restored_state=True"
            )


def unfit(savepoint: Savepoint, sinks: Mapping[str, str]) -> Sequence[str]:
    """Return the uids whose transactions none of these sinks can commit."""
    types = {sink.uid: sink.type for sink in savepoint.sinks}
    return [
        uid
        for uid, given in savepoint.committables.items()
        if given and sinks.get(uid) != types.get(uid, sinks.get(uid))
    ]
