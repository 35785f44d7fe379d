"""Random programs, changed at random and restored onto random backends and partitions, against the
same operators without a stop.

How: Hypothesis draws a job's life: in each phase some branches, each with one or two stateful
operators over the one source, in some order, on some backend and number of partitions. Between two
phases a canonical savepoint is taken, the checkpoint is deleted, and the next phase's program is
restored from it by uid. Each batch's rows are compared, branch by branch, with those of one query
over all branches of all phases; it runs on one checkpoint from the beginning, and shows a later
branch only the rows from then on.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from seamark.api.config import StateBackend
from seamark.savepoints.restore.options import NewJob
from seamark.savepoints.restore.write import restore_job
from seamark.savepoints.state.planned import Program
from seamark.savepoints.take.export import SavedJob, export_savepoint
from seamark.spark.operator_uids import find_uids
from seamark.spark.planned_query import PlannedQuery
from tests.spark.savepoints.stateful_programs import (
    PROGRAMS,
    ROCKSDB_ONLY,
    Place,
    events,
    last_epoch,
    run_batches,
    write_input,
)

BATCHES = 2
"""In each phase; the last one has another, to close the windows begun by the phase."""

QUICK = ("aggregation", "distinct", "distinct_within_watermark", "session_windows", "join")
IN_PYTHON = ("transform_with_timers", "transform_with_ttl", "pandas_state")
ONCE = ("pandas_state",)
"""Spark refuses two of these in one query, and one query has all branches of a life."""


@dataclass(frozen=True, order=True)
class Branch:
    """A stateful operator of one of the kinds, behind a deduplication if it is `distinct`. Two of
    one kind differ in their state."""

    uid: str
    kind: str
    distinct: bool
    since: int
    """The phase it appears in."""

    @property
    def operators(self) -> int:
        return 1 + self.distinct


@dataclass(frozen=True)
class Life:
    """The job in each phase."""

    programs: tuple[tuple[Branch, ...], ...]
    places: tuple[Place, ...]

    @property
    def branches(self) -> list[Branch]:
        return sorted({branch for program in self.programs for branch in program})


@st.composite
def lives(draw: st.DrawFn, kinds: tuple[str, ...], phases: int) -> Life:
    programs: list[tuple[Branch, ...]] = []
    left, number = list(kinds), 0
    for phase in range(phases):
        kept = [b for b in programs[-1] if draw(st.integers(0, 3)) < 3] if phase else []
        while not kept or (sum(b.operators for b in kept) < 3 and draw(st.booleans())):
            kind = draw(st.sampled_from(left))
            if kind in ONCE:
                left.remove(kind)
            may = kind in ("aggregation", "session_windows")
            two = may and sum(b.operators for b in kept) < 2 and draw(st.booleans())
            kept.append(Branch(f"{kind}-{number}", kind, two, phase))
            number += 1
        programs.append(tuple(draw(st.permutations(kept))))
    rocksdb = any(b.kind in ROCKSDB_ONLY for program in programs for b in program)
    places = []
    for _ in range(phases):
        backend = StateBackend.ROCKSDB if rocksdb else draw(st.sampled_from(StateBackend))
        changelog = backend is StateBackend.ROCKSDB and draw(st.booleans())
        places.append(Place(backend, draw(st.integers(1, 6)), changelog))
    return Life(tuple(programs), tuple(places))


def declare(spark: SparkSession, inputs: Path, branches: tuple[Branch, ...]) -> Program:
    """Return the union of the branches, each row as (uid of its branch, JSON)."""
    rows = events(spark, inputs, maxFilesPerTrigger="1")
    operators, parts = {}, []
    for branch in branches:
        # All conditions speak of the event time: no other is evaluated behind the watermark's node,
        # and the watermark, one for the whole job, must not depend on which branches there are.
        own = rows.where(F.when(F.col("at").isNotNull(), F.col("file") >= branch.since * BATCHES))
        # A number of its own keeps two branches of one kind apart.
        shift = int(branch.uid.rpartition("-")[2])
        own = own.withColumn("v", F.when(F.col("at").isNotNull(), (F.col("v") + shift) % 6))
        if branch.distinct:
            own = operators[f"{branch.uid}-distinct"] = own.dropDuplicates(["k", "v", "at"])
        out = PROGRAMS[branch.kind](own, own)
        operators[branch.uid] = out
        parts.append(out.select(F.lit(branch.uid).alias("uid"), F.to_json(F.struct("*"))))
    stream = reduce(DataFrame.union, parts)
    query = PlannedQuery(stream, "append", "")
    return Program(stream, "append", find_uids(query, {"events": rows}, operators))


Batches = dict[int, dict[str, Counter[str]]]
"""By batch and branch: its rows."""


def run(spark: SparkSession, program: Program, checkpoint: Path, at: Place) -> Batches:
    """Run a batch for each file."""
    found: Batches = {}
    for number, rows in run_batches(spark, program.stream, checkpoint, at):
        of_batch = found.setdefault(number, {})
        for uid, row in rows:
            of_batch.setdefault(uid, Counter())[row] += 1
    return found


def move(
    spark: SparkSession, old: Program, checkpoint: Path, new: Program, job: Path, to: Place
) -> None:
    """Take a savepoint of the old program, and restore it for the new one; the checkpoint goes."""
    savepoint = job.with_name(f"{job.name}-savepoint")
    export_savepoint(
        spark,
        checkpoint.as_uri(),
        last_epoch(checkpoint),
        savepoint.as_uri(),
        SavedJob("0" * 32, "life", old.uids),
    )
    shutil.rmtree(checkpoint)
    restored = NewJob("life", job.as_uri(), new, {}, to.backend, to.partitions, True)
    restore_job(spark, savepoint.as_uri(), restored)


def live(spark: SparkSession, life: Life) -> None:
    note(f"{life}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        home = Path(scratch)
        files = BATCHES * len(life.places) + 1
        for number in range(files):
            write_input(home / "all", number, overlap=True)
        rocksdb = any(b.kind in ROCKSDB_ONLY for b in life.branches)
        still = Place(StateBackend.ROCKSDB if rocksdb else StateBackend.HASHMAP, 1)
        everything = declare(spark, home / "all", tuple(life.branches))
        expected = run(spark, everything, home / "reference", still)
        (home / "in").mkdir()
        old, checkpoint = None, Path()
        for phase, (branches, at) in enumerate(zip(life.programs, life.places, strict=True)):
            program, job = declare(spark, home / "in", branches), home / str(phase)
            if old is not None:
                move(spark, old, checkpoint, program, job, at)
            old, checkpoint = program, job / "spark"
            last = files if phase == len(life.places) - 1 else (phase + 1) * BATCHES
            for number in range(phase * BATCHES, last):
                write_input(home / "in", number, overlap=True)
            found = run(spark, program, checkpoint, at)
            assert list(found) == list(range(phase * BATCHES, last))
            for number, rows in found.items():
                for each in branches:
                    assert rows.get(each.uid) == expected[number].get(each.uid), (
                        f"{each.uid} in batch {number}, on {at}"
                    )
                note(f"batch {number}: { {uid: of.total() for uid, of in rows.items()} }")


def branch(uid: str, kind: str, since: int = 0, *, distinct: bool = False) -> Branch:
    return Branch(uid, kind, distinct, since)


SWAPPED = Life(
    (
        (branch("aggregation-0", "aggregation", distinct=True), branch("join-1", "join")),
        (
            branch("aggregation-2", "aggregation", 1),
            branch("join-1", "join"),
            branch("aggregation-0", "aggregation", distinct=True),
        ),
    ),
    (Place(StateBackend.HASHMAP, 2), Place(StateBackend.ROCKSDB, 3)),
)
"""Two operators swap places, and a new one of an existing type goes before them."""

_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@settings(
    max_examples=1,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=_CHECKS,
)
@example(SWAPPED)
@given(lives(QUICK, 2))
def test_a_changed_program_goes_on_as_if_it_had_never_stopped(
    spark: SparkSession, life: Life
) -> None:
    live(spark, life)


@pytest.mark.chaos
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("part", range(4))  # for workers side by side
@settings(max_examples=15, deadline=None, suppress_health_check=_CHECKS)
@given(life=lives((*QUICK, *IN_PYTHON), 3))
def test_many_lives(spark: SparkSession, part: int, life: Life) -> None:
    live(spark, life)
