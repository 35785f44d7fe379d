"""The restore plan of a savepoint: sources, operators and sinks are found by uid.
`restore/planner.py` asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.config import StateBackend
from seamark.model.errors import CorruptRecordError, RestoreError
from seamark.runtime.hadoop_files import open_files
from seamark.runtime.operator_uids import OperatorUids
from seamark.runtime.state_backend import PROVIDER, provider_of
from seamark.savepoints.claims import claimed_by, read_claim
from seamark.savepoints.record import NOT_KNOWN, Operator, SavepointRecord, Store
from seamark.savepoints.restore.location import (
    NewOperator,
    Placement,
    damaged_savepoint,
    find_damage,
    fit_problems,
    saved_metadata,
)
from seamark.savepoints.restore.options import (
    NewJob,
    Prepared,
    job_state,
    new_operators,
    new_sources,
    require_count,
    schema_problem,
    unnamed_warnings,
)
from seamark.savepoints.restore.plan import (
    Action,
    JobState,
    OperatorPlan,
    RestorePlan,
    SinkPlan,
    SourcePlan,
)
from seamark.savepoints.restore.topics import TopicChanges, topic_changes
from seamark.savepoints.state.layout import PARTITIONS, hashmap_problems
from seamark.savepoints.state.planned import PlannedState, differing
from seamark.savepoints.take import uncommitted as committables


def of_savepoint(
    spark: SparkSession,
    savepoint: SavepointRecord,
    job: NewJob,
    begun: Mapping[str, Any] | None,
    directory: Path,
) -> Prepared:
    """Return the plan of a savepoint; `directory` is scratch, `begun` what a restore of it that was
    cut off had decided."""
    uids = job.program.uids
    topics = topic_changes(savepoint.uri, savepoint.sources, job.reading)
    placement = _place(savepoint, uids, topics)
    partitions = job.partitions or savepoint.partitions
    to_commit = committables.counted(committables.uncommitted(spark, savepoint))
    problems = [
        *_claim_problems(spark, savepoint, job, begun),
        *_left_problems(savepoint, job, to_commit),
        *_transaction_problems(savepoint, job, to_commit),
        *(() if job.allow_non_restored_state else topics.problems),
    ]
    damage = find_damage(spark, savepoint)
    wanted = None
    refused: dict[str, str] = {}
    if not damage:
        problems += fit_problems(spark, savepoint, placement, job.backend, job.partitions)
        settings = {
            **savepoint.settings,
            PROVIDER: provider_of(job.backend),
            PARTITIONS: str(partitions),
        }
        try:
            wanted = PlannedState(
                spark, job.program, settings, directory, watermark_ms=savepoint.watermark_ms
            )
            require_count(wanted, uids)
        except RestoreError as error:
            problems.append(str(error))
        else:
            refused = _refused(spark, savepoint, placement, wanted)
            problems += refused.values()
            problems += _new_problems(wanted, placement, job)
    plan = RestorePlan(
        path=savepoint.uri,
        kind="savepoint",
        format=savepoint.type.value,
        source=JobState(
            savepoint.job_name,
            savepoint.state_backend,
            savepoint.partitions,
            job_id=savepoint.job_id,
            epoch=savepoint.epoch,
            created_ms=round(savepoint.created_at * 1000),
            watermark_ms=savepoint.watermark_ms,
        ),
        target=job_state(job, partitions),
        claim_mode=job.claim_mode,
        operators=(
            *_old_operators(savepoint, placement, job, partitions, wanted, refused),
            *new_operators(wanted, uids, set(placement.operators.values())),
        ),
        sources=(
            *(
                SourcePlan(
                    s.uid,
                    s.uid != f"source-{s.index}",
                    Action.MAPPED if s.uid in placement.sources else Action.DROPPED,
                    placement.offsets.get(s.uid, s.offset),
                )
                for s in savepoint.sources
                if s.uid not in topics.begun
            ),
            *new_sources(uids, placement.sources),
        ),
        sinks=tuple(_sinks(savepoint, job, to_commit)),
        warnings=(
            *unnamed_warnings(uids),
            *_drained_warnings(savepoint),
            *(
                f"{count} transactions of sink {uid!r} are dropped: only job {savepoint.job_id} in "
                f"{savepoint.job_directory} can still commit them, when it is started again"
                for uid, count in to_commit.items()
                if uid in committables.unfit(savepoint, job.sinks) and job.allow_non_restored_state
            ),
            *(
                f"source {uid!r} reads {', '.join(added)} from the start of its log"
                for uid, added in topics.added.items()
            ),
        ),
        problems=(*problems, *damage),
    )
    placed = set(placement.operators.values())
    return Prepared(
        plan,
        savepoint=savepoint,
        placement=placement,
        new_operators=tuple(
            NewOperator(index, wanted) for index in sorted(wanted.operators) if index not in placed
        )
        if wanted is not None
        else (),
        failure=damaged_savepoint(savepoint, damage) if damage else None,
    )


def _place(savepoint: SavepointRecord, uids: OperatorUids, topics: TopicChanges) -> Placement:
    operators, sources = uids.operator_numbers(), uids.source_numbers()
    return Placement(
        {o.uid: operators[o.uid] for o in savepoint.operators if o.uid in operators},
        {
            s.uid: sources[s.uid]
            for s in savepoint.sources
            # Of whose topics nothing is left, begins as a new source at its own starting offsets.
            if s.uid in sources and s.uid not in topics.begun
        },
        uids.source_lines,
        topics.offsets,
    )


def _drained_warnings(savepoint: SavepointRecord) -> Iterator[str]:
    if savepoint.drained:
        yield (
            "the savepoint's job was drained: its windows were closed early, and rows of theirs "
            "that come now make a second result"
        )


# --- what would stop it


def _claim_problems(
    spark: SparkSession, savepoint: SavepointRecord, job: NewJob, begun: Mapping[str, Any] | None
) -> Iterator[str]:
    try:
        claim = read_claim(open_files(spark, savepoint.uri, make=False))
    except CorruptRecordError as error:
        yield str(error)
        return
    if claim is not None and (begun is None or begun["job_id"] != claim.job_id):
        yield claimed_by(savepoint.uri, claim)


def _left_problems(
    savepoint: SavepointRecord, job: NewJob, to_commit: Mapping[str, int]
) -> Iterator[str]:
    uids = job.program.uids
    operators, sources = uids.operator_numbers(), uids.source_numbers()
    left = [
        *(f"operator {o.uid!r} ({_size(savepoint, o)} of state)" for o in savepoint.operators
          if o.uid not in operators),
        *(f"source {s.uid!r}" for s in savepoint.sources if s.uid not in sources),
        *(f"sink {uid!r} ({count} transactions to commit)"
          for uid, count in to_commit.items() if uid not in job.sinks),
    ]  # fmt: skip
    if left and not job.allow_non_restored_state:
        yield (
            f"the savepoint has {', '.join(left)}, and the program has nothing of these uids; name "
            "them with uid= and job.uid(…), or drop what they have: -n, "
            "allow_non_restored_state=True"
        )


def _transaction_problems(
    savepoint: SavepointRecord, job: NewJob, to_commit: Mapping[str, int]
) -> Iterator[str]:
    if to_commit and not job.allow_non_restored_state:
        yield from committables.problems(savepoint, job.sinks)


def _size(savepoint: SavepointRecord, operator: Operator) -> str:
    if operator.rows == NOT_KNOWN:
        return f"{savepoint.bytes_of(operator)} bytes"
    return f"{operator.rows} rows"


def _refused(
    spark: SparkSession, savepoint: SavepointRecord, placement: Placement, wanted: PlannedState
) -> dict[str, str]:
    """Return by uid why an operator cannot take its state."""
    problems = {}
    taken = {}
    for operator in savepoint.operators:
        if operator.uid not in placement.operators:
            continue
        index = placement.operators[operator.uid]
        if (type_ := wanted.operators[index].name) != operator.name:
            problems[operator.uid] = (
                f"the savepoint has state of {operator.name} for operator {operator.uid!r}, which "
                f"is {type_} in the program; give one of another type a uid of its own"
            )
        else:
            taken[operator.index] = index
    refusals = wanted.refusals(saved_metadata(spark, savepoint), taken)
    for operator in savepoint.operators:
        if refusal := refusals.get(taken.get(operator.index, -1)):
            problems[operator.uid] = schema_problem(
                f"operator {operator.uid!r} ({operator.name})",
                refusal,
                operator.stores,
                wanted.stores(taken[operator.index]),
            )
    return problems


def _new_problems(wanted: PlannedState, placement: Placement, job: NewJob) -> list[str]:
    """Say which operators that begin empty the backend cannot hold."""
    if job.backend is StateBackend.ROCKSDB:
        return []
    placed = set(placement.operators.values())
    return hashmap_problems(
        [
            _Wanted(job.program.uids.of_operator(index), operator.name, wanted.stores(index))
            for index, operator in wanted.operators.items()
            if index not in placed
        ]
    )


@dataclass(frozen=True)
class _Wanted:
    uid: str
    name: str
    stores: tuple[Store, ...]


# --- the parts


def _old_operators(
    savepoint: SavepointRecord,
    placement: Placement,
    job: NewJob,
    partitions: int,
    wanted: PlannedState | None,
    refused: Mapping[str, str],
) -> Iterator[OperatorPlan]:
    for operator in savepoint.operators:
        mapped = operator.uid in placement.operators
        evolved = (
            mapped
            and wanted is not None
            and operator.uid not in refused
            and bool(differing(operator.stores, wanted.stores(placement.operators[operator.uid])))
        )
        yield OperatorPlan(
            operator.uid,
            operator.uid != f"operator-{operator.index}",
            operator.name,
            Action.MAPPED if mapped else Action.DROPPED,
            repartitioned=mapped and operator.keyed and operator.partitions != partitions,
            converted=mapped and savepoint.state_backend != job.backend.value,
            evolved=evolved,
            rows=None if operator.rows == NOT_KNOWN else operator.rows,
            bytes=savepoint.bytes_of(operator),
        )


def _sinks(
    savepoint: SavepointRecord, job: NewJob, to_commit: Mapping[str, int]
) -> Iterator[SinkPlan]:
    saved = dict.fromkeys([*(sink.uid for sink in savepoint.sinks), *to_commit])
    for uid in dict.fromkeys([*saved, *job.sinks]):
        action: Action | None
        if uid not in job.sinks:
            action = Action.DROPPED
        elif uid in saved:
            action = Action.MAPPED
        else:
            action = Action.NEW if savepoint.sinks else None  # an older savepoint does not say
        yield SinkPlan(uid, action, commit=to_commit.get(uid, 0))
