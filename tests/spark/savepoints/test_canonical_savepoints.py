"""Every stateful operator of Spark's through canonical savepoints, in one real session.

How: a query runs one batch at a time, one for each file. Between two batches its checkpoint is
exported, made into another one on another backend with another number of partitions, and the query
goes on there, again and again; after each step the rows of its batch are compared with those of the
same query on one checkpoint. The savepoint alone is read: the checkpoint it was taken from is
deleted first.
"""

from __future__ import annotations

import itertools
import json
import shutil
import uuid
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.api.config import StateBackend
from seamark.model.errors import DamagedCheckpointError, RestoreError, SavepointError
from seamark.savepoints.record import SavepointRecord, SavepointType
from seamark.savepoints.restore.location import (
    FORMAT,
    NewOperator,
    Placement,
    find_damage,
    fit_problems,
    restore_canonical,
    saved_metadata,
)
from seamark.savepoints.state.layout import STRICT_DISTRIBUTION, is_keyed
from seamark.savepoints.state.planned import PlannedState, Program, differing
from seamark.savepoints.take.export import SavedJob, export_savepoint
from seamark.spark.operator_uids import OperatorUids, find_uids
from seamark.spark.planned_query import PlannedQuery
from tests.spark.savepoints.stateful_programs import (
    MODES,
    PROGRAMS,
    ROCKSDB_ONLY,
    START,
    Place,
    events,
    is_there,
    last_epoch,
    run_batch,
    write_input,
)

HASHMAP, ROCKSDB = StateBackend.HASHMAP, StateBackend.ROCKSDB


_ANY = (
    (HASHMAP, False), (ROCKSDB, False), (HASHMAP, False), (ROCKSDB, True), (ROCKSDB, False)
)  # fmt: skip
_ROCKSDB = ((ROCKSDB, False), (ROCKSDB, True))


def hops(program: str, partitions: list[int]) -> list[Place]:
    """Return places of these partitions, the backends taking turns."""
    turns = _ROCKSDB if program in ROCKSDB_ONLY else _ANY
    return [
        Place(backend, number, changelog)
        for number, (backend, changelog) in zip(partitions, itertools.cycle(turns), strict=False)
    ]


class Query:
    """One of the programs, run one batch at a time."""

    def __init__(self, spark: SparkSession, program: str, inputs: Path) -> None:
        if not is_there(program):
            pytest.skip(f"PySpark {spark.version} has no such operator")
        self._spark = spark
        self._program = program
        self._inputs = inputs

    @property
    def output_mode(self) -> str:
        return MODES.get(self._program, "append")

    def stream(self) -> DataFrame:
        streams = [events(self._spark, self._inputs) for _ in range(2)]
        return PROGRAMS[self._program](*streams)

    def run_batch(self, checkpoint: Path, place: Place) -> list[str]:
        """Run the next batch and return its rows as text, sorted."""
        rows = run_batch(self._spark, self.stream(), checkpoint, place, self.output_mode)
        return sorted(map(str, rows))


def take(
    spark: SparkSession,
    checkpoint: Path,
    target: Path,
    type_: SavepointType = SavepointType.CANONICAL,
) -> SavepointRecord:
    return export_savepoint(
        spark,
        checkpoint.as_uri(),
        last_epoch(checkpoint),
        target.as_uri(),
        SavedJob("0" * 32, "programs", OperatorUids()),
        type_,
    )


def restore(
    spark: SparkSession,
    savepoint: Path,
    target: Path,
    place: Place,
    placement: Placement | None = None,
    new_operators: tuple[NewOperator, ...] = (),
) -> None:
    found = sm.Savepoint(savepoint.as_uri()).record
    placed = placement or Placement.unchanged(found)
    if problems := fit_problems(spark, found, placed, place.backend, place.partitions):
        raise RestoreError("; ".join(problems))
    if damage := find_damage(spark, found):
        raise DamagedCheckpointError.found(f"savepoint {found.uri} is damaged", damage)
    restore_canonical(
        spark,
        found,
        target.as_uri(),
        query_id=str(uuid.uuid4()),
        partitions=place.partitions,
        backend=place.backend,
        placement=placement,
        new_operators=new_operators,
    )


def planned(
    spark: SparkSession, query: Query, saved: SavepointRecord, directory: Path
) -> PlannedState:
    """Return Spark's plan of the query's state, for the restored savepoint."""
    stream = query.stream()
    planned = PlannedQuery(stream, query.output_mode, "")
    program = Program(stream, query.output_mode, find_uids(planned, {}, {}))
    return PlannedState(spark, program, saved.settings, directory)


def require_planned_as_saved(
    spark: SparkSession, query: Query, saved: SavepointRecord, directory: Path
) -> None:
    """Spark's plan of the same program has the savepoint's state."""
    state = planned(spark, query, saved, directory)
    assert [o.name for o in state.operators.values()] == [o.name for o in saved.operators]
    for operator in saved.operators:
        stores = state.describe(operator.index).stores
        assert differing(operator.stores, stores) == []
        families = [family for store in stores for family in store.families]
        assert is_keyed(operator.name, families) == operator.keyed
    placed = {o.index: o.index for o in saved.operators}
    assert state.refusals(saved_metadata(spark, saved), placed) == {}


def require_same_rows(
    spark: SparkSession, tmp_path: Path, program: str, places: list[Place]
) -> None:
    inputs = tmp_path / "inputs"
    query = Query(spark, program, inputs)
    somewhere = {place.backend for place in places} - {ROCKSDB} or {ROCKSDB}
    reference = Place(somewhere.pop(), 4)
    checkpoint = tmp_path / "0"
    compared = 0
    for step, place in enumerate(places):
        if step:
            savepoint = tmp_path / f"savepoint-{step}"
            taken = take(spark, checkpoint, savepoint)
            assert taken.operators and all(o.rows for o in taken.operators), "no state to move"
            if step == 1:
                require_planned_as_saved(spark, query, taken, tmp_path)
            shutil.rmtree(checkpoint)
            moved = tmp_path / f"moved-{step}"
            savepoint.rename(moved)
            checkpoint = tmp_path / str(step)
            restore(spark, moved, checkpoint, place)
        write_input(inputs, step, overlap=True)
        expected = query.run_batch(tmp_path / "reference", reference)
        assert query.run_batch(checkpoint, place) == expected, f"batch {step}, on {place}"
        compared += len(expected) if step else 0
    assert compared > 0, "nothing was compared"


_SLICE = {
    "aggregation": [1, 2, 3],
    "join": [3, 2],
    "total": [2, 3],
    "transform_with_timers": [2, 3],
    "transform_with_ttl": [5, 2],
}


@pytest.mark.parametrize("program", _SLICE)
def test_a_query_goes_on_from_its_savepoint_as_if_it_had_never_stopped(
    spark: SparkSession, tmp_path: Path, program: str
) -> None:
    require_same_rows(spark, tmp_path, program, hops(program, _SLICE[program]))


def test_operators_are_placed_dropped_and_added(spark: SparkSession, tmp_path: Path) -> None:
    """Two operators become the second of them alone, one becomes the second of two; a restore cut
    off in the middle is done again."""
    inputs, place, source = tmp_path / "inputs", Place(HASHMAP, 2), {"source-0": 0}
    distinct, sums = (Query(spark, name, inputs) for name in ("distinct", "distinct_sums"))
    write_input(inputs, 0)
    sums.run_batch(tmp_path / "sums", place)
    distinct.run_batch(tmp_path / "distinct", place)
    both = take(spark, tmp_path / "sums", tmp_path / "both")
    assert [o.name for o in both.operators] == ["stateStoreSave", "dedupe"]
    one = take(spark, tmp_path / "distinct", tmp_path / "one")

    only_distinct = Placement({"operator-1": 0}, source)
    restored = tmp_path / "restored"
    restore(spark, tmp_path / "both", restored, Place(ROCKSDB, 3), only_distinct)
    (restored / "commits" / "0").unlink()
    shutil.rmtree(restored / "state" / "0" / "1")
    restore(spark, tmp_path / "both", restored, Place(ROCKSDB, 3), only_distinct)

    moved = Placement({"operator-0": 1}, source)
    new = (NewOperator(0, planned(spark, sums, one, tmp_path)),)
    restore(spark, tmp_path / "one", tmp_path / "grown", Place(ROCKSDB, 3), moved, new)

    # The same file again, and a new one: rows seen before are dropped by state alone.
    shutil.copy2(inputs / "0000.json", inputs / "0000-again.json")
    write_input(inputs, 1)
    expected = distinct.run_batch(tmp_path / "distinct", place)
    assert expected
    assert distinct.run_batch(restored, Place(ROCKSDB, 3)) == expected
    for number in (2, 3):
        assert sums.run_batch(tmp_path / "grown", Place(ROCKSDB, 3)) == []
        write_input(inputs, number)
    rows = sums.run_batch(tmp_path / "grown", Place(ROCKSDB, 3))
    assert rows == sums_of_distinct(inputs / "0001.json"), "state of a window that is not of file 1"


def sums_of_distinct(path: Path) -> list[str]:
    groups: dict[tuple[int, int], list[int]] = {}
    for k, v, ts, _ in {tuple(json.loads(line).values()) for line in path.read_text().split("\n")}:
        groups.setdefault((ts - ts % 5, k), []).append(v)
    return sorted(
        f"Row(start={start}, k={k}, n={len(values)}, sum={sum(values)})"
        for (start, k), values in groups.items()
    )


def test_state_is_read_and_written(spark: SparkSession, tmp_path: Path) -> None:
    inputs, place = tmp_path / "inputs", Place(HASHMAP, 2)
    query = Query(spark, "aggregation", inputs)
    write_input(inputs, 0)
    query.run_batch(tmp_path / "0", place)
    take(spark, tmp_path / "0", tmp_path / "savepoint")
    savepoint = sm.Savepoint(tmp_path / "savepoint")
    state = savepoint.read_state("operator-0")
    found = state.select("key.*", "value.*").collect()
    assert sum(row[2] for row in found) == 40, "events in all windows"

    with pytest.raises(SavepointError, match="one row for each key"):
        savepoint.with_state("operator-0", state.union(state), to=tmp_path / "x")
    with pytest.raises(SavepointError, match="has the columns"):
        savepoint.with_state("operator-0", state.select("key"), to=tmp_path / "x")
    with pytest.raises(SavepointError, match="has the state default/default; store=None"):
        savepoint.read_state("operator-0", family="other")
    count, total = state.schema["value"].dataType.fieldNames()  # type: ignore[attr-defined]
    mended = state.withColumn(
        "value",
        F.struct((F.col(f"value.{count}") + 100).alias(count), F.col(f"value.{total}")),
    )
    edited = tmp_path / "edited"
    differences = savepoint.diff(savepoint.with_state("operator-0", mended, to=edited))
    assert differences == [], "as many rows and bytes, of the same schema"
    restore(spark, edited, tmp_path / "1", Place(ROCKSDB, 3))
    rows = []
    for number in (1, 2, 3):
        write_input(inputs, number)
        rows += query.run_batch(tmp_path / "1", Place(ROCKSDB, 3))
    begin = START + 10  # the first file's windows end before
    of_first = [row for row in rows if int(row.split("start=")[1].split(",")[0]) < begin]
    assert of_first == sorted(
        f"Row(start={row[0].start.timestamp():.0f}, k={row[1]}, n={row[2] + 100}, sum={row[3]})"
        for row in found
    )


def test_a_damaged_savepoint_is_named_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_input(tmp_path / "inputs", 0)
    Query(spark, "aggregation", tmp_path / "inputs").run_batch(tmp_path / "0", Place(HASHMAP, 2))
    take(spark, tmp_path / "0", tmp_path / "savepoint")
    with pytest.raises(SavepointError, match="not empty"):
        take(spark, tmp_path / "0", tmp_path / "savepoint")
    rows = sorted((tmp_path / "savepoint" / "state" / "0" / "default").glob("part-*"))
    shutil.copy(rows[0], rows[0].with_name("part-99999.snappy.parquet"))
    with rows[0].open("r+b") as file:
        file.seek(8)
        file.write(b"\xff\xff")
    listed = damage(spark, tmp_path)
    assert f"{rows[0].name}: the file system's checksum does not match" in listed
    (rows[0].parent / f".{rows[0].name}.crc").unlink()
    rows[1].unlink()
    (tmp_path / "savepoint" / "spark" / "offsets" / "0").write_text("v1")
    listed = damage(spark, tmp_path)
    for name in (rows[0].name, rows[1].name, "spark/offsets/0"):
        assert name in listed
    assert len(listed.splitlines()) == 3, "what the savepoint does not list is not of it"


def damage(spark: SparkSession, tmp_path: Path) -> str:
    with pytest.raises(DamagedCheckpointError) as caught:
        restore(spark, tmp_path / "savepoint", tmp_path / "restored", Place(HASHMAP, 2))
    assert not (tmp_path / "restored").exists()
    return "\n".join(caught.value.problems)


def test_a_directory_named_like_a_pattern_is_itself(spark: SparkSession, tmp_path: Path) -> None:
    write_input(tmp_path / "inputs", 0)
    Query(spark, "aggregation", tmp_path / "inputs").run_batch(tmp_path / "0", Place(HASHMAP, 2))
    wanted = take(spark, tmp_path / "0", tmp_path / "arb").operators[0].rows
    for name in ("apx?b", "a[prod]*{b,c}"):  # the pattern matches the first two, and not itself
        shutil.copytree(tmp_path / "arb", tmp_path / name)
    savepoint = sm.Savepoint(tmp_path / "a[prod]*{b,c}")
    assert savepoint.read_state("operator-0").count() == wanted > 0
    target = (tmp_path / "1").as_uri()
    restore_canonical(spark, savepoint.record, target, query_id=str(uuid.uuid4()), partitions=3)


def test_rows_once_spread_by_a_part_of_their_key_are_found_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As in a query begun before Spark 3.3: a savepoint spreads them by the whole key."""

    def run(checkpoint: Path) -> list[str]:
        stream = events(spark, tmp_path / "inputs").repartition("k").groupBy("k", "v").count()
        return sorted(map(str, run_batch(spark, stream, checkpoint, Place(HASHMAP, 5), "update")))

    write_input(tmp_path / "inputs", 0)
    spark.conf.set(STRICT_DISTRIBUTION, "false")
    try:
        run(tmp_path / "0")
    finally:
        spark.conf.unset(STRICT_DISTRIBUTION)
    assert f'"{STRICT_DISTRIBUTION}":"false"' in (tmp_path / "0/offsets/0").read_text()
    take(spark, tmp_path / "0", tmp_path / "savepoint")
    take(spark, tmp_path / "0", tmp_path / "native", SavepointType.NATIVE)
    for name in ("savepoint", "native"):
        restore(spark, tmp_path / name, tmp_path / f"of-{name}", Place(HASHMAP, 5))
    write_input(tmp_path / "inputs", 1)
    expected = run(tmp_path / "0")
    assert any(f"count={n}" in row for row in expected for n in range(3, 9)), "no count goes on"
    for name in ("savepoint", "native"):
        assert run(tmp_path / f"of-{name}") == expected, name


@pytest.mark.chaos
@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_every_change_of_partitions(spark: SparkSession, tmp_path: Path, program: str) -> None:
    places = hops(program, [1, 2, 3, 5, 6, 5, 2, 3, 2, 1])
    require_same_rows(spark, tmp_path, program, places)


@pytest.mark.chaos
@pytest.mark.parametrize("program", ["distinct_sums", "join", "transform_with_timers"])
def test_checkpoint_format_two(spark: SparkSession, tmp_path: Path, program: str) -> None:
    places = [Place(ROCKSDB, number, number == 3) for number in (2, 3, 5, 2)]
    spark.conf.set(FORMAT, "2")
    try:
        require_same_rows(spark, tmp_path, program, places)
    finally:
        spark.conf.unset(FORMAT)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("operator", "version", "program"),
    [
        ("join", "3", "join"),  # one store with column families: on RocksDB alone
        ("flatMapGroupsWithState", "1", "pandas_state"),
        ("aggregation", "1", "aggregation"),
    ],
)
def test_other_state_formats(
    spark: SparkSession, tmp_path: Path, operator: str, version: str, program: str
) -> None:
    name = f"spark.sql.streaming.{operator}.stateFormatVersion"
    places = [Place(ROCKSDB, 3), Place(ROCKSDB, 2, changelog=True), Place(ROCKSDB, 4)]
    spark.conf.set(name, version)
    try:
        require_same_rows(spark, tmp_path, program, places)
    finally:
        spark.conf.unset(name)
