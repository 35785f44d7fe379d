"""`StreamJob`: one query of `write_stream` as a job, in its Spark checkpoint location.

Invariant: Spark's own files lie in the location itself, as Spark lays them, and Seamark's beside
them. So Seamark goes on from a plain query's location, and a plain query from Seamark's.
"""

import sys
import threading
from collections.abc import Mapping
from concurrent.futures import wait
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQueryManager
from pyspark.util import inheritable_thread_target

from seamark.api.config import CheckpointConfig
from seamark.api.declarations import DeclaredSource
from seamark.api.rest_config import RestConfig
from seamark.api.settings import PROGRAM, Setting
from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.job import Job
from seamark.run.declaring import require_options
from seamark.run.kafka_topics import kafka_options, subscription
from seamark.run.stop_signals import program_has_ended
from seamark.savepoints.restore.options import RestoreOptions
from seamark.spark.operator_uids import name_in_spark
from seamark.spark.planned_query import sources_of
from seamark.spark.plans import frame_of, name_of
from seamark.streaming.formats import Place
from seamark.streaming.query import StreamQuery
from seamark.streaming.tables import Table
from seamark.streaming.trial_sinks import MemoryTable

if TYPE_CHECKING:
    from seamark.job_run import JobRun

_PACKAGE = str(Path(__file__).parent)
SINK = "sink"
"""The uid of a query's sink."""
LOOK_S = 0.5
"""How often a query looks whether its program has ended."""
_REPLAYABLE = (
    "kafka", "rate", "rate-micro-batch", "seamark-datagen", "delta", "iceberg", "hudi", "kinesis",
    "aws-kinesis", "eventhubs", "pulsar", "parquet", "json", "csv", "text", "orc", "avro", "xml",
    "binaryfile",
)  # fmt: skip
"""Formats that give the rows between two offsets again. Of any other one it is not known."""


@dataclass(frozen=True)
class Trigger:
    """When a query processes rows: every `interval_s` seconds (None: as nothing was given), or only
    what is there (`bounded`), in as many epochs as it takes or in one (`once`)."""

    interval_s: float | None = None
    bounded: bool = False
    once: bool = False


class StreamJob(Job):
    """A job of one query. Made by `DataStreamWriter.start`; `explain` collects it instead."""

    explained: list[Job] | None = None
    """Set by ``seamark explain``: the queries that the program would have started."""

    table: Table | MemoryTable | None = None
    """Made when nothing is left that refuses the query."""

    def __init__(
        self,
        place: Place,
        trigger: Trigger,
        output_mode: str,
        checkpoint: CheckpointConfig,
        rest: RestConfig | None,
        *,
        in_turn: bool,
    ) -> None:
        """`in_turn`: no row of an epoch is processed before the one before is committed."""
        given = {name: getattr(checkpoint, name) for name in checkpoint.given}
        given.setdefault("timeout", timedelta.max)  # as in Spark: a first epoch may have it all
        given.setdefault("interval", 0)
        if in_turn:
            given.setdefault("min_pause", "1ms")
        given["storage"] = place.storage
        if trigger.interval_s is not None:
            given["interval"] = timedelta(seconds=trigger.interval_s)
        super().__init__(place.name, CheckpointConfig(**given), output_mode, rest=rest)
        declared = self.declaration
        # Else a seamark.toml for the command line would send the query to another checkpoint.
        declared.checkpoint = replace(declared.checkpoint, storage=place.storage)
        self._settings["checkpoint.storage"] = Setting(place.storage, PROGRAM)
        declared.directory, declared.spark_directory = place.directory, ""
        declared.query_name = place.query_name
        self._when = trigger

    def declare(
        self, dataframe: DataFrame, sink: TwoPhaseCommitSink[Any], bad_rows: Mapping[str, Any]
    ) -> None:
        """Add the query's sink, and the sources of its DataFrame. `bad_rows` are the arguments of
        `Job.sink` about them."""
        self.sink(dataframe, sink, SINK, **bad_rows)
        sinks = self.declaration.sinks
        sinks[SINK] = replace(sinks[SINK], declared_at=_place_in_program())
        for source in _sources(dataframe, bounded=self._when.bounded):
            require_options(source.dataframe, f"write_stream: {source.description}")
            self._add(source)

    def start(self) -> StreamQuery:
        """Run the job on a thread of its own; return when its query has started. Raises what stops
        the start."""
        if StreamJob.explained is not None:
            StreamJob.explained.append(self)
            return self._not_started()
        run = self._prepare(None, RestoreOptions(self.declaration.name), "micro-batch")
        if run is None:
            return self._not_started()
        try:
            if self.table is not None:
                self.table.make(self._session())
        except BaseException:
            run.close()
            raise
        supervisor = run.supervisor
        query = StreamQuery(self, supervisor)
        # With the caller's local properties, e.g. its scheduler pool, as if started by Spark. No
        # daemon: the interpreter waits for it, so decided epochs are committed when a program ends.
        target = inheritable_thread_target(self._session())(lambda: _run(run, query))
        threading.Thread(target=target, name="seamark-query").start()
        threading.Thread(target=_stop_at_end, args=[run], name="seamark-end", daemon=True).start()
        try:
            supervisor.first_start.wait()
        except BaseException:  # Ctrl-C
            supervisor.stop()
            raise
        if supervisor.query is None and (error := query._error()) is not None:
            raise error
        return query

    def _not_started(self) -> StreamQuery:
        StreamingQueryManager.awaitAnyTermination = _await_any_termination
        return StreamQuery(self, None)

    def _trigger(self, in_real_time: bool) -> Mapping[str, Any]:
        return {"once": True} if self._when.once else super()._trigger(in_real_time)


_await_spark = StreamingQueryManager.awaitAnyTermination


def _await_any_termination(manager: Any, timeout: int | None = None) -> bool | None:
    """Return at once where no query runs because `seamark` asks the program about its queries:
    there Spark waits for the first one to end, forever."""
    return _await_spark(manager, timeout) if timeout or manager.active else None


def _place_in_program() -> str:
    """Return file and line of the nearest caller outside of this package."""
    frame = sys._getframe()
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _run(run: "JobRun", query: StreamQuery) -> None:
    try:
        run.run_to_end()
    except BaseException as error:
        run.supervisor.never_ran(error)
    finally:
        query.ended()


def _stop_at_end(run: "JobRun") -> None:
    """Stop the query when the program has ended without a stop; it may be waiting for a restart."""
    while wait([run.supervisor.outcome], LOOK_S).not_done:
        if program_has_ended():
            run.supervisor.stop()
            return


def _sources(frame: DataFrame, *, bounded: bool) -> list[DeclaredSource]:
    """Return the sources by Spark's numbers, ``source-0`` first. `bounded`: the query ends with
    what is there."""
    sources = []
    for number, leaf in enumerate(sources_of(frame)):
        own = frame_of(leaf, frame.sparkSession)
        format_ = _format(leaf)
        options = kafka_options(own)
        what = f"Spark stream from {format_}"
        if options is not None:
            reading = subscription(options)
            what = f"Kafka topics {reading or '?'}"
            if options.get("kafka.isolation.level", "read_uncommitted") != "read_committed":
                what += " (read_uncommitted)"
        replayable = format_.lower() in _REPLAYABLE
        uid = name_in_spark(leaf) or f"source-{number}"
        sources.append(DeclaredSource(uid, what, replayable, bounded, own))
    return sources


def _format(leaf: Any) -> str:
    """Return the name of a source's format, as given to ``format(…)``."""
    if name_of(leaf) == "StreamingRelationV2":
        return str(leaf.sourceName())
    if name_of(leaf) == "StreamingRelation":
        return str(leaf.dataSource().className())
    return name_of(leaf)
