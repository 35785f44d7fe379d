"""`Job`, the front of Seamark: declares a job over Spark's own DataFrames, and runs it.

The declaration itself is `api/declarations.py`; one run of the job is `job_run.py`.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame, SparkSession

from seamark.api.checks import one_of
from seamark.api.config import CheckpointConfig
from seamark.api.declarations import DeclaredSource, JobDeclaration
from seamark.api.ephemeral_storage import storage_directory
from seamark.api.rest_config import RestConfig
from seamark.api.settings import (
    DEFAULT,
    EXPECTING_VARIABLE,
    JOB_VARIABLE,
    PLAN_VARIABLE,
    RESTORE_VARIABLE,
    TRANSACTIONS_VARIABLE,
    Settings,
    resolve,
)
from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.contracts.source import Source
from seamark.files.location import storage_uri
from seamark.guarantees.end_to_end import GuaranteeReport
from seamark.jobs.checkpoint_history import current_directory, jobs_in, read_history
from seamark.jobs.job_transactions import answer_request
from seamark.jobs.log_redaction import RedactedLog, job_redactor
from seamark.model.checkpointing_statistics import NONE_YET, CheckpointingStatistics
from seamark.model.errors import ConfigurationError, UserError
from seamark.model.job_graph import JobGraph
from seamark.model.redaction import secrets_in
from seamark.run.declaring import declare_sinks, declare_source
from seamark.run.inspection import server_findings
from seamark.run.job_facts import job_report
from seamark.run.job_plan import JobPlan, job_graph
from seamark.run.kafka_topics import kafka_options
from seamark.run.real_time import is_real_time, real_time_settings
from seamark.run.supervision import Supervisor
from seamark.savepoints.edit.bootstrap import new_savepoint
from seamark.savepoints.record import SavepointType
from seamark.savepoints.restore.options import NewJob, RestoreOptions, new_job
from seamark.savepoints.restore.plan import RestorePlan
from seamark.savepoints.restore.planner import plan_restore, write_plan
from seamark.savepoints.restore.write import restore_job
from seamark.savepoints.savepoint import Savepoint
from seamark.savepoints.take.running import take as take_savepoint
from seamark.sinks.write_ahead.foreach_batch import ForeachBatchSink, with_storable_names
from seamark.sources.kafka_admin import KafkaReading
from seamark.spark.planned_query import name_part, refuse_unsupported
from seamark.spark.session import query_settings, require_stream, spark_session
from seamark.spark.state_backend import PARTITIONS, backend_settings
from seamark.verify.audit.one_job import answer_audit

if TYPE_CHECKING:
    from seamark.job_run import JobRun

SAVEPOINT_TYPES = tuple(type_.value for type_ in SavepointType)
_begun: dict[str, str] = {}
"""By the path that ``seamark run -s`` gives: the directory of the job begun with it."""


class Job:
    """One streaming job: one Spark query, one checkpoint, one or several sinks.

    name: letters, digits, ``.``, ``_``, ``-``; the job's directory in the storage has this name. A
        job run again under the same name and storage goes on after its last decided epoch.
    output_mode: Spark's, for all sinks: ``"append"``, ``"update"`` or ``"complete"``.
    rest: the REST interface of the driver while it runs; by default on this machine, on a free
        port.

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
        self._secrets: set[str] = set()
        self._run: JobRun | None = None

    # --- declare

    def source(
        self, source: Source | DataFrame, uid: str, *, replayable: bool | None = None
    ) -> DataFrame:
        """Add a source and return its streaming DataFrame.

        `source` is one of Seamark's, or any streaming DataFrame of Spark's. For the latter, set
        `replayable`: whether Spark can read the same rows again after a failure.
        """
        declared = self.declaration
        uid = declared.claim_uid(uid, "a source")
        made, secrets = declare_source(declared.name, source, uid, replayable)
        self._secrets |= secrets
        self._add(made)
        return made.dataframe

    def _add(self, source: DeclaredSource) -> None:
        options = kafka_options(source.dataframe)
        if source.source is None and options is not None:
            source = replace(source, source=KafkaReading(options))
            self._secrets |= secrets_in([dict(options)])
        self.declaration.sources[source.uid] = source
        name_part(source.dataframe, self.declaration.key, source.uid, source=True)

    def uid(self, dataframe: DataFrame, uid: str) -> DataFrame:
        """Name a stateful operator, the last one in `dataframe`'s plan; return the same DataFrame.

        Another program finds its state again under this name.
        """
        uid = self.declaration.claim_uid(uid, "an operator")
        require_stream(dataframe, f"operator {uid!r}")
        self.declaration.operators[uid] = dataframe
        name_part(dataframe, self.declaration.key, uid, source=False)
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
        """Add a sink for `dataframe`; the sink's own documentation lists its columns.

        Sinks share the common part of their streams (docs/shared-streams.md); `explain` lists it.

        on_bad_row: the fate of a row refused by the sink's system (type, constraint, size):
            ``"fail"`` the epoch, or go to the sink `dead_letters` as a ``"dead_letter"``, in the
            same epoch, with the reason. That sink has the uid ``<uid>.dead-letters``.
            docs/dead-letters.md describes such rows and the columns of a dead letter.
        """
        declared = self.declaration
        uid = declared.claim_uid(uid, "a sink")
        if isinstance(sink, ForeachBatchSink) and isinstance(dataframe, DataFrame):
            dataframe = with_storable_names(dataframe)
        made, *letters = declare_sinks(dataframe, sink, uid, on_bad_row, dead_letters)
        made = replace(made, declared_at=_caller())
        for one in letters:
            declared.claim_uid(one.uid, f"the dead letters of sink {uid!r}")
        declared.sinks.update({one.uid: one for one in (made, *letters)})

    # --- look

    def config(self) -> Settings:
        """Return each setting's value and its origin.

        Origins are a default, the program, the settings file or the command line.
        ``print(job.config())`` shows them as a table.
        """
        return self._settings

    def checkpoints(self) -> CheckpointingStatistics:
        """Return this job's checkpoint statistics.

        They are counts, the latest of each kind, a summary, and the last 1,000 with their operators
        and subtasks. A job running in this process includes checkpoints in progress; any other job
        has only those in its storage.
        """
        if self._run is not None and (coordinator := self._run.coordinator) is not None:
            return coordinator.statistics.read()
        declared = self.declaration
        storage, name = self._storage, declared.directory
        if name not in jobs_in(storage):
            return NONE_YET
        return read_history(storage, current_directory(storage, name))

    def explain(self, *, preflight: bool = False) -> None:
        """Print each source, operator and sink with its guarantee, the weakest of them, and the
        findings (docs/findings.md); touches nothing outside.

        preflight: also ask the real systems of sources and sinks for faults, changing nothing.
        """
        print(self.report(preflight=preflight))  # noqa: T201 - as DataFrame.explain does

    def report(self, *, preflight: bool = False) -> GuaranteeReport:
        """Return the text of `explain`. Spark analyses the program's plans for it: a second.

        Raises MissingDependencyError if `preflight` needs a driver that is not installed.
        """
        declared, spark = self.declaration, self._session()
        graph = job_graph(declared) if declared.sinks else JobGraph()
        report = job_report(declared, graph, spark)
        if preflight:
            findings = server_findings(declared, graph, spark, self._current())
            report = report.with_findings(findings)
        redactor = job_redactor(spark, declared, self._storage, self._secrets)
        return report.hidden(redactor.everywhere)

    # --- run

    def run(
        self,
        restore: str | None = None,
        *,
        allow_non_restored_state: bool = False,
        parallelism: int | None = None,
        claim_mode: Literal["no-claim", "claim"] = "no-claim",
        execution: Literal["micro-batch", "real-time"] = "micro-batch",
    ) -> None:
        """Run until the job ends; then settle everything.

        It ends with its sources, by `stop` or `cancel`, or by SIGINT or SIGTERM (as `stop`).

        Goes on after the last decided epoch of an earlier run.

        `restore` is the path of a savepoint to begin with, or of a retained checkpoint of another
        job: ``<storage>/<job>``, its newest complete one, or ``<storage>/<job>/epochs/<n>``;
        ``seamark run -s`` overrides it. If there is a job of this name, which must have ended, this
        begins its next lineage; restored from that very path already, it goes on by itself. From a
        savepoint, sources and operators take the state with their uid, in any order, onto this
        job's state backend. State without a uid here stops the restore, unless
        `allow_non_restored_state` drops it.

        `parallelism` is the number of state partitions, for a new job and for one beginning with a
        savepoint; None for the savepoint's number. With `claim_mode` ``"claim"`` this job owns the
        savepoint from now on, and deletes it when its own first checkpoint is complete. ``seamark
        run -n -p N --claim-mode …`` overrides all three; `restore_plan` previews a restore.

        execution: ``"micro-batch"`` processes what has come since the last epoch, at every
            checkpoint interval. ``"real-time"`` processes each row when it comes, and takes a
            checkpoint at every interval: for stateless jobs from Kafka to Kafka
            (docs/real-time.md). A job may change it from one run to the next.

        Returns when all decided epochs are committed and no transaction of this driver is open; if
        a system does not answer, a warning says that the next start aborts one never stored. Logs a
        warning for a failed checkpoint within `tolerable_failed_checkpoints`, and for a
        failure with a restart by the restart strategy. Raises any other end of the job:
        PreflightError, DamagedCheckpointError or RestoreError before anything is written;
        TooManyFailedCheckpointsError, LostTransactionError, CommitFailedError, FencedError, or
        Spark's StreamingQueryException.
        """
        how = RestoreOptions(
            self.declaration.name, allow_non_restored_state, parallelism, claim_mode
        )
        if (run := self._prepare(restore, how, execution)) is not None:
            run.run_to_end()

    def _prepare(self, restore: str | None, how: RestoreOptions, execution: str) -> "JobRun | None":
        """Restore the job if it is to begin so, and return its run. Does what the command line asks
        for instead, and ends the program; returns None if it asks another job."""
        declared = self.declaration
        declared.require_whole()
        spark = self._session()
        taken = declared.query_name
        if taken is not None and any(query.name == taken for query in spark.streams.active):
            # Spark refuses it only when this start has fenced that query's driver already.
            raise ConfigurationError(
                f"Job {declared.name!r}: this session runs a query named {taken!r}, and Spark "
                "takes a name once; stop that one first, or give this one another name"
            )
        named = os.environ.get(JOB_VARIABLE)
        is_meant = named in (None, declared.name)
        if not is_meant and os.environ.keys() & {TRANSACTIONS_VARIABLE, PLAN_VARIABLE}:
            return None
        if file := os.environ.pop(TRANSACTIONS_VARIABLE, None):
            audit = partial(answer_audit, spark, declared, self._storage)
            answer_request(spark, declared, self._storage, self._secrets, Path(file), audit)
            raise SystemExit(0)  # the program must not run on after the answer
        if is_meant:
            how = how.overridden(os.environ)
            os.environ.pop(EXPECTING_VARIABLE, None)
        path = self._given_by_command_line(None if is_meant else named) or restore
        # Its REST interface takes a third of a second to import. Meanwhile Spark plans.
        threading.Thread(target=import_module, args=["seamark.job_run"]).start()
        plan = JobPlan(declared)
        in_real_time = is_real_time(execution, plan)
        if file := os.environ.pop(PLAN_VARIABLE, None):
            write_plan(spark, path, self._new_job(how, plan), Path(file))
            raise SystemExit(0)  # the program must not run on after the plan
        redactor = job_redactor(spark, declared, self._storage, self._secrets)
        with RedactedLog(redactor):
            job = self._new_job(how, plan) if path else None
            at = restore_job(spark, path, job) if path and job else self._current()
        refuse_unsupported(plan.stream, declared.output_mode)
        from seamark.job_run import JobRun

        shown = {"settings": self._settings, "checkpoints": self.checkpoints}
        shown |= {"take_savepoint": self._take, "restore_plan": self.restore_plan}
        settings = self._spark_settings(spark, how.parallelism, in_real_time)
        trigger = self._trigger(in_real_time)
        self._run = JobRun(plan, at, trigger, settings, redactor, self._rest, shown)
        return self._run

    def _given_by_command_line(self, other: str | None) -> str | None:
        """Return what `seamark run -s` begins this job with; None if it names the job `other`."""
        given, job = os.environ.get(RESTORE_VARIABLE), f"Job {self.declaration.name!r}"
        if not given:
            return None
        if other is not None:
            if given not in _begun and self.declaration.directory not in jobs_in(self._storage):
                # Maybe --job is misspelled, and this is the job to be restored.
                raise ConfigurationError(
                    f"{job}: seamark run -s begins the job {other!r} with {given}, and this one "
                    "would begin anew before it; start that one first, or correct --job"
                )
            return None
        if (first := _begun.setdefault(given, self._directory)) != self._directory:
            # Sources and operators named by number would silently take the first job's state.
            raise ConfigurationError(
                f"{job}: seamark run -s has begun {first} with {given}, and the program starts "
                f"{self._directory} too; a checkpoint is one job's: name it by --job, or run that "
                "one from a program of its own"
            )
        return given

    def _trigger(self, in_real_time: bool) -> Mapping[str, Any]:
        """Return the arguments of ``DataStreamWriter.trigger`` for the query."""
        if self.declaration.bounded:
            return {"availableNow": True}
        interval = f"{round(self.declaration.checkpoint.interval_s * 1000)} milliseconds"
        return {"realTime" if in_real_time else "processingTime": interval}

    def restore_plan(
        self,
        path: str,
        *,
        allow_non_restored_state: bool = False,
        parallelism: int | None = None,
        claim_mode: Literal["no-claim", "claim"] = "no-claim",
    ) -> RestorePlan:
        """Return a preview of ``run(restore=path, …)`` with these arguments; touches nothing.

        It has the fate of each operator, source and sink, and every problem that stops it.

        May be called while the job runs; its directory, unfit for such a restore, is then not
        looked at. Takes a second or more: the savepoint's files are checked, and Spark plans the
        program's query. Raises RestoreError, SavepointError or CorruptRecordError if nothing can be
        read at `path`, ConfigurationError for a wrong value.
        """
        declared, spark = self.declaration, self._session()
        declared.require_whole()
        how = RestoreOptions(declared.name, allow_non_restored_state, parallelism, claim_mode)
        return plan_restore(
            spark,
            path,
            self._new_job(how, JobPlan(declared)),
            into_directory=self._run is None or self._run.supervisor.end is not None,
        )

    def _session(self) -> SparkSession:
        frames = (s.dataframe for s in self.declaration.sinks.values() if not s.dead_letters_of)
        return spark_session(self.declaration.name, next(frames, None))

    def _new_job(self, how: RestoreOptions, plan: JobPlan) -> NewJob:
        return new_job(self._session(), plan, self._directory, self._given(), how)

    def new_savepoint(
        self,
        to: str | Path,
        state: Mapping[str, DataFrame | Mapping[str, DataFrame]],
        *,
        offsets: Mapping[str, Any] | None = None,
        parallelism: int | None = None,
    ) -> Savepoint:
        """Write a savepoint for this job, with state from DataFrames, into the new directory `to`.

        Use it to begin the job from history (Flink: SavepointWriter): ``run(restore=to)`` begins
        with it. The job need not have run. Touches neither sources nor sinks.

        `state`: by an operator's uid a DataFrame as from `Savepoint.read_state`, with columns `key`
        and `value`; for a `transformWithState` a dict of them by state variable, for a join by side
        (``left``, ``right``). Operators not named begin empty. `offsets`: by a source's uid its
        position, for Kafka ``{topic: {partition: offset}}``; sources not named begin at the
        program's own starting point. `parallelism`: the number of state partitions; a restore may
        choose another.

        Raises ConfigurationError if the job has no sink or no source; SavepointError if a uid is
        not the program's, or a DataFrame lacks the columns of its
        operator's state (the message has them), or contradicts itself; RestoreError if Spark cannot
        plan the program.
        """
        declared = self.declaration
        declared.require_whole()
        job = self._new_job(
            RestoreOptions(declared.name, parallelism=parallelism), JobPlan(declared)
        )
        target = storage_uri(to, "new_savepoint: to")
        new_savepoint(self._session(), job, state, offsets or {}, target)
        return Savepoint(target)

    def savepoint(
        self,
        directory: str | None = None,
        *,
        type: Literal["canonical", "native"] = "canonical",  # noqa: A002 - as in Flink
    ) -> Future[str]:
        """Take a savepoint: a checkpoint now, written into a new directory below `directory`.

        A changed program can go on from it. `directory` is a path or URI; None: `CheckpointConfig`
        savepoint_dir. A ``"canonical"`` one also restores onto another number of state partitions
        or another state backend; ``"native"`` copies the state's files instead of its rows and is
        quicker.

        Returns at once; the future's result is the savepoint's path, once it is whole. The stream
        goes on meanwhile; it waits only before running so far ahead that Spark would delete the
        savepoint's epoch (`num_retained`). The future fails with the epoch's or the export's error,
        and the job goes on. Called from another thread than `run`. Raises UserError and
        ConfigurationError as `trigger_checkpoint` does, and if no `directory` is given anywhere.
        """
        return self._take(directory, type)

    def stop_with_savepoint(
        self,
        directory: str | None = None,
        *,
        type: Literal["canonical", "native"] = "canonical",  # noqa: A002 - as in Flink
        drain: bool = False,
    ) -> Future[str]:
        """Take a savepoint and end the job with it; otherwise as `savepoint`.

        No epoch runs after the savepoint's, and `run` returns when the savepoint is whole. If it
        fails, the job goes on; so it does if a failure restarted the job before that: the future
        then fails, and names the savepoint.

        drain: end the job for good: the sources give nothing more, and the watermark goes to the
            end of time, which closes every open window; then the savepoint is taken. A job restored
            from it opens those windows anew (docs/savepoints.md). If it fails after that, the job
            ends all the same.
        """
        return self._take(directory, type, then=self.stop, drain=drain)

    def _take(
        self,
        directory: str | None,
        type_: str,
        then: Callable[[], object] | None = None,
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
        one_of(type_, SAVEPOINT_TYPES, f"Job {declared.name!r}: savepoint type")
        uri = storage_uri(directory, "savepoint: directory")
        supervisor = self._running()
        run, spark = supervisor.running(), self._session()
        ends = None if then is None else partial(supervisor.end_with, run, then)
        return take_savepoint(spark, run, uri, SavepointType(type_), then=ends, drain=drain)

    def trigger_checkpoint(self) -> Future[int]:
        """Take a checkpoint now, without waiting for the interval (Flink: ``triggerCheckpoint``).

        Returns at once. The future's result is the id of a completed checkpoint, committed to every
        sink, with all rows that Spark could read at this call. It is an epoch begun after the call,
        as soon as none is under way. Calls made meanwhile share it, and later epochs keep to the
        interval. Without new rows Spark makes no epoch: the result is the last checkpoint, since
        nothing has been read after it.

        The future fails with the epoch's, or the run's, error. Called from another thread than
        `run`. Raises UserError if the job does not run in this program, is just starting,
        restarting or ending, or if this version of Spark does not let its trigger be woken.
        """
        return self._running().trigger_checkpoint()

    def stop(self) -> None:
        """Ask a running job to end; everything is kept.

        The epoch under way has ten seconds to be committed, and `run` returns in its thread.
        Returns at once; called from another thread. Raises UserError if the job does not run.
        """
        self._running().stop()

    def cancel(self) -> None:
        """Ask a running job to end at once: the epoch under way is aborted.

        `run` returns in its thread when all is settled. With ``DELETE_ON_CANCELLATION`` the job's
        checkpoints are deleted then. Returns at once; called from another thread. Raises UserError
        if the job does not run.
        """
        self._running().cancel()

    def _running(self) -> Supervisor:
        if self._run is None or self._run.supervisor.end is not None:
            raise UserError(f"Job {self.declaration.name!r} is not running in this program")
        return self._run.supervisor

    @property
    def _storage(self) -> str:
        return storage_directory(self.declaration.checkpoint.storage)

    @property
    def _directory(self) -> str:
        return f"{self._storage}/{self.declaration.directory}"

    def _current(self) -> str:
        """Return the directory of the lineage that goes on under the job's name."""
        return f"{self._storage}/{current_directory(self._storage, self.declaration.directory)}"

    def _spark_settings(
        self, spark: SparkSession, parallelism: int | None, in_real_time: bool
    ) -> dict[str, str]:
        checkpoint, given = self.declaration.checkpoint, self._given()
        return {
            **backend_settings(spark, checkpoint, given),
            **query_settings(checkpoint, given),
            **({PARTITIONS: str(parallelism)} if parallelism else {}),
            **(real_time_settings(checkpoint.interval_s) if in_real_time else {}),
        }

    def _given(self) -> set[str]:
        """The settings given by the program, the settings file or the command line."""
        return {
            key.removeprefix("checkpoint.")
            for key, setting in self._settings.items()
            if setting.origin != DEFAULT
        }


def _caller() -> str:
    """Return the place of the program that has called a method here: file and line."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
