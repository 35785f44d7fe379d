"""Takes a canonical savepoint: exports one decided epoch of a Spark checkpoint location.

The location is only read; the job that owns it may be running, as long as it keeps that epoch.
`restoring.py` is the way back. Whoever takes a savepoint from a job calls `export_canonical`.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tidemark.checkpoint.spark_files import StateTree, log_paths, read_log
from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.model.errors import CheckpointError, SavepointError
from tidemark.runtime.hadoop_files import open_files
from tidemark.runtime.operator_uids import OperatorUids
from tidemark.runtime.state_backend import PROVIDER, backend_of
from tidemark.savepoints.operator_state import (
    PARTITIONS,
    OperatorInfo,
    StateLayout,
    StoreState,
    is_keyed,
    read_operators,
)
from tidemark.savepoints.record import Operator, Savepoint, Source, Store, write_savepoint
from tidemark.savepoints.state_rows import StateClasses, file_checksums, read_rows


def export_canonical(
    spark: SparkSession,
    location: str,
    epoch: int,
    target: str,
    *,
    job_id: str,
    job_name: str,
    uids: OperatorUids,
    committables: Mapping[str, Sequence[bytes]] | None = None,
) -> Savepoint:
    """Write a canonical savepoint of `epoch` into the new directory `target`, and return it.

    `location`: Spark's checkpoint location (a URI), in which `epoch` is decided
    (``commits/<epoch>`` is there) and stays until this returns; `committables`: by the sink's uid,
    those of this epoch that may not be committed yet. The savepoint is whole when this returns. If
    it fails or dies, `target` has no ``savepoint.json`` and is to be deleted.

    Raises SavepointError if `target` has files already, CheckpointError if the epoch cannot be
    read.
    """
    source = open_files(spark, location, make=False)
    files = open_files(spark, target)
    if files.list(""):
        raise SavepointError(f"savepoint {target}: the directory is not empty; give a new one")
    if not source.exists(f"commits/{epoch}"):
        raise CheckpointError(
            f"{location}: epoch {epoch} is not decided; there is no commits/{epoch}"
        )
    require_offset_log(source, epoch)
    metadata, *offsets = read_log(source, f"offsets/{epoch}")
    lines = uids.source_lines or tuple(range(len(offsets)))
    commit = read_log(source, f"commits/{epoch}")[0]
    listed = _copy_small_files(source, files, epoch)
    layout = StateLayout(
        spark,
        StateClasses.of(spark),
        location,
        location,
        metadata["conf"],
        format_of(source, epoch),
    )
    operators = []
    for operator in read_operators(source, epoch):
        try:
            operators.append(
                _export(spark, layout, operator, epoch, target, metadata["conf"], commit, uids)
            )
        except (Py4JJavaError, CapturedException) as error:
            raise CheckpointError(
                f"{location}: the state of operator {uids.of_operator(operator.index)!r} "
                f"({operator.name}) at epoch {epoch} cannot be read: {root_cause(error)}"
            ) from error
    listed |= checksums(spark, files)
    savepoint = Savepoint(
        uri=files.uri,
        job_id=job_id,
        job_name=job_name,
        epoch=epoch,
        created_at=time.time(),
        spark_version=spark.version,
        state_backend=backend_of(metadata["conf"].get(PROVIDER, "")),
        partitions=int(metadata["conf"][PARTITIONS]),
        watermark_ms=int(commit.get("nextBatchWatermarkMs", 0)),
        settings=metadata["conf"],
        sources=tuple(
            Source(uids.of_source(n), n, offset)
            for n, offset in sorted(dict(zip(lines, offsets, strict=True)).items())
        ),
        source_lines=lines,
        operators=tuple(operators),
        committables={uid: tuple(given) for uid, given in (committables or {}).items()},
        files=listed,
    )
    write_savepoint(files, savepoint)
    return savepoint


def require_offset_log(files: CheckpointFiles, epoch: int) -> None:
    """Raise CheckpointError unless the offset log's entry is in the form that is known here."""
    version = files.read(f"offsets/{epoch}").decode().split("\n", 1)[0]
    if version != "v1":
        raise CheckpointError(
            f"{files.uri}/offsets/{epoch}: the offset log is of version {version}; only v1 can be "
            "put into a savepoint (spark.sql.streaming.queryEvolution.enableSourceEvolution=false)"
        )


def format_of(files: CheckpointFiles, epoch: int) -> int:
    """Return Spark's checkpoint format (1 or 2) of an epoch."""
    return int(files.read(f"commits/{epoch}").decode().split("\n", 1)[0].removeprefix("v"))


def _copy_small_files(
    source: CheckpointFiles, files: CheckpointFiles, epoch: int
) -> dict[str, tuple[int, int]]:
    """Copy Spark's logs and the state's metadata, as they are; return what `files` now holds."""
    found = {}
    for path in [*log_paths(source, epoch), *StateTree.read(source).metadata]:
        number = path.rsplit("/", 1)[1] if "/_metadata/v2/" in path else ""
        if (
            path == "metadata"
            or (number.isdigit() and int(number) > epoch)
            or path.endswith(".crc")
        ):
            continue
        data = source.read(path)
        files.create(f"spark/{path}", data)
        found[f"spark/{path}"] = len(data), zlib.crc32(data)
    return found


def _export(
    spark: SparkSession,
    layout: StateLayout,
    operator: OperatorInfo,
    epoch: int,
    target: str,
    settings: Mapping[str, str],
    commit: Mapping[str, Any],
    uids: OperatorUids,
) -> Operator:
    described = [layout.store(operator, info) for info in operator.stores]
    keyed = is_keyed(operator.name, [f for store in described for f in store.families])
    partitions = int(settings[PARTITIONS]) if keyed else 1
    ids = (commit.get("stateUniqueIds") or {}).get(str(operator.index))
    return Operator(
        uid=uids.of_operator(operator.index),
        index=operator.index,
        name=operator.name,
        partitions=partitions,
        keyed=keyed,
        properties=json.loads(operator.properties) if operator.properties else None,
        stores=tuple(
            _export_store(
                spark,
                store,
                f"state/{operator.index}/{store.info.name}",
                target,
                partitions,
                epoch + 1,
                [ids[partition][number] for partition in range(partitions)] if ids else None,
            )
            for number, store in enumerate(described)
        ),
    )


def _export_store(
    spark: SparkSession,
    store: StoreState,
    path: str,
    target: str,
    partitions: int,
    version: int,
    ids: list[str] | None,
) -> Store:
    rows = read_rows(spark, store.java, partitions, version, ids)
    return write_store(rows, Store(store.info.name, path, store.families), target)


def write_store(rows: DataFrame, store: Store, target: str) -> Store:
    """Write a store's rows (`state_rows.ROW`) into the savepoint `target`; return it with the
    figures of what was written."""
    seen = Observation()
    figures = []
    for number, family in enumerate(store.families):
        of_family = F.col("column_family") == family.name
        size = F.when(of_family, F.length("key").cast("long") + F.length("value"))
        figures += [
            F.count(F.when(of_family, 1)).alias(f"rows{number}"),
            F.sum(size).alias(f"bytes{number}"),
        ]
    (
        rows.observe(seen, *figures)
        .write.option("compression", "snappy")
        .option("parquet.enable.dictionary", "false")  # keys and values hardly repeat
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .mode("overwrite")
        .parquet(f"{target}/{store.path}")
    )
    found = seen.get
    families = tuple(
        replace(family, rows=found[f"rows{number}"], bytes=found[f"bytes{number}"] or 0)
        for number, family in enumerate(store.families)
    )
    return replace(store, families=families)


def checksums(spark: SparkSession, files: CheckpointFiles) -> dict[str, tuple[int, int]]:
    """Return bytes and CRC-32 of each file of rows that lies in a savepoint."""
    return file_checksums(spark, files.uri, sorted(files.sizes("state/*/*/*")))


def root_cause(error: BaseException) -> str:
    """Return what Java says of an error, without the trace."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error).strip().split("\n", 1)[0]
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString()).strip().split("\n", 1)[0]
