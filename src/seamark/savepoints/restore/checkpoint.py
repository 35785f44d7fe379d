"""Restoring a retained checkpoint: a new job begins where another one was at the end of an epoch.

`restore` copies one epoch's Spark files into the new job's directory, on any Hadoop file systems,
and only reads the first job's, which may be running. `Job.run` calls it before it starts the query.

Invariants:
- nothing in the restored checkpoint's directory is written;
- ``job.json`` of the new job is made last: a directory that has one is whole, and one that has only
  ``restoring.json`` is a restore that was cut off. The marker holds all that the restore decides
  (epoch, new ids), so that doing it again comes to the very same result.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from seamark.api.config import storage_uri
from seamark.checkpoint.call_deadline import CallHangsError, call_within
from seamark.checkpoint.drained import undrained
from seamark.checkpoint.envelope import open_envelope, seal_envelope
from seamark.checkpoint.files_deadline import storage_hangs
from seamark.checkpoint.inspection import (
    RESTORING,
    Inspection,
    damaged,
    inspect,
    inspect_records,
)
from seamark.checkpoint.manifest import ManifestWriter
from seamark.checkpoint.spark_files import METADATA_VERSION, metadata_at
from seamark.checkpoint.store import CheckpointStore, JobIdentity, SinkEpoch
from seamark.file_systems.location import same_place
from seamark.model import failpoints
from seamark.model.errors import CheckpointError, CorruptRecordError, RestoreError
from seamark.protocol.states import Seal
from seamark.runtime.hadoop_files import open_files

log = logging.getLogger(__name__)

COPIES_AT_ONCE = 8
COPY_S = 1800.0
"""How long the copy of one file may take; those of a large state have gigabytes."""
RESTORED_GENERATION = 0
"""Stands in the prepared record of decided transactions that a restore has taken over."""

_EPOCH_PATH = re.compile(r"(?P<job>.+)/epochs/(?P<epoch>\d+)")
_SCHEMA_PATH = re.compile(r"^.*?/(state/\d+/_stateSchema/.*)$")


def restore(spark: SparkSession, path: str, directory: str, name: str) -> None:
    """Make `directory` a new job called `name` that goes on after the checkpoint at `path`.

    `path`: ``<storage>/<job>``, the newest complete checkpoint of that job, or
    ``<storage>/<job>/epochs/<n>``. Returns at once if `directory` holds a job that was restored
    from this very path: it goes on by itself. After a kill -9 it can be called again.

    Raises RestoreError if path or directory cannot be used so, DamagedCheckpointError if a file of
    the checkpoint is damaged, CheckpointError if it was deleted while it was copied.
    """
    path = storage_uri(path, "restore")
    target = open_job(spark, directory)
    if target.files.exists("job.json"):
        require_same(target, path, name)
        target.files.delete(RESTORING)  # of a restore that was cut off at its last step
        return
    plan = read_plan(target, path)
    source, checkpoint = find_checkpoint(spark, path, plan["epoch"] if plan else None)
    epoch = checkpoint.epoch
    if plan is None:
        plan = _begin(source, target, path, epoch, checkpoint)
    failpoints.reached("restore-begun")
    log.info("restoring epoch %d of %s into %s", epoch, source.uri, target.uri)
    _copy(spark, source, target, checkpoint, plan)
    if not plan["waiting"]:
        ManifestWriter(target.files, target.spark_files).write(epoch)
    for waiting, generation in plan["waiting"]:
        # Decided, and the first job died before it had recorded the commit: the new job's recovery
        # commits it, like an epoch of its own. Both may do it: commits are idempotent.
        take_over(target, waiting, partial(source.read_prepared, waiting, generation))
    failpoints.reached("restore-copied")
    target.create_identity(
        JobIdentity(
            job_id=plan["job_id"],
            lineage_id=plan["lineage_id"],
            name=name,
            first_epoch=plan["first_epoch"],
            created_at=plan["created_at"],
            restored_from={"path": path, "job_id": plan["source_job_id"], "epoch": epoch},
        )
    )
    failpoints.reached("restored")
    target.files.delete(RESTORING)


def open_job(spark: SparkSession, uri: str) -> CheckpointStore:
    """Return a job's directory, which is not made."""
    return CheckpointStore(
        open_files(spark, uri, make=False), open_files(spark, f"{uri}/spark", make=False)
    )


# --- what may be restored, and where to


def find_checkpoint(
    spark: SparkSession, path: str, epoch: int | None = None
) -> tuple[CheckpointStore, Inspection]:
    """Return the job's directory and the whole checkpoint that `path` is of: `epoch`, if a restore
    that was cut off has chosen one already.

    Raises RestoreError if there is none, or it is not clear whether it was decided;
    DamagedCheckpointError.
    """
    path = storage_uri(path, "restore")
    found = _EPOCH_PATH.fullmatch(path)
    source = open_job(spark, found["job"] if found else path)
    if not source.epochs():
        raise RestoreError(
            f"restore: {path} holds no checkpoint of a Seamark job; give a job's directory "
            "(<storage>/<job name>) or one of its epochs (<storage>/<job name>/epochs/<n>)"
        )
    if epoch is None:
        epoch = _choose(source, int(found["epoch"]) if found else None, path)
    return source, _inspect(source, epoch)


def require_same(target: CheckpointStore, path: str, name: str) -> None:
    """Raise RestoreError unless the job in `target` was restored from `path`."""
    identity = target.read_identity()
    if identity.restored_from is None or not same_place(identity.restored_from["path"], path):
        raise RestoreError(
            f"restore: {target.uri} holds a job already ({identity.name!r}), whose checkpoints a "
            f"restore would overwrite. To restore {path}, give the job another name or storage "
            f"(-D checkpoint.storage=…); to let {name!r} go on by itself, run it without restore"
        )
    log.info("%s was restored from %s already; it goes on from its own checkpoints",
             target.uri, path)  # fmt: skip


def read_plan(target: CheckpointStore, path: str) -> dict[str, Any] | None:
    """Return what a restore that was cut off had decided; None if this directory is new."""
    if not target.files.exists(RESTORING):
        if target.epochs() or target.generations() or target.spark_files.list(""):
            raise RestoreError(
                f"restore: {target.uri} holds checkpoint files already, but no job.json; restore "
                f"{path} under another job name or storage (-D checkpoint.storage=…)"
            )
        return None
    at = f"{target.uri}/{RESTORING}"
    plan = open_envelope("restoring", target.files.read(RESTORING), at)
    if not same_place(plan["path"], path):
        raise RestoreError(
            f"restore: {target.uri} is a restore of {plan['path']} that was begun and has not "
            f"ended; end it with that path, or delete the directory to restore {path} into it"
        )
    return plan


def write_plan(target: CheckpointStore, plan: Mapping[str, Any]) -> None:
    """Write down what a restore has decided; raises RestoreError if another driver was first."""
    try:
        target.files.create(RESTORING, seal_envelope("restoring", dict(plan)))
    except FileExistsError:
        raise RestoreError(
            f"restore: another driver is restoring into {target.uri} at this moment"
        ) from None


def _choose(source: CheckpointStore, epoch: int | None, path: str) -> int:
    """Return the epoch to restore: the one asked for, or the newest decided one."""
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
        latest -= 1  # a fenced driver's decision, which will be taken back
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
    # A driver that takes over from now on reads the decision, and commits; one that has taken over
    # already may have read before it was written, and may be about to abort.
    if max(source.generations(), default=generation) != generation:
        raise RestoreError(
            f"restore: epoch {epoch} of {source.uri} is decided, but another driver was taking "
            f"the job over, so its transactions may be committed or aborted yet. Start that "
            f"job once, or restore epoch {epoch - 1}"
        )


def take_over(
    target: CheckpointStore, epoch: int, read: Callable[[], Mapping[str, SinkEpoch]]
) -> None:
    """Store the transactions of another job's epoch, by the sink's uid, as those of the job in
    `target`, which its recovery commits. It may be called again: then they are not read again."""
    if not target.files.exists(f"epochs/{epoch}/prepared.{RESTORED_GENERATION}.json"):
        target.write_prepared(epoch, RESTORED_GENERATION, read())


def find_waiting(source: CheckpointStore, checkpoint: Inspection) -> list[tuple[int, int]]:
    """Return the epochs up to that of a checkpoint which are decided and not committed to every
    sink, each with the generation whose attempt is decided, oldest first. There may be several,
    with `max_concurrent_checkpoints` above 1; they are committed in order."""
    if checkpoint.uncommitted is None:
        return []
    found = [(checkpoint.epoch, checkpoint.uncommitted)]
    for epoch in sorted((e for e in source.epochs() if e < checkpoint.epoch), reverse=True):
        earlier = inspect_records(source, epoch)
        if earlier.uncommitted is None:
            break
        if earlier.problems:
            raise damaged(source, epoch, earlier.problems)
        _require_settled(source, earlier)
        found.insert(0, (epoch, earlier.uncommitted))
    return found


def _begin(
    source: CheckpointStore,
    target: CheckpointStore,
    path: str,
    epoch: int,
    checkpoint: Inspection,
) -> dict[str, Any]:
    """Write the marker; return what stands in it, if another driver was first."""
    try:
        source_job_id = source.read_identity().job_id
    except (FileNotFoundError, CorruptRecordError):  # its checkpoints may be whole all the same
        source_job_id = None
    waiting = find_waiting(source, checkpoint)
    plan = {
        "path": path,
        "source_job_id": source_job_id,
        "epoch": epoch,
        "first_epoch": waiting[0][0] if waiting else epoch + 1,
        "waiting": waiting,
        "job_id": uuid.uuid4().hex,
        "lineage_id": uuid.uuid4().hex,
        "query_id": str(uuid.uuid4()),
        "created_at": time.time(),
    }
    write_plan(target, plan)
    return plan


# --- copying


def _copy(
    spark: SparkSession,
    source: CheckpointStore,
    target: CheckpointStore,
    checkpoint: Inspection,
    plan: dict[str, Any],
) -> None:
    jvm: Any = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()

    def copy(name: str) -> None:
        if name == "metadata":
            # With the same id in one session, Spark would stop the first job's query for this one.
            _create(target, name, json.dumps({"id": plan["query_id"]}).encode())
        elif version := METADATA_VERSION.fullmatch(name):
            data = source.spark_files.read(name)
            # Spark would delete it as of an epoch before the oldest one that is committed there.
            held = f"{version[1]}{checkpoint.epoch}"
            _create(target, held, _rebased(data, target.spark_files.uri))
        elif name.startswith(("offsets/", "commits/")):
            _create(target, name, undrained(source.spark_files.read(name)))
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
            list(pool.map(lambda name: call_within(COPY_S, lambda: copy(name)), names))
    except CallHangsError:
        raise storage_hangs(f"{source.uri} into {target.uri}", "copy a file of", COPY_S) from None
    except (Py4JJavaError, FileNotFoundError) as error:
        reason = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
        raise CheckpointError(
            f"restore of epoch {checkpoint.epoch} of {source.uri}: a file could not be copied "
            f"({reason}). If that job is running, it has deleted this checkpoint meanwhile: delete "
            f"{target.uri} and restore a newer one, or retain more (checkpoint.num_retained)"
        ) from error


def _is_whole(target: CheckpointStore, name: str, size: int) -> bool:
    try:
        return target.spark_files.check(name) == size
    except (FileNotFoundError, CorruptRecordError):
        return False


def _create(target: CheckpointStore, name: str, data: bytes) -> None:
    try:
        target.spark_files.create(name, data)
    except FileExistsError:  # from before the restore was cut off: the same bytes
        return


def _rebased(data: bytes, spark_location: str) -> bytes:
    """Return an operator's metadata (format 2) with the schema files' absolute paths moved."""
    version, body = data.decode().split("\n", 1)
    metadata = json.loads(body)
    for store in metadata["stateStoreInfo"]:
        store["stateSchemaFilePaths"] = [
            _SCHEMA_PATH.sub(lambda found: f"{spark_location}/{found[1]}", path)
            for path in store.get("stateSchemaFilePaths", [])
        ]
    return f"{version}\n{json.dumps(metadata, separators=(',', ':'))}".encode()
