"""Looks at a declared job's sinks and real systems for findings, and changes nothing there.

`scope_findings` needs no server; `server_findings` is ``explain --preflight``. When the job starts,
the sinks' own preflights apply the same rules.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pyspark.sql import SparkSession

from seamark.api.declarations import JobDeclaration
from seamark.checkpoint.checkpointed_job import transaction_scope
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.sink import InspectedSink, SinkContext
from seamark.contracts.source import InspectedSource
from seamark.files.deadline import CallHangsError, call_within
from seamark.model.errors import ConfigurationError, MissingDependencyError, SeamarkError, UserError
from seamark.model.findings import Finding, FindingCode
from seamark.model.job_graph import JobGraph
from seamark.spark.hadoop_files import hadoop_settings, open_files
from seamark.spark.session import planned_tasks

log = logging.getLogger(__name__)

LOOK_S = 60.0
"""The longest wait for one system."""
USUAL_DOWNTIME_S = 86_400.0
"""The downtime that a source's retention must cover, where the job states none."""


def scope_findings(declared: JobDeclaration) -> Iterator[Finding]:
    """Yield the reasons of sinks to refuse the job's settings (`check_transaction_scope`)."""
    for uid, sink in declared.sinks.items():
        context = SinkContext(
            "", declared.name, uid, 0, schema=sink.schema, **transaction_scope(declared.checkpoint)
        )
        try:
            sink.sink.check_transaction_scope(context)
        except ConfigurationError as error:
            yield error.finding or _finding_in(FindingCode.SK004, f"sink `{uid}`", error)


def server_findings(
    declared: JobDeclaration, graph: JobGraph, spark: SparkSession, directory: str
) -> Iterator[Finding]:
    """Yield what is wrong at the real systems of the sinks and sources. `directory` is the job's: a
    job that has run is known to its systems by its id."""
    job_id = _job_id(spark, directory)
    tasks = planned_tasks(spark, stateful=any(part.kind == "operator" for part in graph.vertices))
    for uid, declaration in declared.sinks.items():
        sink, subject = declaration.sink, f"sink `{uid}`"
        context = SinkContext(
            job_id, declared.name, uid, 0, schema=declaration.schema,
            hadoop=hadoop_settings(spark), tasks=tasks, **transaction_scope(declared.checkpoint),
        )  # fmt: skip
        if isinstance(sink, InspectedSink):
            yield from _looked(subject, partial(sink.inspect, context))
        else:
            yield Finding(
                FindingCode.SK005,
                subject,
                f"{sink.describe()} cannot be asked before the job runs",
                "see its preflight at the start of the job, or give its class the method inspect",
            )
    yield from source_findings(declared, spark)


def source_findings(declared: JobDeclaration, spark: SparkSession) -> Iterator[Finding]:
    """Yield what is wrong at the real systems of the sources."""
    downtime_s = declared.checkpoint.tolerated_downtime_s or USUAL_DOWNTIME_S
    for uid, declaration in declared.sources.items():
        if isinstance(source := declaration.source, InspectedSource):
            look = partial(source.inspect_source, uid, spark._jvm, downtime_s)
            yield from _looked(f"source `{uid}`", look)


def _looked(subject: str, look: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    try:
        return call_within(LOOK_S, look)
    except MissingDependencyError:
        raise
    except UserError as error:
        return [error.finding or _finding_in(FindingCode.SV002, subject, error)]
    except CallHangsError:
        fault = f"its system has not answered within {LOOK_S:g} s"
        return [Finding(FindingCode.SV001, subject, fault, "see whether it is well")]


def _finding_in(code: FindingCode, subject: str, error: UserError) -> Finding:
    """Return the finding in a message: the part after the last semicolon is the remedy."""
    fault, _, remedy = str(error).removeprefix(f"{subject}: ").rpartition("; ")
    return Finding(code, subject, fault or remedy, remedy if fault else "see the message")


def _job_id(spark: SparkSession, directory: str) -> str:
    try:
        files = open_files(spark, directory, make=False)
        return CheckpointStore(files, files).read_identity().job_id
    except (SeamarkError, OSError) as error:  # a job that has never run
        log.info("job id of %s: %s", directory, error)
        return ""
