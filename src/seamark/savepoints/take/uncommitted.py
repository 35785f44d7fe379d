"""The transactions in a savepoint: those of its epoch that were decided and not committed to every
sink when it was taken; and those of earlier epochs, if the job lets several wait.

A restored job commits them like its own: its directory gets prepared records of these epochs, and
the recovery of its first start does the rest. The first job, if it runs, does the same; commits are
idempotent. Rows that a write-ahead sink has not sent exist only in the checkpoint, so they go
along. `take/running.py` asks `save_rows` for them at the end of the export, and a restore puts them
into the new job's directory. Its recovery sends them, with the first job's token. docs/FORMAT.md
gives their place.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyspark.sql import SparkSession

from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.spool import SPOOLS, spool_directory
from seamark.files import Directory
from seamark.model.errors import DamagedCheckpointError, SavepointError, SeamarkError
from seamark.run.checkpoint_trigger import SINK_PATIENCE_S
from seamark.run.query import StreamRun
from seamark.savepoints.record import SavepointRecord
from seamark.savepoints.restore.origin import open_job
from seamark.savepoints.state.copies import copier
from seamark.spark.hadoop_files import open_files

log = logging.getLogger(__name__)

TRIES = 10
"""The number of tries to copy the rows; during each, a sink may get further."""

ByEpoch = dict[int, dict[str, SinkEpoch]]
"""Transactions by epoch, ascending, and by the sink's uid."""
Uncommitted = tuple[Mapping[int, Mapping[str, SinkEpoch]], Mapping[str, tuple[int, int]]]
"""The transactions of a savepoint, and their files put into it: bytes and CRC-32."""


def merged(
    waiting: Mapping[int, Mapping[str, SinkEpoch]], epoch: int
) -> tuple[dict[str, tuple[bytes, ...]], dict[str, int], dict[str, dict[str, tuple[int, int]]]]:
    """Return, for a savepoint of `epoch`, `SavepointRecord.committables`, their rows by the sink's
    uid, and `SavepointRecord.earlier`."""
    committables: dict[str, tuple[bytes, ...]] = {}
    rows: dict[str, int] = {}
    earlier: dict[str, dict[str, tuple[int, int]]] = {}
    for number, parts in sorted(waiting.items()):
        for uid, part in parts.items():
            if part.committables:
                committables[uid] = committables.get(uid, ()) + part.committables
                rows[uid] = rows.get(uid, 0) + part.rows
                if number != epoch:
                    of_epoch = earlier.setdefault(str(number), {})
                    of_epoch[uid] = len(part.committables), part.rows
    return committables, rows, earlier


def by_epoch(savepoint: SavepointRecord) -> ByEpoch:
    """Return the savepoint's transactions by epoch: the inverse of `merged`."""
    left = dict(savepoint.committables)
    rows = {sink.uid: sink.rows for sink in savepoint.sinks}
    epochs: ByEpoch = {}
    for number, of_epoch in sorted((int(e), of) for e, of in savepoint.earlier.items()):
        epochs[number] = {}
        for uid, (count, rows_of) in of_epoch.items():
            epochs[number][uid] = SinkEpoch(rows_of, left[uid][:count])
            left[uid] = left[uid][count:]
            rows[uid] = rows.get(uid, 0) - rows_of
    epochs[savepoint.epoch] = {
        uid: SinkEpoch(rows.get(uid, 0), given) for uid, given in left.items() if given
    }
    return {number: parts for number, parts in epochs.items() if parts}


def uncommitted(spark: SparkSession, savepoint: SavepointRecord) -> ByEpoch:
    """Return the transactions for a job restored now to commit: the savepoint's, except for epochs
    that the first job has committed since, according to its records. What it has left to a sink's
    system is still to commit. Sinks forget transactions in time, so a known commit is not asked for
    again."""
    if not savepoint.committables:
        return {}
    try:
        store = open_job(spark, savepoint.job_directory)
        there = store.read_identity().job_id == savepoint.job_id
    except (OSError, SeamarkError) as error:
        log.info("%s does not say what was committed: %s", savepoint.job_directory, error)
        there = False
    epochs = by_epoch(savepoint)
    if there:
        epochs = {epoch: _still_open(store, epoch, parts) for epoch, parts in epochs.items()}
    return {epoch: parts for epoch, parts in epochs.items() if parts}


def _still_open(
    store: CheckpointStore, epoch: int, parts: dict[str, SinkEpoch]
) -> dict[str, SinkEpoch]:
    """Return the parts of an epoch that the first job's records do not tell as committed."""
    try:
        left = store.left(epoch)
        if store.is_last(max(store.generations(), default=0)):
            committed = True  # a superseded lineage, settled before, and maybe emptied since
        elif epoch in store.epochs():
            committed = store.epoch(epoch).committed is not None
        else:
            committed = store.latest_decision() > epoch  # it is deleted only after its commit
    except (OSError, SeamarkError) as error:
        log.info("%s does not say whether epoch %d was committed: %s", store.uri, epoch, error)
        return parts
    return {uid: part for uid, part in parts.items() if uid in left} if committed else parts


def problems(savepoint: SavepointRecord, sinks: Mapping[str, str]) -> Iterator[str]:
    """Yield the sinks whose transactions a job with these `sinks` (the type of each by its uid)
    cannot commit: another type has the uid. `problems` names uids without a sink."""
    types = {sink.uid: sink.type for sink in savepoint.sinks}
    for uid in unfit(savepoint, sinks):
        if uid in sinks:
            yield (
                f"the savepoint has {len(savepoint.committables[uid])} transactions to commit of "
                f"sink {uid!r}, a {types[uid]}, which is a {sinks[uid]} in the program; declare it "
                "as it was once more, or drop them: -n, allow_non_restored_state=True"
            )


def unfit(savepoint: SavepointRecord, sinks: Mapping[str, str]) -> Sequence[str]:
    """Return the uids whose transactions none of these sinks can commit."""
    types = {sink.uid: sink.type for sink in savepoint.sinks}
    return [
        uid
        for uid, given in savepoint.committables.items()
        if given and sinks.get(uid) != types.get(uid, sinks.get(uid))
    ]


# --- the rows that sinks keep in the checkpoint


def save_rows(spark: SparkSession, run: StreamRun, epoch: int, files: Directory) -> Uncommitted:
    """Return the transactions of a sealed epoch of this run, and of earlier ones, that some sink
    may not have committed after SINK_PATIENCE_S; and the copies of their rows in the savepoint
    `files`. The rows of a spool stay where they are. Raises SavepointError if the rows cannot be
    copied."""
    job = open_files(spark, run.uri, make=False)
    copy = copier(job, files, lambda: spark)
    waiting, rows = _look(run, epoch, SINK_PATIENCE_S)
    for _ in range(TRIES):
        try:
            copied = {path: copy(now, path) for path, now in rows.items()}
        except FileNotFoundError:
            copied = {}
        before = waiting
        waiting, rows = _look(run, epoch, 0.0)
        if waiting == before and copied.keys() == rows.keys():
            return waiting, copied
        files.delete(SPOOLS)  # some sink got further meanwhile
    raise SavepointError(
        f"savepoint of epoch {epoch}: the rows that its sinks keep in {run.uri}/{SPOOLS} cannot be "
        "copied: they are missing. See docs/operations/damaged-checkpoint.md"
    )


def _look(run: StreamRun, epoch: int, patience_s: float) -> tuple[ByEpoch, dict[str, str]]:
    """Return the uncommitted transactions, and the present path of each file of rows that sinks
    keep for them, by the path in the committable."""
    parts: ByEpoch = {}
    rows: dict[str, str] = {}
    for number, of_epoch in run.coordinator.uncommitted_up_to(epoch, patience_s).items():
        parts[number] = {}
        for uid, part in of_epoch.items():
            parts[number][uid], kept = run.coordinator.unsent_rows(uid, part)
            rows |= kept
    return parts, rows


def put_back(
    spark: SparkSession, savepoint: SavepointRecord, target: CheckpointStore, uids: Iterable[str]
) -> None:
    """Copy the rows of these sinks into the directory of a new job. It may be called again. Raises
    DamagedCheckpointError if a file is not as it was written."""
    source = open_files(spark, savepoint.uri, make=False)
    copy = copier(source, target.files, lambda: spark)
    for path, known in rows_of(savepoint, uids).items():
        target.files.delete(path)  # of a restore that was cut off
        if copy(path) != tuple(known):
            raise DamagedCheckpointError(
                f"savepoint {savepoint.uri} is damaged: {path} is not as it was written",
                problems=(f"{savepoint.uri}/{path}",),
            )


def rows_of(savepoint: SavepointRecord, uids: Iterable[str]) -> Mapping[str, tuple[int, int]]:
    """Return the files with the rows of these sinks, as in `SavepointRecord.files`."""
    places = tuple(f"{spool_directory(uid)}/" for uid in uids)
    return {path: known for path, known in savepoint.files.items() if path.startswith(places)}
