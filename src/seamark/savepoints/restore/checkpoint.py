"""Chooses one retained checkpoint of a job, which may be running, and copies its files.

Nothing in the checkpoint's directory is written.
"""

import json
import re
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from seamark.checkpoint.channel_state import CHANNEL_STATE
from seamark.checkpoint.drained import undrained
from seamark.checkpoint.inspection import Inspection, damaged, inspect, inspect_records
from seamark.checkpoint.lineages import lineage_directory, lineages_of
from seamark.checkpoint.sink_epoch import PreparedSinks
from seamark.checkpoint.spark_files import METADATA_VERSION, metadata_at
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.spool import SpoolFile
from seamark.files.deadline import storage_call
from seamark.model import failpoints
from seamark.model.errors import CheckpointError, CorruptRecordError, RestoreError
from seamark.protocol.states import Seal
from seamark.savepoints.record import found_below
from seamark.savepoints.restore.origin import open_job
from seamark.savepoints.restore.target import create
from seamark.savepoints.state.layout import relocated
from seamark.spark.hadoop_files import open_files

T = TypeVar("T")

COPIES_AT_ONCE = 8
COPY_S = 1800.0
"""Seconds allowed for the copy of one file; files of a large state have gigabytes."""

_EPOCH_PATH = re.compile(r"(?P<job>.+)/epochs/(?P<epoch>\d+)")


def find_checkpoint(
    spark: SparkSession, path: str, epoch: int | None = None
) -> tuple[CheckpointStore, Inspection]:
    """Return the job's directory and the whole checkpoint at `path`; `epoch`: chosen before. Raises
    RestoreError if there is none certainly decided; DamagedCheckpointError."""
    match, files = _EPOCH_PATH.fullmatch(path), open_files(spark, path, make=False)
    directory = match["job"] if match else path
    if not match:
        directory = f"{path}/{lineage_directory(lineages_of(files)[-1])}".rstrip("/")
    source = open_job(spark, directory)
    if not source.epochs():
        remedy = found_below(files) or (
            "give a savepoint's path, as `seamark stop -p` prints it, a job's directory "
            "(<storage>/<job name>) or one of its epochs (<storage>/<job name>/epochs/<n>)"
        )
        raise RestoreError(
            f"restore: {path} holds no checkpoint of a Seamark job and no savepoint; {remedy}"
        )
    if epoch is None:
        epoch = _choose(source, int(match["epoch"]) if match else None, path)
    return source, _inspect(source, epoch)


def _choose(source: CheckpointStore, epoch: int | None, path: str) -> int:
    """Return the epoch to restore: the requested one, or the newest decided one."""
    latest = source.latest_decision()
    if epoch is not None:
        if epoch not in source.epochs() or epoch > latest:
            kept = [e for e in source.epochs() if e <= latest]
            raise RestoreError(
                f"restore: {path} is not a complete checkpoint; {source.uri} holds "
                + (f"those of epochs {min(kept)} to {max(kept)}" if kept else "none")
            )
        return epoch
    if latest >= 0 and inspect_records(source, latest).void:
        latest -= 1  # a fenced driver's void decision, to be taken back
    if latest not in source.epochs():
        raise RestoreError(f"restore: {path} holds no complete checkpoint: no epoch was decided")
    return latest


def _inspect(source: CheckpointStore, epoch: int) -> Inspection:
    checkpoint = inspect(source, epoch)
    if checkpoint.void:
        raise RestoreError(
            f"restore: epoch {epoch} of {source.uri} was aborted: its decision came from a driver "
            f"that had been fenced. Restore epoch {epoch - 1}"
        )
    if checkpoint.problems:
        raise damaged(source, epoch, checkpoint.problems)
    _require_settled(source, checkpoint)
    return checkpoint


def _require_settled(source: CheckpointStore, checkpoint: Inspection) -> None:
    """Raise RestoreError unless the decision of an uncommitted epoch stands for good."""
    epoch, generation = checkpoint.epoch, checkpoint.uncommitted
    if generation is None or source.epoch(epoch).seals.get(generation) is Seal.COMMIT:
        return
    # A driver taking over from now on reads the decision, and commits. A driver already in charge
    # may have read before the decision was written, and may be about to abort.
    if max(source.generations(), default=generation) != generation:
        raise RestoreError(
            f"restore: epoch {epoch} of {source.uri} is decided, but another driver was taking "
            f"the job over, so its transactions may be committed or aborted yet. Start that "
            f"job once, or restore epoch {epoch - 1}"
        )


def find_waiting(source: CheckpointStore, checkpoint: Inspection) -> list[tuple[int, int]]:
    """Return the epochs, up to the checkpoint's, that are decided and not committed to every sink,
    each with the generation of the decided attempt, oldest first. There may be several, with
    `max_concurrent_checkpoints` above 1; they are committed in order. Those that a superseding
    restore has left to a sink's system are among them."""
    waiting: list[tuple[int, int]] = []
    earlier = sorted((e for e in source.epochs() if e < checkpoint.epoch), reverse=True)
    for epoch in (checkpoint.epoch, *earlier):
        at = checkpoint if epoch == checkpoint.epoch else inspect_records(source, epoch)
        generation = at.uncommitted
        if generation is None and source.left(epoch):
            generation = source.epoch(epoch).committed
        if generation is None:
            break
        if at.problems:
            raise damaged(source, epoch, at.problems)
        if at.uncommitted is not None:
            _require_settled(source, at)
        waiting.insert(0, (epoch, generation))
    return waiting


def read_waiting(source: CheckpointStore, epoch: int, generation: int) -> PreparedSinks:
    """Return what is still to commit of an attempt from `find_waiting`."""
    prepared = source.read_prepared(epoch, generation)
    if left := source.left(epoch):
        for uid in prepared.keys() - set(left):
            del prepared[uid]
    return prepared


# --- copying


def copy_checkpoint(
    spark: SparkSession,
    source: CheckpointStore,
    target: CheckpointStore,
    checkpoint: Inspection,
    query_id: str,
) -> None:
    """Copy one epoch's Spark files into the new job's directory, between any Hadoop file systems.
    It may be called again. Raises CheckpointError if it is deleted meanwhile."""
    jvm: Any = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()

    def copy(name: str) -> None:
        if name == "metadata":
            # With the same id in one session, Spark would stop the first job's query for this one.
            create(target.spark_files, name, json.dumps({"id": query_id}).encode())
        elif version := METADATA_VERSION.fullmatch(name):
            data = source.spark_files.read(name)
            # Under its own epoch, older than the oldest one committed there, Spark would delete it.
            held = f"{version[1]}{checkpoint.epoch}"
            create(target.spark_files, held, relocated(data, target.spark_files.uri))
        elif name.startswith(("offsets/", "commits/")):
            create(target.spark_files, name, undrained(source.spark_files.read(name)))
        else:
            paths = [
                jvm.org.apache.hadoop.fs.Path(f"{store.spark_files.uri}/{name}")
                for store in (source, target)
            ]
            systems = [at.getFileSystem(configuration) for at in paths]
            if _is_whole(target, name, int(systems[0].getFileStatus(paths[0]).getLen())):
                return  # copied before the restore was cut off
            jvm.org.apache.hadoop.fs.FileUtil.copy(
                systems[0], paths[0], systems[1], paths[1], False, True, configuration
            )
        failpoints.reached("file-restored")

    names = metadata_at(checkpoint.files, checkpoint.epoch)
    try:
        with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
            list(pool.map(lambda name: _copied(source, target, partial(copy, name)), names))
    except (Py4JJavaError, FileNotFoundError) as error:
        reason = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
        raise CheckpointError(
            f"restore of epoch {checkpoint.epoch} of {source.uri}: a file could not be copied "
            f"({reason}). If that job is running, it has deleted this checkpoint meanwhile: delete "
            f"{target.uri} and restore a newer one, or retain more (checkpoint.num_retained)"
        ) from error


def copy_channel_state(source: CheckpointStore, target: CheckpointStore, epoch: int) -> None:
    """Copy the rows that wait after the epoch. It may be called again. Raises
    DamagedCheckpointError if a file is damaged or missing."""

    def copy(file: SpoolFile) -> str:
        path = f"{CHANNEL_STATE}/{file.path}"
        try:
            data = source.files.read(path)
        except FileNotFoundError:
            return f"{path}: missing"
        if (len(data), zlib.crc32(data)) != (file.size_bytes, file.crc32):
            return f"{path}: its {len(data)} bytes do not match the checksum in the checkpoint"
        create(target.files, path, data)
        failpoints.reached("file-restored")
        return ""

    files = {segment.file for segment in source.channel_state(epoch).segments()}
    with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
        outcomes = list(pool.map(lambda file: _copied(source, target, partial(copy, file)), files))
    if problems := [problem for problem in outcomes if problem]:
        raise damaged(source, epoch, problems)


def _copied(source: CheckpointStore, target: CheckpointStore, copy: Callable[[], T]) -> T:
    """Copy one file; raises StorageHangsError if it takes too long."""
    return storage_call(COPY_S, copy, "copy a file of", f"{source.uri} into {target.uri}")


def _is_whole(target: CheckpointStore, name: str, size: int) -> bool:
    try:
        return target.spark_files.check(name) == size
    except (FileNotFoundError, CorruptRecordError):
        return False
