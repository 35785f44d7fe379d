"""The state of a canonical savepoint: the rows of every store, as Parquet.

`exporting.py` calls `write_operators`; `restoring.py` is the way back. docs/FORMAT.md has the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.model.errors import CheckpointError
from tidemark.runtime.operator_uids import OperatorUids
from tidemark.savepoints.operator_state import (
    PARTITIONS,
    OperatorInfo,
    StateLayout,
    StoreState,
    is_keyed,
    read_operators,
)
from tidemark.savepoints.record import Operator, Store
from tidemark.savepoints.state_rows import file_checksums, read_rows


def write_operators(
    spark: SparkSession,
    layout: StateLayout,
    source: CheckpointFiles,
    files: CheckpointFiles,
    epoch: int,
    settings: Mapping[str, str],
    commit: Mapping[str, Any],
    uids: OperatorUids,
) -> tuple[list[Operator], dict[str, tuple[int, int]]]:
    """Write the rows of every stateful operator of `source` as of `epoch` into the savepoint
    `files`; return the operators, and bytes and CRC-32 of each file of rows.

    `settings`, `commit`: what the epoch's entries in Spark's offset and commit logs hold. Raises
    CheckpointError if the state cannot be read.
    """
    operators = []
    for operator in read_operators(source, epoch):
        try:
            operators.append(
                _export(spark, layout, operator, epoch, files.uri, settings, commit, uids)
            )
        except (Py4JJavaError, CapturedException) as error:
            raise CheckpointError(
                f"{source.uri}: the state of operator {uids.of_operator(operator.index)!r} "
                f"({operator.name}) at epoch {epoch} cannot be read: {root_cause(error)}"
            ) from error
    return operators, checksums(spark, files)


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
