"""The state of a canonical savepoint: the rows of every store, as Parquet.

`take/export.py` calls `write_operators`; `restore/location.py` is the way back. docs/FORMAT.md has
the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from seamark.api.config import StateBackend
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model.errors import CheckpointError
from seamark.runtime.operator_uids import OperatorUids
from seamark.runtime.state_backend import PROVIDER, backend_of
from seamark.savepoints.record import Operator, Store
from seamark.savepoints.state.layout import (
    PARTITIONS,
    OperatorInfo,
    StateLayout,
    is_keyed,
    read_operators,
)
from seamark.savepoints.state.rows import RowFile, StateVersion, export_rows


def write_operators(
    spark: SparkSession,
    layout: StateLayout,
    source: CheckpointFiles,
    files: CheckpointFiles,
    epoch: int,
    settings: Mapping[str, str],
    commit: Mapping[str, Any],
    uids: OperatorUids,
    run_id: str,
    aside: bool,
) -> tuple[list[Operator], dict[str, tuple[int, int]]]:
    """Write the rows of every stateful operator of `source` as of `epoch` into the savepoint
    `files`; return the operators, and bytes and CRC-32 of each file of rows.

    `settings`, `commit`: what the epoch's entries in Spark's offset and commit logs hold; `run_id`,
    `aside`: as `export_savepoint`. Raises CheckpointError if the state cannot be read.
    """
    operators = read_operators(source, epoch)
    try:
        return _export(
            spark, layout, operators, epoch, files.uri, settings, commit, uids, run_id, aside
        )
    except (Py4JJavaError, CapturedException) as error:
        raise CheckpointError(
            f"{source.uri}: the state of epoch {epoch} cannot be read: {root_cause(error)}"
        ) from error


def _export(
    spark: SparkSession,
    layout: StateLayout,
    operators: Sequence[OperatorInfo],
    epoch: int,
    target: str,
    settings: Mapping[str, str],
    commit: Mapping[str, Any],
    uids: OperatorUids,
    run_id: str,
    aside: bool,
) -> tuple[list[Operator], dict[str, tuple[int, int]]]:
    """Write the rows of all stores; return the operators, and bytes and CRC-32 of each file."""
    found: list[Operator] = []
    versions: list[StateVersion] = []
    for operator in operators:
        described = [layout.store(operator, info) for info in operator.stores]
        keyed = is_keyed(operator.name, [f for store in described for f in store.families])
        partitions = int(settings[PARTITIONS]) if keyed else 1
        ids = (commit.get("stateUniqueIds") or {}).get(str(operator.index))
        stores = []
        for number, each in enumerate(described):
            store = Store(each.info.name, f"state/{operator.index}/{each.info.name}", each.families)
            of_store = [ids[partition][number] for partition in range(partitions)] if ids else None
            versions.append(
                StateVersion(each.java, partitions, epoch + 1, of_store, f"{target}/{store.path}")
            )
            stores.append(store)
        found.append(
            Operator(
                uid=uids.of_operator(operator.index),
                index=operator.index,
                name=operator.name,
                partitions=partitions,
                keyed=keyed,
                properties=json.loads(operator.properties) if operator.properties else None,
                stores=tuple(stores),
            )
        )
    files: dict[str, tuple[int, int]] = {}
    # A partition of `hashmap` is loaded into the heap, where the stream has its own already.
    few = aside or backend_of(settings.get(PROVIDER, "")) == StateBackend.HASHMAP.value
    written = iter(export_rows(spark, versions, run_id, aside=aside, few=few))
    for number, of in enumerate(found):
        counted = tuple(with_files(store, next(written), files) for store in of.stores)
        found[number] = replace(of, stores=counted)
    return found, files


def with_files(
    store: Store, written: Sequence[RowFile], files: dict[str, tuple[int, int]]
) -> Store:
    """Return the store with the figures of the files that were written, and list them in `files`,
    as `Savepoint.files` has them."""
    files |= {f"{store.path}/{file.name}": (file.size, file.crc32) for file in written}
    families = tuple(
        replace(
            family,
            rows=sum(file.rows[number] for file in written),
            bytes=sum(file.state_bytes[number] for file in written),
        )
        for number, family in enumerate(store.families)
    )
    return replace(store, families=families)


def root_cause(error: BaseException) -> str:
    """Return what Java says of an error, without the trace."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error).strip().split("\n", 1)[0]
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString()).strip().split("\n", 1)[0]
