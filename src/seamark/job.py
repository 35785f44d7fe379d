"""`Job`, the front of Seamark: what a user declares, over Spark's own DataFrames, and runs.

The declaration itself is `api/declarations.py`; the run is `runtime/query.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from seamark.api.config import CheckpointConfig, CheckpointMode, storage_uri
from seamark.api.declarations import (
    ON_BAD_ROW,
    DeclaredOperator,
    DeclaredSink,
    DeclaredSource,
    JobDeclaration,
)
from seamark.api.ephemeral_storage import EphemeralStorage
from seamark.api.rest_config import RestConfig
from seamark.api.settings import (
    DEFAULT,
    EXPECTING_VARIABLE,
    PLAN_VARIABLE,
    RESTORE_VARIABLE,
    Settings,
    resolve,
)
from seamark.checkpoint.ephemeral import storage_directory
from seamark.checkpoint.flow_figures import FlowFigures
from seamark.contracts.dead_letters import DEAD_LETTER_SCHEMA, SelectiveSink
from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.contracts.source import Source
from seamark.file_systems.location import Location
from seamark.guarantees.end_to_end import (
    GuaranteeReport,
    OperatorPart,
    SinkPart,
    SourcePart,
    analyse,
)
from seamark.model.checkpointing_statistics import NONE_YET, CheckpointingStatistics
from seamark.model.errors import ConfigurationError, UserError
from seamark.model.job_graph import JobGraph
from seamark.model.redaction import Redactor, secrets_in
from seamark.model.schema import Column
from seamark.rest.live_job import LiveJob
from seamark.rest.server import RestServer
from seamark.runtime.checkpoint_history import jobs_in, read_history
from seamark.runtime.dead_letters import check_takes_dead_letters
from seamark.runtime.determinism import epoch_time_columns, varying_columns
from seamark.runtime.jvm_shutdown import stop_before_jvm
from seamark.runtime.log_redaction import RedactedLog
from seamark.runtime.plan_graph import job_graph
from seamark.runtime.query import StreamRun
from seamark.runtime.session import (
    query_settings,
    require_format,
    spark_schema,
    spark_session,
)
from seamark.runtime.state_backend import backend_settings
from seamark.runtime.stop_signals import stop_on_signals
from seamark.runtime.supervision import Supervisor
from seamark.savepoints.claims import ClaimDisposal
from seamark.savepoints.edit.bootstrap import new_savepoint
from seamark.savepoints.record import SavepointType
from seamark.savepoints.restore.options import NewJob, RestoreOptions, new_job
from seamark.savepoints.restore.plan import RestorePlan
from seamark.savepoints.restore.planner import plan_restore, write_plan
from seamark.savepoints.restore.write import restore_job
from seamark.savepoints.savepoint import Savepoint
from seamark.savepoints.state.layout import PARTITIONS
from seamark.savepoints.take.running import take as take_savepoint

SAVEPOINT_TYPES = tuple(type_.value for type_ in SavepointType)


class Job:
    """One streaming job: one Spark query, one checkpoint, one or several sinks.

    name: letters, digits, ``.``, ``_``, ``-``; the job's directory in the storage has this name. A
        job that is run again under the same name and storage goes on after its last decided epoch.
    output_mode: Spark's, for all sinks: ``"append"``, ``"update"`` or ``"complete"``.
    rest: where the driver can be asked while it runs; by default on this machine, on a free port.

    Raises ConfigurationError, here and in every method, as soon as a value is wrong.
    """

    def __init__(
        self,
        name: str,
        checkpoint: CheckpointConfig,
        output_mode: str = "append",
        *,
        rest: RestConfig | None = None,
    ) -> None:
        checkpoint, self._settings, self._rest = resolve(name, checkpoint, rest)
        self.declaration = JobDeclaration(name, checkpoint, output_mode)
        self._parallelism: int | None = None
        self._secrets: set[str] = set()
        self._run: StreamRun | None = None
        self._supervisor: Supervisor | None = None
        self._flow = FlowFigures()

    # --- declare

    def source(
        self, source: Source | DataFrame, uid: str, *, replayable: bool | None = None
    ) -> DataFrame:
        """Add a source and return its streaming DataFrame.

        `source` is one of Seamark's, or any streaming DataFrame of Spark's; for the latter say
        whether it is `replayable`: whether Spark can read the same rows again after a failure.
        """
        declared = self.declaration
        uid = declared.claim_uid(uid, "a source")
        if isinstance(source, DataFrame):
            if not source.isStreaming:
                raise ConfigurationError(
                    f"source {uid!r}: this DataFrame is not streaming; read it with "
                    "spark.readStream, or join it to a stream without declaring it as a source"
                )
            if replayable is None:
                raise ConfigurationError(
                    f"source {uid!r}: say whether the stream can be read again after a failure: "
                    "replayable=True or replayable=False"
                )
            declared.sources[uid] = DeclaredSource(
                uid, "Spark stream", replayable, bounded=False, dataframe=source
            )
            return source
        if not hasattr(source, "reader"):
            raise ConfigurationError(
                f"source {uid!r} is {type(source).__name__}; give a sm.…Source or a streaming "
                "DataFrame"
            )
        if replayable is not None:
            raise ConfigurationError(
                f"source {uid!r}: replayable= is for plain DataFrames; "
                f"{type(source).__name__} knows it itself"
            )
        spark = spark_session(declared.name)
        reader = source.reader()
        self._secrets |= secrets_in([source, dict(reader.options)])
        require_format(spark, reader.format)
        stream = spark.readStream.format(reader.format).options(**reader.options)
        if reader.schema is not None:
            stream = stream.schema(reader.schema)
        frame = stream.load()
        declared.sources[uid] = DeclaredSource(
            uid, source.describe(), source.replayable, source.bounded, frame, source
        )
        return frame

    def uid(self, dataframe: DataFrame, uid: str) -> DataFrame:
        """Name a stateful operator (the last one in `dataframe`'s plan), so that its state can be
        found again in another program. Returns the same DataFrame."""
        uid = self.declaration.claim_uid(uid, "an operator")
        if not isinstance(dataframe, DataFrame) or not dataframe.isStreaming:
            raise ConfigurationError(f"operator {uid!r}: give the streaming DataFrame it makes")
        self.declaration.operators[uid] = DeclaredOperator(uid, dataframe)
        return dataframe

    def sink(
        self,
        dataframe: DataFrame,
        sink: TwoPhaseCommitSink[Any],
        uid: str,
        *,
        on_bad_row: Literal["fail", "dead_letter"] = "fail",
        dead_letters: TwoPhaseCommitSink[Any] | None = None,
    ) -> None:
        """Add a sink for `dataframe`. Sinks whose streams come from one stream share what they have
        in common (docs/shared-streams.md); `explain` says what. The columns that a sink takes are
        in its own documentation.

        on_bad_row: what a row does that the sink's system refuses (type, constraint, size):
            ``"fail"`` the epoch, or go to the sink `dead_letters` as a ``"dead_letter"``, in the
            same epoch, with the reason. That sink has the uid ``<uid>.dead-letters``. Which rows
            can be refused so, and what a dead letter looks like: docs/dead-letters.md.
        """
        declared = self.declaration
        uid = declared.claim_uid(uid, "a sink")
        made, *letters = _declare_sinks(dataframe, sink, uid, on_bad_row, dead_letters)
        for one in letters:
            declared.claim_uid(one.uid, f"the dead letters of sink {uid!r}")
        declared.sinks.update({one.uid: one for one in (made, *letters)})

    # --- look

    def config(self) -> Settings:
        """Return each setting's value and where it came from: a default, the program, the settings
        file or the command line. ``print(job.config())`` shows them as a table."""
        return self._settings

    def checkpoints(self) -> CheckpointingStatistics:
        """Return what is known of this job's checkpoints: counts, the latest of each kind, a
        summary, and the last 1,000 with their operators and subtasks. Of a job that runs in this
        process, also those in progress; of any other, what its storage has."""
        if self._run is not None:
            return self._run.coordinator.statistics.read()
        declared = self.declaration
        storage, name = storage_directory(declared.checkpoint.storage), declared.name
        return read_history(storage, name) if name in jobs_in(storage) else NONE_YET

    def explain(self) -> None:
        """Print each source, operator and sink with its guarantee, the weakest of them and why.
        Touches nothing outside."""
        print(self.report())  # noqa: T201 - as DataFrame.explain does

    def report(self) -> GuaranteeReport:
        """Return what `explain` prints. Spark analyses the program's plans for it: a second."""
        return self._report(job_graph(self.declaration) if self.declaration.sinks else JobGraph())

    def _report(self, graph: JobGraph) -> GuaranteeReport:
        declared = self.declaration
        return analyse(
            [SourcePart(s.uid, s.description, s.replayable) for s in declared.sources.values()],
            [
                OperatorPart(part.id, f"stateful operator ({part.name})", named=part.has_uid)
                for part in graph.vertices
                if part.kind == "operator"
            ],
            [_sink_part(sink) for sink in declared.sinks.values()],
            CheckpointMode(declared.checkpoint.mode).value,
            durable=not isinstance(declared.checkpoint.storage, EphemeralStorage),
            sharing=graph.sharing,
        )

    # --- run

    def run(
        self,
        restore: str | None = None,
        *,
        allow_non_restored_state: bool = False,
        parallelism: int | None = None,
        claim_mode: Literal["no-claim", "claim"] = "no-claim",
    ) -> None:
        """Run until the sources end, `stop` or `cancel` is called, or SIGINT or SIGTERM comes (as
        `stop`); then settle everything.

        Goes on after the last decided epoch of an earlier run. `restore` is the path of a savepoint
        to begin with, or of a retained checkpoint of another job: ``<storage>/<job>``, its newest
        complete one, or ``<storage>/<job>/epochs/<n>``; ``seamark run -s`` overrides it. This job
        must be new then, or have been restored from that very path: in that case it goes on by
        itself. From a savepoint, sources and operators take what has their uid, whatever their
        order, onto this job's state backend; what no uid here takes stops the restore, unless
        `allow_non_restored_state` drops it. `parallelism` is the number of state partitions: a new
        job's, and one's that begins with a savepoint; None for as many as the savepoint has. With
        `claim_mode` ``"claim"`` the savepoint is this job's from now on, which deletes it when its
        own first checkpoint is complete. ``seamark run -n -p N --claim-mode …`` overrides all
        three; `restore_plan` says beforehand what a restore will do.

        Returns when all that was decided is committed and no transaction of this driver is open. A
        failed checkpoint that `tolerable_failed_checkpoints` tolerates, and a failure after which
        the restart strategy restarts, are warnings in the log. Raises what else ends the job:
        PreflightError, DamagedCheckpointError or RestoreError before anything is written;
        TooManyFailedCheckpointsError, LostTransactionError, CommitFailedError, FencedError, or
        Spark's StreamingQueryException.
        """
        declared = self.declaration
        if not declared.sinks:
            raise ConfigurationError(
                f"Job {declared.name!r} has no sink; add one with job.sink(dataframe, sink, uid=…)"
            )
        if not declared.sources:
            raise ConfigurationError(
                f"Job {declared.name!r} has no source; add it with job.source(source, uid=…)"
            )
        spark = self._session()
        how = RestoreOptions(declared.name, allow_non_restored_state, parallelism, claim_mode)
        how = how.overridden(os.environ)
        os.environ.pop(EXPECTING_VARIABLE, None)
        path = os.environ.get(RESTORE_VARIABLE) or restore
        if file := os.environ.pop(PLAN_VARIABLE, None):
            write_plan(spark, path, self._new_job(how), Path(file))
            raise SystemExit(0)  # nothing of the program is to run after the plan
        if path:
            restore_job(spark, path, self._new_job(how))
        self._parallelism = how.parallelism
        self._flow = FlowFigures(lambda: spark.sparkContext.defaultParallelism)
        graph = job_graph(declared)
        guarantees = self._report(graph)
        levels = {part.uid: part.guarantee for part in guarantees.parts}
        view = self._view(spark, graph.with_guarantees(levels), guarantees)
        rest = RestServer(view, self._rest)
        supervisor = self._supervisor = Supervisor(
            spark,
            declared.name,
            lambda: self._new_run(spark),
            declared.checkpoint,
            bounded=declared.bounded,
            directory=self._directory,
            rest_url=rest.start(),
            graph=view.graph,
            redactor=view.redactor,
            pages=view.kept_pages,
            on_begun=rest.allow_changes,
        )

        def stop() -> None:
            supervisor.stop(program_ends=True)

        try:
            with stop_on_signals(stop), stop_before_jvm(spark, stop):
                supervisor.run()
        finally:
            rest.stop()

    def restore_plan(
        self,
        path: str,
        *,
        allow_non_restored_state: bool = False,
        parallelism: int | None = None,
        claim_mode: Literal["no-claim", "claim"] = "no-claim",
    ) -> RestorePlan:
        """Return what ``run(restore=path, …)`` would do with these arguments: what becomes of each
        operator, source and sink, and what would stop it. Touches nothing.

        May be called while the job runs; its directory, which such a restore could not be put into,
        is then not looked at. Takes a second or more: the savepoint's files are checked, and Spark
        plans the program's query. Raises RestoreError, SavepointError or CorruptRecordError if
        nothing can be read at `path`, ConfigurationError for a wrong value.
        """
        running = self._supervisor is not None and self._supervisor.end is None
        return plan_restore(
            spark_session(self.declaration.name),
            path,
            self._new_job(
                RestoreOptions(
                    self.declaration.name, allow_non_restored_state, parallelism, claim_mode
                )
            ),
            into_directory=not running,
        )

    def _session(self) -> SparkSession:
        """Return the session that the program's DataFrames are of."""
        frames = (s.dataframe for s in self.declaration.sinks.values() if not s.dead_letters_of)
        return spark_session(self.declaration.name, next(frames, None))

    def _new_job(self, how: RestoreOptions) -> NewJob:
        spark = self._session()
        return new_job(spark, self.declaration, self._directory, self._given(), how)

    def new_savepoint(
        self,
        to: str | Path,
        state: Mapping[str, DataFrame | Mapping[str, DataFrame]],
        *,
        offsets: Mapping[str, Any] | None = None,
        parallelism: int | None = None,
    ) -> Savepoint:
        """Write a savepoint for this job, which need not have run, into the new directory `to`:
        with state out of DataFrames, to begin the job from history (Flink: SavepointWriter).
        ``run(restore=to)`` begins with it. Touches neither sources nor sinks.

        `state`: by an operator's uid a DataFrame as `Savepoint.read_state` gives it, columns `key`
        and `value`; of a `transformWithState` a dict of them by state variable, of a join by side
        (``left``, ``right``). Operators that are not named begin empty. `offsets`: by a source's
        uid where it goes on, of Kafka ``{topic: {partition: offset}}``; sources that are not named
        begin where the program says.
        `parallelism`: the number of state partitions, of which a restore may choose another.

        Raises SavepointError if a uid is not the program's, or a DataFrame does not have the
        columns of its operator's state (the message has them), or contradicts itself; RestoreError
        if Spark cannot plan the program.
        """
        declared = self.declaration
        job = self._new_job(RestoreOptions(declared.name, parallelism=parallelism))
        target = storage_uri(to, "new_savepoint: to")
        new_savepoint(self._session(), job, state, offsets or {}, target)
        return Savepoint(target)

    def savepoint(
        self,
        directory: str | None = None,
        *,
        type: Literal["canonical", "native"] = "canonical",  # noqa: A002 - as in Flink
    ) -> Future[str]:
        """Take a savepoint: a checkpoint now, written into a new directory below `directory` (a
        path or URI; None: `CheckpointConfig` savepoint_dir), from which a changed program can go
        on. With ``"canonical"`` also one with another number of state partitions or another state
        backend; ``"native"`` copies the state's files instead of its rows, which is quicker.

        Returns at once; the future's result is the savepoint's path, once it is whole. The stream
        goes on meanwhile; it waits only when it is about to be so far ahead that Spark would delete
        the savepoint's epoch (`num_retained`). The future fails with what the epoch or the export
        fails with, and the job goes on. Called from another thread than `run`. Raises UserError
        and ConfigurationError as `trigger_checkpoint` does, and where nothing says `directory`.
        """
        return self._take(directory, type)

    def stop_with_savepoint(
        self,
        directory: str | None = None,
        *,
        type: Literal["canonical", "native"] = "canonical",  # noqa: A002 - as in Flink
        drain: bool = False,
    ) -> Future[str]:
        """Take a savepoint and end the job with it: no epoch runs after the savepoint's, and `run`
        returns when it is whole. If it fails, the job goes on. As `savepoint` otherwise.

        drain: end the job for good: the sources give nothing more, and the watermark goes to the
            end of time, so that every open window closes; then the savepoint is taken. A job that
            goes on from it opens those windows anew (docs/savepoints.md). If it fails after that,
            the job ends all the same.
        """
        return self._take(directory, type, then=self.stop, drain=drain)

    def _take(
        self,
        directory: str | None,
        type_: str,
        then: Callable[[], None] | None = None,
        *,
        drain: bool = False,
    ) -> Future[str]:
        declared = self.declaration
        directory = directory or declared.checkpoint.savepoint_dir
        if not directory:
            raise ConfigurationError(
                f"Job {declared.name!r}: nothing says where savepoints go; give a directory, or "
                "CheckpointConfig(savepoint_dir=…)"
            )
        if type_ not in SAVEPOINT_TYPES:
            raise ConfigurationError(
                f"Job {declared.name!r}: savepoint type is {type_!r}; give "
                + " or ".join(map(repr, SAVEPOINT_TYPES))
            )
        uri = storage_uri(directory, "savepoint: directory")
        run = self._running().running()
        spark = self._session()
        return take_savepoint(spark, run, uri, SavepointType(type_), then=then, drain=drain)

    def trigger_checkpoint(self) -> Future[int]:
        """Take a checkpoint now, without waiting for the interval (Flink: ``triggerCheckpoint``).

        Returns at once; the future's result is the id of a completed checkpoint, committed to every
        sink, that covers all rows that Spark could read at this call. That is an epoch which begins
        after the call, as soon as none is under way; those who ask meanwhile share it, and later
        epochs keep to the interval. If there are no new rows Spark makes no epoch: the result is
        the last checkpoint, since nothing has been read after it.

        The future fails with what the epoch, or the run, fails with. Called from another thread
        than `run`. Raises UserError if the job does not run in this program, is just starting,
        restarting or ending, or if this version of Spark does not let its trigger be woken.
        """
        return self._running().trigger_checkpoint()

    def stop(self) -> None:
        """Ask a running job to end: the epoch under way has ten seconds to be committed, everything
        is kept, and `run` returns in its thread. Returns at once; called from another thread.
        Raises UserError if the job does not run."""
        self._running().stop()

    def cancel(self) -> None:
        """Ask a running job to end at once: the epoch under way is aborted, and `run` returns in
        its thread when all is settled. With ``DELETE_ON_CANCELLATION`` the job's checkpoints are
        deleted then. Returns at once; called from another thread. Raises UserError if the job does
        not run."""
        self._running().cancel()

    def _view(self, spark: SparkSession, graph: JobGraph, guarantees: GuaranteeReport) -> LiveJob:
        """What the REST interface shows; it serves only while `run` has a supervisor."""

        def supervisor() -> Supervisor:
            assert self._supervisor is not None
            return self._supervisor

        return LiveJob(
            declaration=self.declaration,
            settings=self._settings,
            redactor=self._redactor(spark),
            guarantees=guarantees,
            graph=graph,
            flow=self._flow,
            checkpoints=self.checkpoints,
            savepoint=self.savepoint,
            stop_with_savepoint=self.stop_with_savepoint,
            restore_plan=self.restore_plan,
            supervisor=supervisor,
        )

    def _redactor(self, spark: SparkSession) -> Redactor:
        declared = self.declaration
        names = (declared.name, *declared.sources, *declared.operators, *declared.sinks)
        storage = storage_directory(declared.checkpoint.storage)
        return _redactor(spark, declared.sinks.values(), self._secrets, names, storage)

    def _running(self) -> Supervisor:
        if self._supervisor is None or self._supervisor.end is not None:
            raise UserError(f"Job {self.declaration.name!r} is not running in this program")
        return self._supervisor

    @property
    def _directory(self) -> str:
        return f"{storage_directory(self.declaration.checkpoint.storage)}/{self.declaration.name}"

    def _new_run(self, spark: SparkSession) -> StreamRun:
        declared = self.declaration
        checkpoint = declared.checkpoint
        trigger: Mapping[str, Any] = (
            {"availableNow": True}
            if declared.bounded
            else {"processingTime": f"{round(checkpoint.interval_s * 1000)} milliseconds"}
        )
        self._run = StreamRun(
            spark,
            declared.name,
            list(declared.sinks.values()),
            records_uri=self._directory,
            spark_location=f"{self._directory}/spark",
            output_mode=declared.output_mode,
            trigger=trigger,
            checkpoint=checkpoint,
            spark_settings={
                **backend_settings(spark, checkpoint, self._given()),
                **query_settings(checkpoint, self._given()),
                **({PARTITIONS: str(self._parallelism)} if self._parallelism else {}),
            },
            sources={s.uid: s.dataframe for s in declared.sources.values()},
            operators={o.uid: o.dataframe for o in declared.operators.values()},
            flow=self._flow,
            commit_offsets={
                s.uid: commits for s in declared.sources.values() if (commits := s.commits_offsets)
            },
            on_committed=ClaimDisposal(spark),
            redactor=self._redactor(spark),
        )
        return self._run

    def _given(self) -> set[str]:
        """The settings that the program, the settings file or the command line gave."""
        return {
            key.removeprefix("checkpoint.")
            for key, setting in self._settings.items()
            if setting.origin != DEFAULT
        }


def write_stream(
    dataframe: DataFrame,
    sink: TwoPhaseCommitSink[Any],
    *,
    checkpoint_location: str,
    trigger: Mapping[str, Any] | None = None,
    output_mode: str = "append",
    query_name: str = "seamark",
    on_bad_row: Literal["fail", "dead_letter"] = "fail",
    dead_letters: TwoPhaseCommitSink[Any] | None = None,
) -> StreamingQuery:
    """Write a streaming DataFrame into `sink` exactly as ``df.writeStream`` would, and return
    Spark's own query; the sink's guarantee comes from Seamark's records, which lie in
    ``<checkpoint_location>/seamark``.

    `trigger` holds the keyword arguments of ``DataStreamWriter.trigger``, e.g.
    ``{"processingTime": "5 seconds"}`` or ``{"availableNow": True}``. An existing Spark checkpoint
    location is adopted: epochs go on after its last committed batch. After ``query.stop()``, or at
    the end of the program, what was decided is committed and the rest aborted. `on_bad_row` and
    `dead_letters`: as for `Job.sink`.
    """
    location = storage_uri(checkpoint_location, "write_stream: checkpoint_location")
    trigger = dict(trigger or {"processingTime": "0 seconds"})
    # What is no DataFrame is refused right after.
    spark = spark_session(query_name, dataframe if isinstance(dataframe, DataFrame) else None)
    sinks = _declare_sinks(dataframe, sink, query_name, on_bad_row, dead_letters)
    redactor = _redactor(spark, sinks, (), (query_name,), location)
    run = StreamRun(
        spark,
        query_name,
        sinks,
        records_uri=f"{location}/seamark",
        spark_location=location,
        output_mode=output_mode,
        trigger=trigger,
        checkpoint=CheckpointConfig(
            storage=location, interval=_interval_s(spark, trigger), timeout=timedelta.max
        ),
        redactor=redactor,
    )
    with RedactedLog(redactor):  # then the run has a thread of its own, which sees to it
        return run.start()


def _redactor(
    spark: SparkSession,
    sinks: Iterable[DeclaredSink],
    more_secrets: Iterable[str],
    names: Iterable[str],
    storage: str,
) -> Redactor:
    """Hides what sinks, Spark's settings and the environment hold of secrets, and more, but for
    what is a part of `names` or of the URI `storage`: an access key may be named as its bucket is,
    and paths must be whole."""
    at = Location.parse(storage, "storage")
    host = at.authority.rpartition("@")[2].partition(":")[0]
    settings = dict(spark.sparkContext.getConf().getAll())
    found = secrets_in([[declared.sink for declared in sinks], settings, dict(os.environ)])
    return Redactor(found.union(more_secrets), (*names, host, at.path))


def _interval_s(spark: SparkSession, trigger: Mapping[str, Any]) -> float:
    """Return the time between two epochs, as Spark reads its own kind of interval."""
    if "processingTime" not in trigger:
        return 0.0
    text = trigger["processingTime"]
    try:
        read = spark._jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(str(text))
        return float(read.intervalMs()) / 1000
    except (PySparkException, Py4JJavaError):
        raise ConfigurationError(
            f"write_stream: trigger processingTime is {text!r}, which Spark cannot read as an "
            'interval; give one such as "500 milliseconds" or "1 minute 30 seconds"'
        ) from None


def _sink_part(sink: DeclaredSink) -> SinkPart:
    varying: tuple[str, ...] = ()
    epoch_time: tuple[str, ...] = ()
    if sink.dataframe is not None:
        rows = sink.dataframe.selectExpr(*sink.select_expressions)
        varying, epoch_time = varying_columns(rows), epoch_time_columns(rows)
    return SinkPart(sink.uid, sink.description, sink.sink.way, varying, epoch_time)


def _declare_sinks(
    dataframe: Any, sink: Any, uid: str, on_bad_row: str, dead_letters: Any
) -> list[DeclaredSink]:
    """Return the sink and, if it has one, that of its dead letters."""
    if not isinstance(dataframe, DataFrame) or not dataframe.isStreaming:
        raise ConfigurationError(
            f"sink {uid!r}: give a streaming DataFrame, found {type(dataframe).__name__}"
        )
    _require_sink(sink, f"sink {uid!r}", dataframe.sparkSession)
    schema = tuple(Column(name, type_) for name, type_ in spark_schema(dataframe))
    made = DeclaredSink(uid, sink, dataframe, tuple(sink.select_expressions(schema)), schema)
    if on_bad_row not in ON_BAD_ROW:
        raise ConfigurationError(
            f"sink {uid!r}: on_bad_row is {on_bad_row!r}; give {' or '.join(map(repr, ON_BAD_ROW))}"
        )
    if (on_bad_row == "dead_letter") != (dead_letters is not None):
        raise ConfigurationError(
            f"sink {uid!r}: on_bad_row is {on_bad_row!r} and dead_letters is {dead_letters!r}; "
            'on_bad_row="dead_letter" needs the sink that takes the refused rows in dead_letters='
        )
    if dead_letters is None:
        return [made]
    _require_sink(dead_letters, f"sink {uid!r}: dead_letters", dataframe.sparkSession)
    if not isinstance(sink, SelectiveSink):
        raise ConfigurationError(
            f'sink {uid!r}: on_bad_row is "dead_letter", but {sink.describe()} cannot tell a '
            "refused row from the others; leave on_bad_row out, or give its class the method "
            "create_selective_writer (docs/dead-letters.md)"
        )
    check_takes_dead_letters(dead_letters, uid)
    letters = DeclaredSink(
        f"{uid}.dead-letters", dead_letters, None, (), DEAD_LETTER_SCHEMA, dead_letters_of=uid
    )
    return [made, letters]


def _require_sink(sink: Any, what: str, spark: SparkSession) -> None:
    if not isinstance(sink, TwoPhaseCommitSink):
        raise ConfigurationError(
            f"{what} is {type(sink).__name__}; give a sm.…Sink or your own TwoPhaseCommitSink"
        )
    for format_ in sink.spark_formats:
        require_format(spark, format_)
