"""A restore's options, and the job that it makes."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.checks import member, whole_number
from seamark.api.config import StateBackend
from seamark.api.declarations import SPARK_DIRECTORY, JobDeclaration
from seamark.api.settings import CLAIM_MODE_VARIABLE, DROP_STATE_VARIABLE, PARALLELISM_VARIABLE
from seamark.run.job_plan import JobPlan
from seamark.run.kafka_topics import Subscription, find_subscriptions
from seamark.savepoints.restore.plan import ClaimMode, Side
from seamark.savepoints.state.planned import Program
from seamark.spark.state_backend import (
    PROVIDER,
    backend_of,
    backend_settings,
    session_setting,
)


@dataclass(frozen=True)
class RestoreOptions:
    """The options of a restore: arguments of `Job.run`. Raises ConfigurationError."""

    job_name: str
    allow_non_restored_state: bool = False
    parallelism: int | None = None
    claim_mode: str = ClaimMode.NO_CLAIM.value

    def __post_init__(self) -> None:
        job = f"Job {self.job_name!r}"
        if self.parallelism is not None:
            whole_number(self.parallelism, f"{job}: parallelism", least=1, most=2**31 - 1)
        member(ClaimMode, self.claim_mode, f"{job}: claim_mode")

    def overridden(self, environment: Mapping[str, str]) -> "RestoreOptions":
        """Return these options, overridden by the arguments of ``seamark run``."""
        given: Any = environment.get(PARALLELISM_VARIABLE) or self.parallelism
        if isinstance(given, str) and given.isdecimal():
            given = int(given)
        return RestoreOptions(
            self.job_name,
            self.allow_non_restored_state or DROP_STATE_VARIABLE in environment,
            given,
            environment.get(CLAIM_MODE_VARIABLE, self.claim_mode),
        )


@dataclass(frozen=True)
class NewJob:
    """The job that goes on from a savepoint or a checkpoint: its query, the types of its sinks by
    uid, its state backend, and its number of state partitions (None: the origin's)."""

    name: str
    directory: str
    program: Program
    sinks: Mapping[str, str]
    backend: StateBackend
    partitions: int | None = None
    allow_non_restored_state: bool = False
    claim_mode: ClaimMode = ClaimMode.NO_CLAIM
    reading: Mapping[str, Subscription] = field(default_factory=dict)
    """The subscriptions of its Kafka sources, by uid."""
    spark_directory: str = SPARK_DIRECTORY
    """See `JobDeclaration`."""
    declared: JobDeclaration | None = None
    """To settle a lineage that the restore supersedes."""
    plan: JobPlan | None = None
    """To see whether it takes the rows that wait in a checkpoint."""


def new_job(
    spark: SparkSession,
    job: JobPlan,
    directory: str,
    given: Container[str],
    how: RestoreOptions,
) -> NewJob:
    """Describe a declared job for a restore. `directory`: its URI; `given`: the user's settings."""
    declared = job.declared
    settings = backend_settings(spark, declared.checkpoint, given)
    return NewJob(
        declared.name,
        directory,
        Program(job.stream, declared.output_mode, job.uids),
        {uid: type(sink.sink).__name__ for uid, sink in declared.sinks.items()},
        StateBackend(backend_of(settings.get(PROVIDER) or str(session_setting(spark, PROVIDER)))),
        how.parallelism,
        how.allow_non_restored_state,
        ClaimMode(how.claim_mode),
        find_subscriptions(job),
        declared.spark_directory,
        declared,
        job,
    )


def new_side(job: NewJob, partitions: int) -> Side:
    """Describe the new job for the plan."""
    return Side(job.name, job.backend.value, partitions, directory=job.directory)
