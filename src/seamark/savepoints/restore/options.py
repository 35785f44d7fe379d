"""What the plans of savepoints (`restore/savepoint_planning.py`) and of retained checkpoints
(`restore/checkpoint_planning.py`) have in common."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.config import StateBackend
from seamark.api.settings import CLAIM_MODE_VARIABLE, DROP_STATE_VARIABLE, PARALLELISM_VARIABLE
from seamark.model.errors import ConfigurationError, RestoreError, SeamarkError
from seamark.runtime.job_plan import JobPlan
from seamark.runtime.kafka_topics import Subscription, find_subscriptions
from seamark.runtime.operator_uids import OperatorUids
from seamark.runtime.state_backend import PROVIDER, backend_of, backend_settings
from seamark.savepoints.record import ColumnFamily, Savepoint, Store
from seamark.savepoints.restore.location import NewOperator, Placement
from seamark.savepoints.restore.plan import (
    Action,
    ClaimMode,
    JobState,
    OperatorPlan,
    RestorePlan,
    SourcePlan,
)
from seamark.savepoints.state.planned import PlannedState, Program, differing, schema_text


@dataclass(frozen=True)
class RestoreOptions:
    """How a job is to be restored: the arguments of `Job.run`. Raises ConfigurationError for a
    wrong value."""

    job_name: str
    allow_non_restored_state: bool = False
    parallelism: int | None = None
    claim_mode: str = ClaimMode.NO_CLAIM.value

    def __post_init__(self) -> None:
        given = self.parallelism
        if given is not None and (not isinstance(given, int) or given < 1):
            raise ConfigurationError(
                f"Job {self.job_name!r}: parallelism is {given!r}; give a whole number from 1"
            )
        if self.claim_mode not in [mode.value for mode in ClaimMode]:
            raise ConfigurationError(
                f"Job {self.job_name!r}: claim_mode is {self.claim_mode!r}; give 'no-claim' or "
                "'claim'"
            )

    def overridden(self, environment: Mapping[str, str]) -> RestoreOptions:
        """Return these options with what ``seamark run`` was given instead."""
        return RestoreOptions(
            self.job_name,
            self.allow_non_restored_state or DROP_STATE_VARIABLE in environment,
            int(environment.get(PARALLELISM_VARIABLE, 0)) or self.parallelism,
            environment.get(CLAIM_MODE_VARIABLE, self.claim_mode),
        )


@dataclass(frozen=True)
class NewJob:
    """The job that goes on from a savepoint or a checkpoint: its query, the types of its sinks by
    uid, the backend it keeps its state in, and its number of state partitions (None: as many as
    there)."""

    name: str
    directory: str
    program: Program
    sinks: Mapping[str, str]
    backend: StateBackend
    partitions: int | None = None
    allow_non_restored_state: bool = False
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    reading: Mapping[str, Subscription] = field(default_factory=dict)
    """What its Kafka sources read, by uid."""


@dataclass(frozen=True)
class Prepared:
    """A plan, and what doing it takes. `savepoint` is None for a retained checkpoint; `begun` is
    what a restore that was cut off had decided; `failure` says more than `plan.problems`."""

    plan: RestorePlan
    begun: Mapping[str, Any] | None = None
    savepoint: Savepoint | None = None
    placement: Placement | None = None
    new_operators: tuple[NewOperator, ...] = ()
    failure: SeamarkError | None = None

    def require(self) -> None:
        """Raise what stops the restore, if anything does."""
        if self.failure is not None:
            raise self.failure
        if problems := self.plan.problems:
            shown = problems[0] if len(problems) == 1 else "".join(f"\n  - {p}" for p in problems)
            raise RestoreError(
                f"restore: {self.plan.path} does not fit job {self.plan.target.name!r}; nothing "
                f"was written: {shown}"
            )


def new_job(
    spark: SparkSession,
    job: JobPlan,
    directory: str,
    given: Container[str],
    how: RestoreOptions,
) -> NewJob:
    """Return what a restore has to know of a job. `directory` is the job's, as a URI;
    `given` are the settings that the user gave."""
    declared = job.declared
    settings = backend_settings(spark, declared.checkpoint, given)
    return NewJob(
        declared.name,
        directory,
        Program(job.stream, declared.output_mode, job.uids),
        {uid: type(sink.sink).__name__ for uid, sink in declared.sinks.items()},
        StateBackend(backend_of(settings.get(PROVIDER) or str(spark.conf.get(PROVIDER)))),
        how.parallelism,
        how.allow_non_restored_state,
        ClaimMode(how.claim_mode),
        find_subscriptions(job.stream, job.uids),
    )


def job_state(job: NewJob, partitions: int) -> JobState:
    """Return the new job as the plan shows it."""
    return JobState(job.name, job.backend.value, partitions, directory=job.directory)


def require_count(wanted: PlannedState, uids: OperatorUids) -> None:
    """Raise RestoreError if Spark's plan does not have the operators that uids were found for."""
    if set(wanted.operators) != set(range(uids.operator_count)):
        raise RestoreError(
            f"Spark plans the stateful operators {sorted(wanted.operators)}, and "
            f"{uids.operator_count} were found in the program: their uids cannot be trusted. This "
            "is an error of Seamark's own, please report it with the program"
        )


def schema_problem(
    operator: str, refusal: str, old: tuple[Store, ...], new: tuple[Store, ...]
) -> str:
    """Say which schemas do not go together."""
    changes = "; ".join(_change(*found) for found in differing(old, new))
    return (
        f"{operator}: Spark cannot go on with its state in the program: {refusal} ({changes}). "
        "Undo the change, or give the operator another uid: it then begins empty"
    )


def _change(name: str, old: ColumnFamily | None, new: ColumnFamily | None) -> str:
    if old is None or new is None:
        return f"state {name!r} is {'gone' if new is None else 'new'}"
    schemas = (
        ("key", old.key_schema, new.key_schema),
        ("value", old.value_schema, new.value_schema),
    )
    return f"state {name!r}: " + ", ".join(
        f"its {part} was {schema_text(before)} and is {schema_text(after)} now"
        for part, before, after in schemas
        if schema_text(before) != schema_text(after)
    )


def new_operators(
    wanted: PlannedState | None, uids: OperatorUids, placed: set[int]
) -> Iterator[OperatorPlan]:
    """Yield the program's operators that begin empty."""
    for index in range(uids.operator_count):
        if index not in placed:
            known = wanted.operators.get(index) if wanted is not None else None
            yield OperatorPlan(
                uids.of_operator(index),
                index in uids.operators,
                known.name if known is not None else "",
                Action.NEW,
            )


def new_sources(uids: OperatorUids, placed: Mapping[str, int]) -> Iterator[SourcePlan]:
    """Yield the program's sources that begin at their own starting offsets."""
    for uid, index in uids.source_numbers().items():
        if uid not in placed:
            yield SourcePlan(uid, index in uids.sources, Action.NEW)


def unnamed_warnings(uids: OperatorUids) -> tuple[str, ...]:
    """Name the operators and sources that are found by their number alone."""
    unnamed = [
        *(f"operator {uids.of_operator(n)!r}: name it with job.uid(dataframe, 'a-name')"
          for n in range(uids.operator_count) if n not in uids.operators),
        *(f"source {uid!r}: name it with job.source(stream, uid='a-name')"
          for uid, n in uids.source_numbers().items() if n not in uids.sources),
    ]  # fmt: skip
    return tuple(
        f"{what}; without a uid it is found by its number, which changes with the program"
        for what in unnamed
    )
