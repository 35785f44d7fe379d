"""A job's newest complete checkpoint, without its program: its sources' offsets, by uid, and a
savepoint made of it.

Spark's logs hold only numbers; the uids come from the checkpoints' statistics.
"""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from seamark.checkpoint.drained import before
from seamark.checkpoint.inspection import damaged, inspect
from seamark.checkpoint.spark_files import read_log, read_offsets
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.store import CheckpointStore
from seamark.files import Directory
from seamark.model.errors import SavepointError
from seamark.savepoints.record import SavepointRecord, Source
from seamark.savepoints.restore.origin import open_job
from seamark.savepoints.take.export import SavedJob, export_savepoint
from seamark.spark.operator_uids import OperatorUids


def sources_of_job(store: CheckpointStore) -> list[Source]:
    """Return a job's sources, with their offsets as of its last decided epoch; the job may be
    running. Raises SavepointError if no epoch was ever decided."""
    offsets_by_key = read_offsets(store.spark_files, _last_epoch(store))
    uids = _uids(store.files, offsets_by_key)
    offsets = dict(zip(uids.source_lines, uids.lines_of(offsets_by_key), strict=True))
    return [Source(uids.of_source(number), number, offsets[number]) for number in sorted(offsets)]


def watermark_of_job(store: CheckpointStore) -> int:
    """Return a job's watermark after its last decided epoch, ms since 1970; 0 if it has none; after
    a drain, the watermark before it."""
    commit = read_log(store.spark_files, f"commits/{_last_epoch(store)}")[0]
    return before(int(commit.get("nextBatchWatermarkMs", 0)))


def savepoint_of_checkpoint(spark: SparkSession, job: str, target: str) -> SavepointRecord:
    """Write a canonical savepoint into the new directory `target`, of the newest complete
    checkpoint of a job that is not running; both are URIs. Return it. Raises SavepointError without
    a checkpoint committed to every sink; DamagedCheckpointError."""
    store = open_job(spark, job)
    epoch = _last_epoch(store)
    inspection = inspect(store, epoch)
    if inspection.problems:
        raise damaged(store, epoch, inspection.problems)
    if inspection.void or inspection.uncommitted is not None:
        raise SavepointError(
            f"job {job}: its last epoch, {epoch}, is not committed to every sink; run the job once "
            "more, which settles that, and stop it with a savepoint"
        )
    if rows := store.channel_state(epoch).rows:
        raise SavepointError(
            f"job {job}: its last epoch, {epoch}, has {rows} rows of channel state, which no "
            "savepoint has; start the job, and stop it with a savepoint, which writes them first"
        )
    identity = store.read_identity()
    uids = _uids(store.files, read_offsets(store.spark_files, epoch))
    return export_savepoint(
        spark,
        store.spark_files.uri,
        epoch,
        target,
        SavedJob(identity.job_id, identity.name, uids, known=store.read_known()),
    )


def _last_epoch(store: CheckpointStore) -> int:
    decided = store.latest_decision()
    if decided < 0:
        raise SavepointError(f"job {store.uri}: it has no complete checkpoint, so no offsets")
    return decided


def _uids(files: Directory, offsets: Mapping[int | str, object]) -> OperatorUids:
    """Return the uids by number; `offsets` are the sources' in the offset log, by Spark's keys."""
    lines, names = list(offsets.values()), list(map(str, offsets))
    known = StatisticsStore(files).uids()
    sources, operators = known.get("source", []), known.get("operator", [])
    if set(names) != set(map(str, range(len(names)))):
        by_line = all(map(str.isdigit, names))
        if by_line and len(names) > 1:
            raise SavepointError(
                f"job {files.uri}: a source stands several times in its plan, and Spark's offset "
                "log does not tell where: start the job, and let it end with a savepoint (stop -p)"
            )
        named = dict(enumerate(names))
        own = dict(enumerate(sources[:1] if by_line else names))
        return OperatorUids(own, dict(enumerate(operators)), tuple(named), source_names=named)
    # The figures of the very last epochs may never have been stored; uids do not change.
    numbers = list(range(len(lines)))
    if len(sources) < len(lines):  # a source twice in the plan has the same line twice
        distinct = [line for n, line in enumerate(lines) if line not in lines[:n]]
        if len(distinct) == len(sources):
            numbers = [distinct.index(line) for line in lines]
    if len(sources) != len(set(numbers)):  # the uids cannot be matched to the numbers
        sources = []
    return OperatorUids(dict(enumerate(sources)), dict(enumerate(operators)), tuple(numbers))
