"""Collects the facts about a declared job, from its declaration, Spark's plan, its storage and the
other jobs there. `guarantees/` derives `explain`'s report from them."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.config import CheckpointMode
from seamark.api.declarations import DeclaredSink, DeclaredSource, JobDeclaration
from seamark.api.ephemeral_storage import EphemeralStorage
from seamark.contracts.places import kafka_topic
from seamark.contracts.sink import FilesSink
from seamark.files import in_threads
from seamark.files.location import holds, local_of
from seamark.guarantees.end_to_end import GuaranteeReport, analyse
from seamark.guarantees.facts import JobFacts, OperatorPart, OtherJob, SinkPart, SourcePart
from seamark.jobs.checkpoint_history import READ_AT_ONCE, current_directory, jobs_in
from seamark.jobs.listing import newest_execution
from seamark.model.errors import SeamarkError
from seamark.model.findings import FindingCode, heaviest_first
from seamark.model.guarantee import SinkWay
from seamark.model.job_graph import JobGraph
from seamark.run.inspection import scope_findings
from seamark.run.kafka_topics import kafka_options, subscription
from seamark.spark.file_sources import FilesRead, files_read
from seamark.spark.plan_functions import epoch_time_functions, python_functions, varying_functions
from seamark.spark.planned_query import LEAVES_ONCE
from seamark.spark.plans import selected
from seamark.spark.session import is_local
from seamark.spark.source_options import unknown_options

log = logging.getLogger(__name__)

_IN_MEMORY = ("tmpfs", "ramfs")


def job_report(declared: JobDeclaration, graph: JobGraph, spark: SparkSession) -> GuaranteeReport:
    """Return the job's guarantees, and the findings on its declaration. Spark analyses the sinks'
    plans for it; no server is asked."""
    report = analyse(job_facts(declared, graph, spark))
    findings = heaviest_first((*report.findings, *scope_findings(declared)))
    return replace(report, findings=findings)


def job_facts(declared: JobDeclaration, graph: JobGraph, spark: SparkSession) -> JobFacts:
    """Return the facts. Reads the job's storage; asks no other server."""
    checkpoint = declared.checkpoint
    durable = not isinstance(checkpoint.storage, EphemeralStorage)
    storage = str(checkpoint.storage) if durable else ""
    own = f"{storage}/{declared.directory}" if durable else ""
    read = {uid: files_read(source.dataframe) for uid, source in declared.sources.items()}
    return JobFacts(
        [_source_part(source, read[source.uid]) for source in declared.sources.values()],
        [
            OperatorPart(
                part.id,
                f"stateful operator ({part.name})",
                named=part.has_uid,
                repeats=part.name not in LEAVES_ONCE,
            )
            for part in graph.vertices
            if part.kind == "operator"
        ],
        [_sink_part(sink, graph, read, own) for sink in declared.sinks.values()],
        CheckpointMode(checkpoint.mode).value,
        durable=durable,
        sharing=graph.sharing,
        storage=storage,
        ephemeral=_ephemeral(storage) if durable else "",
        on_cluster=not is_local(spark.sparkContext.master),
        num_retained=checkpoint.num_retained,
        max_concurrent_checkpoints=checkpoint.max_concurrent_checkpoints,
        others=other_jobs(storage, declared.directory) if durable else (),
        output_mode=declared.output_mode,
    )


def _source_part(source: DeclaredSource, read: Sequence[FilesRead]) -> SourcePart:
    options = kafka_options(source.dataframe)
    unknown = tuple(unknown_options(source.dataframe))
    part = SourcePart(source.uid, source.description, source.replayable, unknown_options=unknown)
    if options is None:
        places = tuple(files.place for files in read)
        skips = tuple(dict.fromkeys(option for files in read for option in files.skips))
        return replace(part, places=places, skips=skips)
    servers = options.get("kafka.bootstrap.servers", "")
    reading = subscription(options)
    return replace(
        part,
        places=tuple(kafka_topic(servers, topic) for topic in reading.topics),
        isolation=options.get("kafka.isolation.level", "read_uncommitted"),
        fails_on_data_loss=reading.fails_on_data_loss,
    )


def _sink_part(
    sink: DeclaredSink, graph: JobGraph, read: Mapping[str, Sequence[FilesRead]], own: str
) -> SinkPart:
    # `own`: the job's directory in the checkpoint storage; "" without a checkpoint
    modes = tuple(sink.sink.output_modes)
    if sink.dead_letters_of and "append" in modes:
        modes += ("update",)  # a letter each time that the row changes, and is refused
    file = sink.sink.example_file if isinstance(sink.sink, FilesSink) else ""
    part = SinkPart(
        sink.uid,
        sink.description,
        sink.sink.way,
        places=tuple(sink.sink.places),
        upstream=upstream(graph, sink.uid),
        read_by=tuple(uid for uid, those in read.items() if any(r.reads(file) for r in those)),
        in_checkpoint=bool(own) and holds(getattr(sink.sink, "path", None), own),
        replaces=bool(getattr(sink.sink, "keys", ())),
        output_modes=modes,
    )
    if sink.dataframe is None:
        return part
    rows, at = selected(sink), sink.declared_at
    part = replace(part, epoch_time=epoch_time_functions(rows))
    if part.way is not SinkWay.IDEMPOTENT:  # its rows are written anew, whatever they are
        return part
    varying = varying_functions(rows, at)
    return replace(part, varying=varying, python=python_functions(rows, varying, at))


def upstream(graph: JobGraph, uid: str) -> tuple[str, ...] | None:
    """Return the parts feeding a sink, in the order of the data; None if the graph lacks it."""
    inputs = {vertex.id: vertex.inputs for vertex in graph.vertices}
    if uid not in inputs:
        return None
    wanted = {uid}
    for vertex in reversed(graph.vertices):  # each stands after those that feed it
        if vertex.id in wanted:
            wanted |= set(vertex.inputs)
    return tuple(vertex.id for vertex in graph.vertices if vertex.id in wanted - {uid})


def other_jobs(storage: str, directory: str) -> list[OtherJob]:
    """Return the storage's jobs in other directories without a recorded end, as far as they can be
    read."""

    def unended(other: str) -> OtherJob | None:
        try:
            execution = newest_execution(storage, current_directory(storage, other))
            if execution is None or execution.end is not None:
                return None
            return _other_job(other, execution.start.pages.get("guarantees", {}))
        except (SeamarkError, OSError, TypeError, KeyError, AttributeError) as error:
            log.info("job %s of %s is not looked at: %s", other, storage, error)
            return None

    try:
        others = [other for other in jobs_in(storage) if other != directory]
    except (SeamarkError, OSError) as error:
        log.info("the other jobs of %s are not looked at: %s", storage, error)
        return []
    return [job for job in in_threads(unended, others, READ_AT_ONCE) if job is not None]


def _other_job(name: str, page: Mapping[str, Any]) -> OtherJob:
    places = {(part["kind"], part["uid"]): part.get("places", ()) for part in page.get("parts", ())}
    careless = {
        finding["subject"]
        for finding in page.get("findings", ())
        if finding["code"] == FindingCode.SC002.name
    }
    return OtherJob(
        name,
        frozenset(p for (kind, _), of_part in places.items() if kind == "sink" for p in of_part),
        frozenset(
            place
            for (kind, uid), of_part in places.items()
            if kind == "source" and f"source `{uid}`" in careless
            for place in of_part
        ),
    )


def _ephemeral(storage: str) -> str:
    """Return why a storage may vanish by itself; "" if nothing is known."""
    path = local_of(storage)
    if path is None:
        return ""
    temporary = Path(tempfile.gettempdir()).resolve()
    if Path(path).resolve().is_relative_to(temporary):
        return f"{storage} is below {temporary}, which systems empty"
    if (kind := _file_system(path)) in _IN_MEMORY:
        return f"{storage} is on a {kind}, in the machine's memory"
    return ""


def _file_system(path: str) -> str:
    """Return the kind of file system of a local path; "" where the system does not tell."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    mounts = [(at, kind) for _, at, kind, *_ in map(str.split, lines)]
    below = [(at, kind) for at, kind in mounts if Path(path).is_relative_to(at)]
    return max(below, key=lambda mount: len(mount[0]), default=("", ""))[1]
