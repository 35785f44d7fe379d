"""Takes a savepoint: exports one decided epoch of a Spark checkpoint location.

The location is only read; the job that owns it may be running, as long as it keeps that epoch.
`take/running.py` calls `export_savepoint` for a running job. What both types share is here: Spark's
logs and the record; `take/canonical.py` writes the state's rows, `state/files.py` copies its files.
`restore/location.py` is the way back.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

from pyspark.sql import SparkSession

from seamark.checkpoint.drained import before, is_raised
from seamark.checkpoint.spark_files import (
    StateTree,
    log_paths,
    log_version,
    metadata_at,
    read_log,
)
from seamark.checkpoint.store import SinkEpoch
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model import failpoints
from seamark.model.errors import CheckpointError, SavepointError
from seamark.runtime.hadoop_files import open_files
from seamark.runtime.operator_uids import OperatorUids
from seamark.runtime.state_backend import PROVIDER, backend_of
from seamark.savepoints.record import (
    TAKING,
    SavepointRecord,
    SavepointType,
    Sink,
    Source,
    write_savepoint,
)
from seamark.savepoints.state.files import copy_state, describe_operators, state_files
from seamark.savepoints.state.layout import PARTITIONS, StateLayout
from seamark.savepoints.state.rows import StateClasses
from seamark.savepoints.take.canonical import write_operators
from seamark.savepoints.take.uncommitted import merged

Uncommitted = tuple[Mapping[int, Mapping[str, SinkEpoch]], Mapping[str, tuple[int, int]]]
"""Transactions by epoch and the sink's uid, and what files of theirs were put into the savepoint:
bytes and CRC-32."""

_SYNCS_AT_ONCE = 4


def export_savepoint(
    spark: SparkSession,
    location: str,
    epoch: int,
    target: str,
    *,
    job_id: str,
    job_name: str,
    uids: OperatorUids,
    type_: SavepointType = SavepointType.CANONICAL,
    sinks: Mapping[str, str] = MappingProxyType({}),
    job_directory: str = "",
    run_id: str = "",
    aside: bool = False,
    uncommitted: Callable[[], Uncommitted] = lambda: ({}, {}),
    writing: Callable[[int], None] = lambda expected: None,
) -> SavepointRecord:
    """Write a savepoint of `epoch` into the new directory `target`, and return it.

    `location`: Spark's checkpoint location (a URI), in which `epoch` is decided
    (``commits/<epoch>`` is there) and stays until this returns; `sinks`: the type of each by its
    uid; `uncommitted`: asked at the end for the transactions of this epoch, and of those before it,
    that may not be committed yet, of a job whose records are in `job_directory` (a URI); `run_id`:
    of Spark's query, if it runs in this driver: state that it has in memory need not be read again;
    `aside`: most cores are left to a stream that goes on meanwhile; `writing`: told the bytes of
    the epoch's state files before any is written. The savepoint is whole when this returns. If it
    fails or dies, `target` has no ``savepoint.json`` and is to be deleted.

    Raises SavepointError if `target` has files already, CheckpointError if the epoch cannot be
    read.
    """
    source = open_files(spark, location, make=False)
    files = open_files(spark, target)
    if set(files.list("")) - {TAKING}:
        raise SavepointError(f"savepoint {target}: the directory is not empty; give a new one")
    if not source.exists(f"commits/{epoch}"):
        raise CheckpointError(
            f"{location}: epoch {epoch} is not decided; there is no commits/{epoch}"
        )
    require_offset_log(source, epoch)
    metadata, *offsets = read_log(source, f"offsets/{epoch}")
    lines = uids.source_lines or tuple(range(len(offsets)))
    commit = read_log(source, f"commits/{epoch}")[0]
    watermark_ms = int(commit.get("nextBatchWatermarkMs", 0))
    tree = StateTree.read(source)
    needed = state_files(source, tree, epoch)
    writing(sum(needed.values()))
    with ThreadPoolExecutor(2) as beside:  # each waits for the disk, or for Spark, most of its time
        small = beside.submit(_copy_small_files, source, files, tree, epoch)
        if type_ is SavepointType.NATIVE:
            copied = beside.submit(copy_state, spark, source, files, needed, aside=aside)
        layout = StateLayout(
            spark,
            StateClasses.of(spark),
            location,
            location,
            metadata["conf"],
            log_version(source, f"commits/{epoch}"),
        )
        if type_ is SavepointType.NATIVE:
            operators = describe_operators(layout, source, epoch, metadata["conf"], uids)
            state = copied.result()
        else:
            operators, state = write_operators(
                spark, layout, source, files, epoch, metadata["conf"], commit, uids, run_id, aside
            )
        listed = small.result()
    waiting, kept = uncommitted()
    committables, rows, earlier = merged(waiting, epoch)
    savepoint = SavepointRecord(
        uri=files.uri,
        job_id=job_id,
        job_name=job_name,
        epoch=epoch,
        created_at=time.time(),
        spark_version=spark.version,
        state_backend=backend_of(metadata["conf"].get(PROVIDER, "")),
        partitions=int(metadata["conf"][PARTITIONS]),
        watermark_ms=before(watermark_ms),
        settings=metadata["conf"],
        sources=tuple(
            Source(uids.of_source(n), n, offset)
            for n, offset in sorted(dict(zip(lines, offsets, strict=True)).items())
        ),
        source_lines=lines,
        operators=tuple(operators),
        committables=committables,
        files={**listed, **state, **kept},
        type=type_,
        drained=is_raised(watermark_ms),
        sinks=tuple(Sink(uid, sink, rows.get(uid, 0)) for uid, sink in sinks.items()),
        job_directory=job_directory if committables else "",
        earlier=earlier,
    )
    failpoints.reached("savepoint-written")
    write_savepoint(files, savepoint)
    return savepoint


def require_offset_log(files: CheckpointFiles, epoch: int) -> None:
    """Raise CheckpointError unless the offset log's entry is in the form that is known here."""
    version = log_version(files, f"offsets/{epoch}")
    if version != 1:
        raise CheckpointError(
            f"{files.uri}/offsets/{epoch}: the offset log is of version {version}; only 1 can be "
            "put into a savepoint (spark.sql.streaming.queryEvolution.enableSourceEvolution=false)"
        )


def _copy_small_files(
    source: CheckpointFiles, files: CheckpointFiles, tree: StateTree, epoch: int
) -> dict[str, tuple[int, int]]:
    """Copy Spark's logs and the state's metadata, as they are; return what `files` now holds."""

    def copy(path: str) -> tuple[str, tuple[int, int]]:
        data = source.read(path)
        files.create(f"spark/{path}", data)
        return f"spark/{path}", (len(data), zlib.crc32(data))

    found = [*log_paths(source, epoch), *metadata_at(tree.metadata, epoch)]
    paths = [path for path in found if path != "metadata" and not path.endswith(".crc")]
    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:  # the disk syncs several as fast as one
        return dict(pool.map(copy, paths))
