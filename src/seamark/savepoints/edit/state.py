"""State as DataFrames, offline: read an operator's state, and replace it.

`read_state` decodes the rows of one column family of a savepoint. `with_state` writes a new
savepoint with other rows in this family; everything else stays as it was.
"""

import time
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from seamark.model.errors import DamagedCheckpointError, SavepointError
from seamark.savepoints.record import (
    ColumnFamily,
    Operator,
    SavepointRecord,
    SavepointType,
    Store,
    require_new,
    write_savepoint,
    write_taking,
)
from seamark.savepoints.restore.location import find_damage
from seamark.savepoints.state.copies import copier
from seamark.savepoints.state.dependent import ROWS_OF_JOIN, Frames, why_not, with_dependents
from seamark.savepoints.state.layout import StateLayout, read_operators
from seamark.savepoints.state.rows import (
    StateClasses,
    decode_rows,
    encode_rows,
    read_rows,
    with_files,
    write_files,
)
from seamark.savepoints.take.uncommitted import rows_of
from seamark.spark.hadoop_files import open_files


def read_state(
    spark: SparkSession,
    savepoint: SavepointRecord,
    uid: str,
    *,
    family: str | None = None,
    store: str | None = None,
) -> DataFrame:
    """Return an operator's state, as `Savepoint.read_state`."""
    _require_rows(savepoint)
    operator = savepoint.operator(uid)
    chosen, of_family = _choose(savepoint, operator, store, family)
    rows = read_rows(spark, savepoint.row_files(chosen))
    return decode_rows(rows.where(rows.column_family == of_family.name), *_types(of_family))


def with_state(
    spark: SparkSession,
    savepoint: SavepointRecord,
    uid: str,
    state: DataFrame,
    target: str,
    *,
    family: str | None = None,
    store: str | None = None,
) -> SavepointRecord:
    """Write a savepoint with other state into the new directory `target` (a URI), as
    `Savepoint.with_state`; return its record."""
    _require_rows(savepoint)
    if damage := find_damage(spark, savepoint):  # the copy's checksums would prove it whole
        what = f"savepoint {savepoint.uri} is damaged; nothing was written"
        raise DamagedCheckpointError.found(what, damage)
    operator = savepoint.operator(uid)
    new = written_frames(savepoint, operator, state, family, store)
    source, files = open_files(spark, savepoint.uri, make=False), open_files(spark, target)
    require_new(files)
    write_taking(files, savepoint.job_id, savepoint.job_name, savepoint.uri, savepoint.epoch)
    copy = copier(source, files, lambda: spark)
    known = {path: copy(path) for path in savepoint.files if path.startswith("spark/")}
    kept = {path: copy(path) for path in rows_of(savepoint, savepoint.committables)}
    frames = {(uid, *where): frame for where, frame in new.items()}
    operators = write_operators(spark, savepoint, files.uri, frames, known)
    edited = replace(
        savepoint,
        uri=files.uri,
        created_at=time.time(),
        operators=operators,
        files={**known, **kept},
    )
    write_savepoint(files, edited)
    return edited


def _require_rows(savepoint: SavepointRecord) -> None:
    if savepoint.type is not SavepointType.CANONICAL:
        raise SavepointError(
            f"savepoint {savepoint.uri} is native: it holds the files of the state stores, whose "
            "rows are not read offline; restore it into a job and take a canonical one of that"
        )


def write_operators(
    spark: SparkSession,
    savepoint: SavepointRecord,
    target: str,
    frames: Mapping[tuple[str, str, str], DataFrame],
    listed: dict[str, tuple[int, int]],
) -> tuple[Operator, ...]:
    """Write the rows of a savepoint into the directory `target` (a URI), and list the files in
    `listed`; return the operators with the figures of the written rows. The savepoint's metadata is
    already there. `frames` are `conformed` state to be written instead: by the operator's uid, its
    store and column family."""

    def write(operator: Operator, store: Store) -> Store:
        rows = read_rows(spark, savepoint.row_files(store))
        for family in store.families:
            if (frame := frames.get((operator.uid, store.name, family.name))) is not None:
                new = _encoded_rows(spark, savepoint, operator, store, family, frame)
                rows = rows.where(rows.column_family != family.name).union(new)
        names = [family.name for family in store.families]
        return with_files(store, write_files(rows, names, f"{target}/{store.path}"), listed)

    return tuple(
        replace(operator, stores=tuple(write(operator, store) for store in operator.stores))
        for operator in savepoint.operators
    )


def _encoded_rows(
    spark: SparkSession,
    savepoint: SavepointRecord,
    operator: Operator,
    store: Store,
    family: ColumnFamily,
    state: DataFrame,
) -> DataFrame:
    """Return `conformed` state as the rows of a savepoint; its metadata is already there."""
    described = f"{savepoint.uri}/spark"
    layout = StateLayout(spark, StateClasses.of(spark), described, described, savepoint.settings, 1)
    metadata = read_operators(open_files(spark, described, make=False), savepoint.epoch)
    (info,) = (o for o in metadata if o.index == operator.index)
    (store_info,) = (s for s in info.stores if s.name == store.name)
    java = layout.store(info, store_info)
    number = [f.name for f in java.families].index(family.name)
    return encode_rows(state, java.java, java.java_families[number])


def _choose(
    savepoint: SavepointRecord, operator: Operator, store: str | None, family: str | None
) -> tuple[Store, ColumnFamily]:
    there = [
        (s, f)
        for s in operator.stores
        for f in s.families
        if (s.name in (store, f"{store}{ROWS_OF_JOIN}") if store else True)
        and (f.name == family if family else f.kind not in ("index", "timer"))
        # A transformWithState has one family that stays empty.
        and (f.kind != "rows" or operator.properties is None)
    ]
    if len(there) == 1:
        return there[0]
    names = ", ".join(f"{s.name}/{f.name}" for s in operator.stores for f in s.families)
    raise SavepointError(
        f"savepoint {savepoint.uri}: operator {operator.uid!r} has the state {names}; "
        f"store={store!r}, family={family!r} is {'none' if not there else 'not one'} of them"
    )


def written_frames(
    savepoint: SavepointRecord,
    operator: Operator,
    state: DataFrame,
    family: str | None = None,
    store: str | None = None,
) -> Frames:
    """Return the frames to be written if `state` is to be the rows of `family` in `store`, or of
    the only family there is: `state` itself, and all dependent state. Raises SavepointError if the
    family does not take rows, or `state` has other columns, or contradicts itself."""
    chosen, of_family = _choose(savepoint, operator, store, family)
    if why := why_not(operator, chosen, of_family):
        raise SavepointError(
            f"savepoint {savepoint.uri}: state {chosen.name}/{of_family.name} of operator "
            f"{operator.uid!r} ({operator.name}) can be read, but not written: {why}"
        )
    state = conformed(savepoint, operator, of_family, state)
    return with_dependents(savepoint.uri, operator, chosen, of_family, state)


def _types(family: ColumnFamily) -> tuple[StructType, StructType]:
    return StructType.fromJson(family.key_schema), StructType.fromJson(family.value_schema)


def conformed(
    savepoint: SavepointRecord, operator: Operator, family: ColumnFamily, state: DataFrame
) -> DataFrame:
    """Return `state` with exactly the columns of the family, or raise SavepointError."""
    key, value = _types(family)
    wanted = StructType([StructField("key", key), StructField("value", value)])
    if family.several_values or "sequence" in state.columns:
        wanted = wanted.add("sequence", LongType())
    # Names and types alone: whether a column may be null is the encoder's to say.
    if state.schema.simpleString() != wanted.simpleString():
        raise SavepointError(
            f"savepoint {savepoint.uri}: the state of operator {operator.uid!r} has the columns "
            f"{wanted.simpleString()}; given were {state.schema.simpleString()}"
        )
    if not family.several_values:
        twice = state.groupBy("key").count().where("count > 1").limit(1).collect()
        if twice:
            raise SavepointError(
                f"savepoint {savepoint.uri}: operator {operator.uid!r}: key {twice[0].key} has "
                f"{twice[0]['count']} rows; give one row for each key"
            )
    return state
