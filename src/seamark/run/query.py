"""One run of a job as one Spark query, from the declared sinks to the query's end.

`StreamRun.start` recovers and starts Spark's query. The query's `foreachBatch` calls pre-commit in
each epoch. `wait` returns when the query has ended and everything is settled.
"""

import contextlib
import logging
import math
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from pyspark.util import inheritable_thread_target

from seamark.api.config import CheckpointMode
from seamark.checkpoint.channel_state import NO_CHANNEL_STATE, ChannelState
from seamark.checkpoint.checkpointed_job import QueryRun
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.flow_figures import FlowFigures
from seamark.checkpoint.manifest import ManifestWriter
from seamark.checkpoint.source_offsets import SourceOffsets
from seamark.checkpoint.spark_files import read_log
from seamark.checkpoint.statistics import EpochFigures
from seamark.checkpoint.store import CheckpointStore, JobIdentity, Known
from seamark.checkpoint.task_reports import TaskReport
from seamark.files import Directory
from seamark.files.deadline import CallHangsError, CallThread, Deadline
from seamark.jobs.job_transactions import checkpointed_job
from seamark.model.errors import QueryHangsError, SparkDiedError, StoppedError, UserError
from seamark.model.ignored import ignored
from seamark.model.redaction import Redactor
from seamark.model.uncaught import say_at_end
from seamark.protocol.procedures import check_fence
from seamark.run import real_time
from seamark.run.checkpoint_trigger import CheckpointTrigger
from seamark.run.closing_epoch import plan_closing_epoch
from seamark.run.drain import Drain
from seamark.run.epoch_figures import SparkFigures
from seamark.run.epoch_work import BatchLimit, EpochWork
from seamark.run.failures import last_words, of_source, reason_of
from seamark.run.gathering import FewerTasks, Gathering, must_be_apart
from seamark.run.held_watermark import KeyedEpochs
from seamark.run.job_plan import JobPlan
from seamark.run.jvm_writer import jvm_writer
from seamark.run.keyed_process import check_keyed
from seamark.run.pre_commit import RESULT_SCHEMA, Order, pre_commit
from seamark.run.start_checks import StartChecks, offsets_of
from seamark.run.stop_signals import program_has_ended, stopped_by_program
from seamark.run.stream_watch import watch_stream
from seamark.run.task_attempt import EpochTasks
from seamark.spark.function_session import OF_THE_STREAM, function_sessions
from seamark.spark.hadoop_files import open_files
from seamark.spark.java_calls import hang_up_of, java_class
from seamark.spark.plans import NO_EXCHANGE_REUSE, list_files_again, require_watermarks
from seamark.spark.session import (
    RETAINED,
    file_manager_settings,
    is_local,
    planned_tasks,
    require_rows_once,
    require_tasks_python,
)
from seamark.spark.spark_versions import mend_kafka_sources
from seamark.spark.state_backend import (
    PROVIDER,
    format_settings,
    given_format,
    lent_settings,
    session_setting,
    session_settings,
)

log = logging.getLogger(__name__)

_MANIFEST = "manifest, by which a start looks for damage"
_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"

_ACCEPT_LEFTOVERS = {"spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false"}
"""If a driver dies while writing the first entry of Spark's offset log, it leaves a temporary file,
and Spark would refuse the location for ever. job.json names the owner of the location. Spark reads
the setting from the session when its query runs already."""
_SINK_WITHOUT_NAME = {"spark.sql.streaming.queryEvolution.enableSinkEvolution": "false"}
"""Spark would ask for a name of the query's one sink, the function that writes to the job's."""
QUERY_START_S = 120.0
"""How long Spark may take to start a query: meanwhile it reads its checkpoint location."""
QUERY_END_S = 120.0
"""How long a stopped query may take to end: Spark waits for the running function."""
STOP_S = 10.0
"""How long an epoch that has failed, or that a stop turns away, waits for the stop of its query."""
_INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling java.lang.InterruptedException"
)
"""An interrupted call in Spark's eyes. Of py4j's own error, with the JVM's stack in its text, the
regular expression by which Spark looks for this overflows its thread's stack."""
TASK_KILL_S = 2.5
"""How long a cancelled task's Python worker may go on (spark.python.task.killTimeout is 2 s)."""


class StreamRun(QueryRun):
    """One Spark query under one coordinator. Used once.

    `started` is for `FunctionSession`.
    `records_uri` is the directory of Seamark's records, `spark_location` Spark's checkpoint
    location. `trigger` holds the arguments of ``DataStreamWriter.trigger``. `spark_settings` apply
    to this query alone. `flow` adds up the rows and bytes through each part of the job.
    `on_committed` is called at each completed checkpoint with the job's identity and the epoch; it
    must not take long. `redactor` keeps the job's secrets out of all records and Seamark's log.
    """

    def __init__(
        self,
        plan: JobPlan,
        *,
        started: Any,
        records_uri: str,
        spark_location: str,
        trigger: Mapping[str, Any],
        redactor: Redactor,
        spark_settings: Mapping[str, str],
        flow: FlowFigures,
        on_committed: Callable[[JobIdentity, int], None],
    ) -> None:
        spark, declared = plan.spark, plan.declared
        self._plan = plan
        self._name = declared.name
        self._spark = spark
        self.uids = plan.uids
        self.sinks = {uid: declaration.sink for uid, declaration in declared.sinks.items()}
        self._dead_letters = {
            s.dead_letters_of: s.uid for s in declared.sinks.values() if s.dead_letters_of
        }
        self._tell_committed = on_committed
        self.uri = records_uri
        self.spark_location = spark_location
        self._trigger, self._real_time = dict(trigger), "realTime" in trigger
        self._redactor = redactor
        self._batch_limit = BatchLimit()
        self._stream_properties: dict[str, str] = {}
        self._stateful = plan.uids.operator_count > 0
        manager = file_manager_settings(spark, spark_location, stateful=self._stateful)
        self._spark_files = open_files(spark, spark_location, make=False)
        self._spark_settings = self._make_settings({**spark_settings, **manager})
        self._gathering = Gathering(
            self.sinks,
            spark.sparkContext.defaultParallelism,
            apart=must_be_apart(
                (operator.name for operator in plan.query.operators),
                str(self._spark_settings.get(PROVIDER) or session_setting(spark, PROVIDER, None)),
            ),
        )
        records = open_files(spark, records_uri)
        self._store = CheckpointStore(records, self._spark_files)
        self._manifests = ManifestWriter(records, self._spark_files, plan.uids.by_directory)
        self._source_offsets = self._make_source_offsets()
        self._figures = SparkFigures(records, self._spark_files, plan.uids, lambda: self.query)
        self._job = checkpointed_job(
            spark,
            declared,
            self._store,
            tasks=planned_tasks(spark, spark_settings, stateful=self._stateful),
            sessions=function_sessions(spark, started, declared, self._stream_properties),
        )
        self._checks = StartChecks(self._job, plan, self._spark_settings, real_time=self._real_time)
        self.coordinator = Coordinator(self._job, self, flow)
        self.coordinator.epochs.in_turn = plan.query.reads_tables
        self.query: StreamingQuery | None = None
        # Where executors die, a stage may run again, and its tasks' attempts count from 0 again.
        # Spark reports the loser of a speculative attempt to nobody. Local mode has neither.
        self._hidden_attempts = not is_local(spark.sparkContext.master)
        checkpoint = declared.checkpoint
        unaligned = checkpoint.unaligned and not declared.bounded
        self._keyed = KeyedEpochs(plan.keyed, checkpoint.aligned_timeout_s if unaligned else None)
        self._plan_checked = False
        self._settled = threading.Event()
        self._open = contextlib.ExitStack()
        self._open.callback(self._settled.set)
        self._stopping = False
        self._error: BaseException | None = None
        self._task_error: PySparkException | None = None
        """What Spark's tasks have failed with in the last epoch."""
        self._epoch_error: BaseException | None = None
        """What the last epoch has ended with at Spark."""
        self._hang_up: Callable[[], object] = bool
        """Ends the connection of the Java thread that runs the epochs."""
        self._checkpoint_trigger = CheckpointTrigger(
            declared.name, self.coordinator, self._settled, lambda: self._error
        )

    def _make_settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return Spark's settings for the query. Raises ConfigurationError for one that the job's
        state or its keyed operators cannot have."""
        spark, keyed = self._spark, self._plan.keyed
        settings = {**given, **_SINK_WITHOUT_NAME}
        if self._stateful:
            settings |= NO_EXCHANGE_REUSE | format_settings(
                self._name, given_format(spark), self._spark_files, keyed=bool(keyed)
            )
        declared = self._plan.declared
        check_keyed(
            declared, keyed, lambda key: settings.get(key) or session_setting(spark, key, None)
        )
        return settings

    def _make_source_offsets(self) -> SourceOffsets:
        """Return the notifier of completed checkpoints for sources with offset commits."""
        uids, sources = self.uids, self._plan.declared.sources
        committing = {
            uids.source_lines.index(number): (
                uid,
                partial(source.create_offset_committer, self._spark._jvm),
            )
            for number, uid in uids.sources.items()
            if uid in sources and (source := sources[uid].commits_offsets) is not None
        }
        return SourceOffsets(partial(offsets_of, self._spark_files, uids), committing)

    def start(self) -> StreamingQuery:
        """Settle older drivers' epochs, then start Spark's query and return it.

        Raises ConfigurationError for tasks that cannot run, and DamagedCheckpointError if the job
        cannot go on, before anything is written.
        """
        if not self._real_time:  # whose rows may need no Python
            require_tasks_python(self._spark)
        require_rows_once(self._spark)
        self._checks.before()
        if "processingTime" in self._trigger:
            self._checkpoint_trigger.prepare(self._spark)
        self.coordinator.start()
        try:
            return self._start()
        except BaseException as error:
            self._give_up(error)
            raise

    def _start(self) -> StreamingQuery:
        decided = self.coordinator.last_committed
        if decided >= 0:
            self.coordinator.upkeep.later(_MANIFEST, partial(self._manifests.write, decided))
        self._checks.after(self.coordinator)
        once = "once" in self._trigger
        # In complete mode it would close nothing; the one epoch of `once` is for new rows.
        closes = self._stateful and self._plan.declared.output_mode != "complete"
        if closes and not once and self._runs_without_rows():
            check_fence(self._store, self.coordinator.generation)
            plan_closing_epoch(self._store, decided)
        # The state's metadata from this run's first epoch is not there yet.
        self._manifests = ManifestWriter(
            self._store.files, self._store.spark_files, self.uids.by_directory
        )
        tasks = self._epoch_tasks()
        state = self.coordinator.channel_state
        self._keyed.go_on_from(state.event_times)
        self._work = EpochWork(
            tasks,
            self._job.checkpoint,
            state,
            self._keyed,
            self._spark,
            once=once,
            tables=self.coordinator.epochs.in_turn,
            ends=once or "availableNow" in self._trigger,
        )
        lent = _ACCEPT_LEFTOVERS | (real_time.ON_THE_SESSION if self._real_time else {})
        self._open.enter_context(lent_settings(self._spark, lent))
        with session_settings(self._spark, self._spark_settings):
            query = self.query = self._start_query(tasks)
            if RETAINED in self._spark_settings:
                # A file source's log takes it from its DataFrame's session, when it is opened.
                stream = query._jsq.streamingQuery()
                Deadline(QUERY_START_S).wait_for(
                    lambda: not query.isActive or stream.sources().nonEmpty(), 0.01
                )
        self._checkpoint_trigger.attach(query)
        self._source_offsets.completed(decided)
        watch_stream(query, self.coordinator, self._job.timeout_s, self._settled)
        threading.Thread(target=self._live, name="seamark-run").start()
        return query

    def _give_up(self, error: BaseException) -> None:
        """End what a start that fails with `error` has begun: nothing stays behind."""
        self.coordinator.fail(error)
        if self.query is not None:
            self._live()
            return
        try:
            with ignored("the end of a start that has failed"):
                self.coordinator.finish()
        finally:
            self._open.close()

    def _epoch_tasks(self) -> EpochTasks:
        assert self.coordinator.identity is not None
        return EpochTasks(
            self._plan.layout,
            self.sinks,
            self._dead_letters,
            job_id=self.coordinator.identity.job_id,
            generation=self.coordinator.generation,
            hadoop=self._job.hadoop,
            spool_uris={uid: self._store.spool_uri(uid) for uid in self.sinks},
            channel_state_uri=self._store.channel_state_uri,
            processes={
                uid: sink.process
                for uid, sink in self._plan.declared.sinks.items()
                if sink.process is not None
            },
        )

    def _start_query(self, tasks: EpochTasks) -> StreamingQuery:
        """Start Spark's query. Spark reads and writes its checkpoint location meanwhile, so the
        start has a deadline (QUERY_START_S). Raises QueryHangsError after it."""
        stream = self._plan.stream
        jvm = jvm_writer(self._plan, tasks) if self._real_time else None
        if jvm is None:
            task = pre_commit(tasks)
            if self._real_time:
                stream, task = real_time.followed(stream, task)
            stream = stream.mapInArrow(task, RESULT_SCHEMA)
        writer = stream.writeStream.option("checkpointLocation", self.spark_location)
        writer = writer.trigger(**self._trigger)
        if (name := self._plan.declared.query_name) is not None:
            writer = writer.queryName(name)

        def start() -> StreamingQuery:
            if self._plan.has_run:  # a restart, maybe as a static table has other files now
                with ignored("the look for the files of static tables"):
                    list_files_again(self._plan.stream)
            self._plan.has_run = True
            self._checkpoint_trigger.put_clock(self._spark, self.spark_location)
            if self._real_time:
                ends = _weakly(self._begin_real_time_epoch), _weakly(self._end_real_time_epoch)
                query = real_time.start_query(self._spark, writer, *ends, jvm)
            else:
                self._work.attach(self._spark, self.spark_location)
                mode = self._plan.declared.output_mode
                query = writer.outputMode(mode).foreachBatch(_weakly(self._run_epoch)).start()
            if self.coordinator.failure is not None:  # given up meanwhile: nobody waits for it
                query.stop()
            return query

        calls, deadline = CallThread("seamark-query-start"), Deadline(QUERY_START_S)
        try:
            # With the caller's local properties, e.g. its scheduler pool, as if called directly.
            started = inheritable_thread_target(self._spark)(start)
            query: StreamingQuery = calls.call(started, deadline.left_s)
            return query
        except CallHangsError:
            raise QueryHangsError(
                f"job {self._name}: Spark's query has not started within {QUERY_START_S:g} s: "
                f"{self.spark_location} hangs, or a source. End the program, and start the job "
                "again when they answer; nothing was written"
            ) from None
        finally:
            calls.close()

    def trigger_checkpoint(self, ahead: int | None = None) -> Future[int]:
        """Begin an epoch now; see `CheckpointTrigger.ask`."""
        if self._stopping:
            raise UserError(f"job {self._name} is ending; it takes no checkpoint now")
        return self._checkpoint_trigger.ask(ahead)

    def drain(self) -> Drain:
        """Return the `Drain` for this run's query. Raises UserError if it cannot be."""
        query = self.query
        if query is None or "processingTime" not in self._trigger:
            raise UserError(
                f"job {self._name}: only a running job whose sources do not end can be drained"
            )
        if not self._runs_without_rows():
            raise UserError(
                f"job {self._name}: {_NO_DATA_BATCHES} is false, so Spark closes no window without "
                "new rows, and the job cannot be drained; stop it without --drain"
            )
        return Drain(self._spark._jvm, query)

    def _runs_without_rows(self) -> bool:
        """Whether Spark runs an epoch without rows after one that raised the watermark."""
        key = _NO_DATA_BATCHES
        given = self._spark_settings.get(key) or session_setting(self._spark, key)
        return str(given).lower() == "true"

    def aligned(self, *, keyed: bool) -> contextlib.AbstractContextManager[None]:
        """Inside the block, epochs that begin leave no channel state; see `EpochWork.aligned`."""
        return self._work.aligned(keyed=keyed)

    @property
    def epochs_ahead(self) -> int:
        """How many epochs the stream may get ahead of an epoch still to be read, before Spark
        deletes that epoch's files."""
        spark = self._spark_settings.get(RETAINED) or session_setting(self._spark, RETAINED)
        return max(2, min(self._job.checkpoint.num_retained, int(spark))) - 2

    @property
    def known(self) -> Known:
        """What its lease has of the job at its start."""
        return self._store.known

    def settle(self) -> None:
        """Settle older drivers' epochs and end without a query. Called instead of `start`."""
        self.coordinator.start()
        self.coordinator.finish()

    def stop(self, patience_s: float = 0.0) -> None:
        """End the query: the epoch under way has `patience_s` to be committed, then it is aborted.
        Returns when Spark's query has ended, or hangs. `wait` then returns or raises."""
        if self.query is None:
            return
        self._stopping = True
        self.coordinator.drain(patience_s)
        stopping = threading.Thread(target=self._stop_query, name="seamark-stop", daemon=True)
        stopping.start()
        stopping.join(0.2)  # Spark must know of the stop before the held epoch is turned away
        self.coordinator.epochs.turn_away()
        stopping.join(QUERY_END_S)  # Spark may wait for ever; then `wait` raises QueryHangsError

    def give_up_recovery(self) -> None:
        """Let `start` fail within seconds if it is waiting for a silent system."""
        if self.query is None:
            self.coordinator.give_up()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the query has ended and every epoch is settled; False at the timeout.

        Raises the run's error: a SeamarkError, or Spark's StreamingQueryException.
        """
        if not self._settled.wait(timeout_s):
            return False
        if self._error is not None:
            raise self._error
        return True

    # --- on Spark's stream thread

    def _run_epoch(self, frame: DataFrame, epoch: int) -> None:
        self._hang_up = hang_up_of(self._spark._jvm)
        try:
            self._run(frame, epoch)
            return
        except Exception as error:
            if isinstance(error, PySparkException) and self.coordinator.failure is None:
                self._task_error = error
                self.stop_soon()
            elif self.coordinator.failure is None and not self._is_stop(error):
                self._epoch_error = error
                raise
            failure = error
        # The query is being stopped. Then Spark takes an interrupted call for the end that it is;
        # any other error it logs with the JVM's stack, and py4j's and Seamark's frames in it.
        if Deadline(STOP_S).wait_for(lambda: self.query and not self.query.isActive, 0.01):
            failure = StoppedError(_INTERRUPTED)
        self._epoch_error = failure
        raise failure  # outside of `except`: without the other errors

    def _is_stop(self, error: Exception) -> bool:
        """Tell whether a stop has ended the epoch: also another's than ours, as by
        `spark.streams`, which interrupts the call in Java."""
        cut_off = isinstance(error, Py4JJavaError) and self.query and not self.query.isActive
        return isinstance(error, StoppedError) or bool(cut_off)

    def _run(self, frame: DataFrame, epoch: int) -> None:
        with self.coordinator.guarded():
            settled = self._begin_epoch(epoch)
            stream = self._stream_of(frame)
            if self._stateful or not self._plan_checked:
                # Spark leaves out a limit over a source without new rows, and numbers what follows
                # anew: the next operator would go on from the limit's state.
                self._plan.query.require_same(self._name, stream)
            if not self._plan_checked:  # this is the same in later epochs
                require_watermarks(self._name, stream.lastExecution().executedPlan())
                mend_kafka_sources(stream)
                got = frame.sparkSession.sparkContext.getLocalProperty
                self._stream_properties |= {name: str(got(name)) for name in OF_THE_STREAM}
            self._plan_checked = True
            write = self.coordinator.claim_epoch(epoch)
        tasks: list[TaskReport] = []
        left = NO_CHANNEL_STATE
        if write or self._stateful:  # skipped rows still change the next epoch's state
            order = Order(epoch, settled, write=write)
            context = frame.sparkSession.sparkContext
            self._work.warm_up(frame.sparkSession, order)
            self._keyed.begin(context, lambda: self._watermark_of(epoch - 1))
            fewer = FewerTasks(stream, self._gathering.tasks)
            state = self.coordinator.channel_state
            tasks, left = self._work.run(frame, order, state, fewer)
            self._store.note_own(epoch, **self._keyed.end(epoch, stream.lastExecution))
            left = replace(left, event_times=self._keyed.event_times)
            self._work.limit_intake(left)
            self._work.hold(epoch, True)
        self._end_epoch(epoch, tasks, left)
        self._batch_limit.after_epoch(frame.sparkSession, tasks)
        self._gathering.after_epoch(tasks)
        if left.stages or self._keyed.waiting:
            self._checkpoint_trigger.wake()

    def _begin_real_time_epoch(self, epoch: int, tasks: int) -> str:
        self._hang_up = hang_up_of(self._spark._jvm)
        with self.coordinator.guarded():
            real_time.require_cores(self._spark, tasks)
            return Order(epoch, self._begin_epoch(epoch)).to_text()

    def _end_real_time_epoch(self, epoch: int, tasks: Sequence[TaskReport]) -> None:
        with self.coordinator.guarded():
            self._store.note_own(epoch, ends=real_time.end_offsets(self._spark))
        self._end_epoch(epoch, tasks, NO_CHANNEL_STATE)

    def _begin_epoch(self, epoch: int) -> int:
        self._checkpoint_trigger.epoch_begun(epoch)
        return self.coordinator.begin_epoch(epoch)

    def _end_epoch(self, epoch: int, tasks: Sequence[TaskReport], left: ChannelState) -> None:
        self._log_refused(epoch, tasks)
        retried = self._hidden_attempts or any(task.attempt for task in tasks)
        with self.coordinator.guarded():
            self.coordinator.store_epoch(
                epoch, tasks, left, retried=retried, keyed=self._keyed.figures
            )

    def _watermark_of(self, epoch: int) -> int:
        """Return the watermark of a stored epoch, 0 for the one before the first."""
        if not self._spark_files.exists(f"offsets/{epoch}"):
            return 0
        return int(read_log(self._spark_files, f"offsets/{epoch}")[0]["batchWatermarkMs"])

    def _stream_of(self, frame: DataFrame) -> Any:
        # `self.query` is not there yet: Spark plans the first epoch while it starts the query.
        id_ = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        return self._spark._jsparkSession.streams().get(id_).streamingQuery()

    def _log_refused(self, epoch: int, tasks: Sequence[TaskReport]) -> None:
        for uid, letters in self._dead_letters.items():
            if rows := sum(task.sinks[letters].rows for task in tasks if letters in task.sinks):
                log.warning(
                    "epoch %d: sink %s refused %d rows, which are in %s", epoch, uid, rows, letters
                )

    # --- the end

    def _live(self) -> None:
        """Wait for the query's end, then settle. The run's own thread is no daemon, so the
        interpreter waits for it: the last epoch of a bounded query is committed even if the program
        just ends."""
        query = self.query
        assert query is not None
        try:
            ending_since = math.inf
            # Not `query.isActive`: it turns False as soon as somebody has called `stop`, while the
            # thread may still write a decision.
            thread = query._jsq.streamingQuery().queryExecutionThread()
            while thread.isAlive():
                thread.join(1000)
                ending = self._stopping or not query.isActive
                if ending or self.coordinator.failure is not None:
                    ending_since = min(ending_since, time.monotonic())
                    if time.monotonic() - ending_since > QUERY_END_S:
                        raise QueryHangsError(
                            f"job {self._name}: Spark's query has not ended {QUERY_END_S:g} s "
                            "after it was stopped: a file system or a function in it hangs. End "
                            "the program; the next start settles what is open"
                        ) from self.coordinator.failure
                if not ending and program_has_ended():
                    self.stop_soon()  # the program ended without waiting, as if it called stop
            self._hang_up()
            query.awaitTermination(1)  # raises the query's error
        except (Py4JNetworkError, OSError) as error:
            self._failed(SparkDiedError("the Spark JVM has ended; start the job again"), error)
        except QueryHangsError as error:
            self._error = error  # it may still decide an epoch: only the next driver can settle
            self._open.close()
            return
        except BaseException as error:  # StreamingQueryException: the query failed
            self._failed(of_source(error, self._name))
            if isinstance(error, PySparkException) and self._error is error:
                words = last_words(self._task_error or error, self._what_has_failed())
                say_at_end(error, self.hide(words))
        reason = "the job was stopped" if self._error is None else reason_of(self._error)
        try:
            self.coordinator.finish(quiesce_s=TASK_KILL_S, reason=reason)
        except BaseException as error:
            self._error = error
        else:
            with ignored("the last upkeep"):  # the run has ended well all the same
                latest = self._store.latest_decision()
                if self._store.epoch(latest).committed is not None:
                    for what, work in self.after_commit(latest).items():
                        with self.coordinator.upkeep.spared(what):
                            work()
        self._source_offsets.close()
        _forget_locals(self._epoch_error)
        self._open.close()

    def _what_has_failed(self) -> str:
        """Say what becomes of the epoch that has failed in Spark's tasks, or of the job."""
        if self._task_error is None:
            return (
                f"job {self._name}: Spark's query has failed; a start goes on from its checkpoint"
            )
        epoch, mode = self.coordinator.failing_epoch, self._job.checkpoint.mode
        then = f"a start of the job goes on with epoch {epoch}"
        if mode is CheckpointMode.AT_MOST_ONCE:
            then = "a start of the job goes on after it (at-most-once)"
        return f"job {self._name}: epoch {epoch} has failed, and nothing of it is committed; {then}"

    # --- see `QueryRun`

    def measure(self, epochs: Sequence[int]) -> Mapping[int, EpochFigures]:
        """Ask Spark and the storage."""
        return self._figures.measure(epochs)

    def open_files(self, uri: str) -> Directory:
        """Through Hadoop; makes no directory."""
        return open_files(self._spark, uri, make=False)

    def hide(self, text: str) -> str:
        """Replace the secrets known to the redactor."""
        return self._redactor(text)

    def after_commit(self, epoch: int) -> Mapping[str, Callable[[], object]]:
        """Write the manifest and report the checkpoint to the sources and `on_committed`."""
        assert self.coordinator.identity is not None
        self._work.hold(epoch, False)
        return {
            "offsets for lag tools": partial(self._source_offsets.completed, epoch),
            "report of the checkpoint": partial(
                self._tell_committed, self.coordinator.identity, epoch
            ),
            _MANIFEST: partial(self._manifests.write, epoch),
        }

    def _failed(self, error: BaseException, cause: BaseException | None = None) -> None:
        if not self._stopping and not stopped_by_program(self._spark):
            error.__cause__ = cause or error.__cause__
            self._error = error

    def _stop_query(self) -> None:
        try:
            if self.query is not None:
                if (failure := self.coordinator.failure or self._task_error) is not None:
                    with ignored("what listeners hear of the failure"):
                        self._tell_listeners(self.query, failure)
                self.query.stop()
        except Exception as error:  # the JVM is gone, or Spark's own stop timed out
            log.info("stopping Spark's query: %s", error)

    def _tell_listeners(self, query: StreamingQuery, failure: BaseException) -> None:
        """Let Spark tell its listeners, and `awaitTermination`, why the query, which it is about to
        stop, has failed."""
        jvm, text = self._spark._jvm, self.hide(f"{type(failure).__name__}: {failure}")
        words = {"id": query.id, "runId": query.runId, "message": text}
        cause = getattr(failure, "_origin", None)
        if cause is None:
            cause = java_class(jvm, "java.lang.RuntimeException")(text)
        made = java_class(jvm, "org.apache.spark.sql.streaming.StreamingQueryException")
        said = f"[STREAM_FAILED] Query {query.id} (run {query.runId}) has failed: {text}"
        death = made(said, cause, "STREAM_FAILED", jvm.PythonUtils.toScalaMap(words))
        getattr(query._jsq.streamingQuery(), "streamDeathCause_$eq")(death)

    def stop_soon(self) -> None:
        """Stop the query from a thread that must not wait for Spark's stop."""

        def stop() -> None:
            deadline = time.monotonic() + 30
            while self.query is None and time.monotonic() < deadline:
                if self._settled.wait(0.05):
                    return
            self._stop_query()

        threading.Thread(target=stop, name="seamark-stop", daemon=True).start()


def _weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `method` as a function that does not keep its object, for Java to keep.

    Python keeps a function for as long as Java does: with its run, and so the run's Java objects,
    neither side would ever collect a query that has ended, and each restart would leave megabytes.
    """
    reference = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        if (bound := reference()) is None:
            raise StoppedError(_INTERRUPTED)
        return bound(*args)

    return call


def _forget_locals(error: BaseException | None) -> None:
    """Clear the local variables of all calls that `error`, which PySpark keeps with the function,
    has ended: they hold the run."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
