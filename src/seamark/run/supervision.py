"""Keeps one job running: runs it, judges its failures, and runs it again or gives up.

One loop: start a `StreamRun` (a new generation of the job) -> it ends or fails -> `failures.judge`
-> a tolerated checkpoint failure goes on at once, any other failure asks the restart strategy ->
wait -> again. Each restart goes on from the last decided epoch. The protocol's recovery aborts the
undecided rest of the run before, as after a crash.

Invariants: one `StreamRun` at a time, and a new one only when the query of the last has ended;
`stop` and `cancel` end the loop at any moment, also in a delay; checkpoints are deleted only after
a settlement without errors.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from seamark.api.config import ExternalizedCheckpointRetention
from seamark.api.declarations import JobDeclaration
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.executions import (
    ExecutionEnd,
    ExecutionFailure,
    ExecutionRecorder,
    ExecutionStart,
    Sign,
    announce,
)
from seamark.checkpoint.lineages import LINEAGES
from seamark.checkpoint.store import LEASES
from seamark.model.errors import SeamarkError, TooManyFailedCheckpointsError, UserError
from seamark.model.ignored import ignored
from seamark.model.job_state import JobState
from seamark.model.redaction import Redactor
from seamark.run.failures import (
    CheckpointFailureReason,
    FailedCheckpoint,
    Verdict,
    judge,
    reason_of,
)
from seamark.run.query import StreamRun
from seamark.spark.hadoop_files import open_files

log = logging.getLogger(__name__)

DRAIN_PATIENCE_S = 10.0
"""How long a stopping job waits for the epoch under way; the whole stop is promised within 30 s."""
DELETE = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
DELETE_ATTEMPTS = 5


class Supervisor:
    """Runs one job to its end. Used once; any thread may call `stop` and `cancel`.

    `new_run` makes the next run; `directory` is the job's, as a URI. `redactor` keeps secrets out
    of records and logs. `begun` is called with the job's id as soon as the job has begun to run; it
    returns the execution's start record and the function to sign it.
    """

    def __init__(
        self,
        spark: SparkSession,
        declared: JobDeclaration,
        new_run: Callable[[], StreamRun],
        directory: str,
        redactor: Redactor,
        begun: Callable[[str], tuple[ExecutionStart, Sign]],
    ) -> None:
        self._spark = spark
        self._name = declared.name
        self._checkpoint = declared.checkpoint
        self._bounded = declared.bounded
        self._new_run = new_run
        self._directory = directory
        self._redactor = redactor
        self._begun = begun
        self._backoff = declared.checkpoint.restart_strategy.backoff()
        self._consecutive: list[FailedCheckpoint] = []
        self._started = False
        self._told_to_end = threading.Event()
        self._newest = threading.Lock()
        """Held while `_run` and `_reading` change."""
        self._reading: StreamRun | None = None
        """The newest run that may have a query: not one made after the job was told to end."""
        self._patience_s = DRAIN_PATIENCE_S
        self._program_ends = False
        self._run: StreamRun | None = None
        self._waits_to_restart = False
        self._down_since_s: float | None = None
        self.first_start = threading.Event()
        """Set when the first start has succeeded, or the job has ended."""
        self.started_at = time.time()
        self.cancelled = False
        self.end: ExecutionEnd | None = None
        """How the job has ended; set last of all."""
        self.outcome: Future[JobState] = Future()
        """Done just before `run` returns; fails with the error `run` is about to raise."""
        self.restarts = 0
        self.execution = ExecutionRecorder()
        self.failed_checkpoints: list[FailedCheckpoint] = []
        """Every failed checkpoint of this program's run of the job, tolerated or not."""

    def run(self) -> None:
        """Run the job until it has ended well, with everything settled, or raise its error."""
        try:
            self._keep_running()
        except BaseException as error:
            self._end(JobState.FAILED, error)
            raise
        else:
            deletes = self.cancelled and self._checkpoint.externalized_retention is DELETE
            if deletes and self._run is not None and (why := self._run.coordinator.still_needed()):
                log.warning("job %s: %s is kept: %s", self._name, self._directory, why)
                deletes = False
            if deletes:
                self._delete_checkpoints()
            state = JobState.CANCELED if self.cancelled else JobState.FINISHED
            self._end(state, recorded=not deletes)

    def never_ran(self, error: BaseException) -> None:
        """End with `error`, unless `run` has ended: it may not have been called."""
        if not self.outcome.done():
            self._end(JobState.FAILED, error)

    def _end(
        self, state: JobState, error: BaseException | None = None, *, recorded: bool = True
    ) -> None:
        end = ExecutionEnd(state, time.time(), self._reason(error) if error is not None else "")
        if recorded:
            self.execution.end(end)
        self.end = end
        if error is None:
            self.outcome.set_result(state)
        else:
            self.outcome.set_exception(error)
        self.first_start.set()

    @property
    def state(self) -> JobState:
        """The job's present state, or its final state after the end."""
        if self.end is not None:
            return self.end.state
        if self.cancelled:
            return JobState.CANCELLING
        if self._waits_to_restart:
            return JobState.RESTARTING
        return JobState.RUNNING if self._started else JobState.INITIALIZING

    @property
    def restarting_s(self) -> float:
        """Seconds since the failure from which the job has not recovered yet; 0 while it runs."""
        down_since_s = self._down_since_s
        return time.monotonic() - down_since_s if down_since_s is not None else 0.0

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query of the newest run; None while it starts."""
        return self._run.query if self._run is not None else None

    @property
    def coordinator(self) -> Coordinator | None:
        """The newest run's coordinator; None before the first run."""
        return self._run.coordinator if self._run is not None else None

    def trigger_checkpoint(self) -> Future[int]:
        """Begin an epoch now; see `Job.trigger_checkpoint`."""
        return self.running().trigger_checkpoint()

    def running(self) -> StreamRun:
        """Return the run; raises UserError if the job is not RUNNING."""
        run = self._run
        if run is None or self.state is not JobState.RUNNING or self._told_to_end.is_set():
            state = "ending" if self._told_to_end.is_set() else self.state.value
            raise UserError(
                f"job {self._name} is {state}: it takes a checkpoint only while it is RUNNING"
            )
        return run

    @property
    def job_id(self) -> str:
        """The job's id; "" until it is known, in the first start."""
        identity = self._run.coordinator.identity if self._run is not None else None
        return identity.job_id if identity is not None else ""

    def _keep_running(self) -> None:
        delay_s = 0.0
        while not self._told_to_end.wait(delay_s):
            self._waits_to_restart = False
            try:
                run = self._next_run()
                if self._told_to_end.is_set():  # while it was made: no query for it
                    break
                self._live(run)
                return
            except Exception as error:
                if self._told_to_end.is_set() or self._run is None:
                    raise
                if self._down_since_s is None:
                    self._down_since_s = time.monotonic()
                delay_s = self._after_failure(self._run, error)
                self._waits_to_restart = True
        if self._started or self.cancelled:
            self._settle()

    def stop(self, *, program_ends: bool = False) -> Future[JobState]:
        """End the job after the epoch under way; `run` returns then. All checkpoints are kept.
        Return the `outcome` to come.

        `program_ends`: the program ends too, so a query cut off is no error.
        """
        self._program_ends = program_ends
        self._told_to_end.set()
        run = self._run
        if run is not None:
            run.give_up_recovery()
        return self.outcome

    def cancel(self) -> Future[JobState]:
        """End the job at once, as `stop`: the epoch under way is aborted."""
        self._patience_s = 0.0
        self.cancelled = True
        return self.stop()

    def end_with(self, run: StreamRun, ask: Callable[[], object]) -> bool:
        """Call `ask`, which asks for the job's end, unless the job has ended, or has gone on in a
        later run than `run`; return whether `run` is the job's last one."""
        with self._newest:
            if self._reading is not run:
                return False
            if self.end is None:  # else the program may have begun the job again: not to be ended
                with contextlib.suppress(UserError):  # it ends by itself, just now
                    ask()
            return True

    def _next_run(self) -> StreamRun:
        run = self._new_run()
        if self._run is not None and self._started:  # it must find the same job again
            run.coordinator.identity = self._run.coordinator.identity
        with self._newest:
            self._run = run
            if not self._told_to_end.is_set():
                self._reading = run
        if self._told_to_end.is_set():  # while it was made
            run.give_up_recovery()
        return run

    def _live(self, run: StreamRun) -> None:
        try:
            run.start()
        except SeamarkError as error:
            if self._told_to_end.is_set() and not self.cancelled:
                log.info("told to stop during the start, which then failed: %s", error)
                return  # as if never started: the next start settles the rest
            raise
        if not self._started:
            start = None
            with run.coordinator.upkeep.spared("record of the execution"):
                start, sign = self._begun(self.job_id)
                self.execution.begin(open_files(self._spark, self._directory), start, sign)
            if start is not None:  # `seamark run -d` waits for this one
                with run.coordinator.upkeep.spared("announcement of the job"):
                    announce(start, self._directory)
        self._started = True
        self._down_since_s = None
        self.first_start.set()
        while not run.wait(0.2):
            if self._told_to_end.is_set():
                if self._program_ends:
                    logging.getLogger("py4j").setLevel(logging.CRITICAL)
                    with ignored(
                        "the silence of Spark's log"
                    ):  # the JVM may have got the signal too
                        self._spark.sparkContext.setLogLevel("OFF")
                run.stop(self._patience_s)

    def _settle(self) -> None:
        """Told to end while no query runs: commit or abort the epochs left by the failed run."""
        try:
            self._next_run().settle()
        except SeamarkError as error:
            if self.cancelled:
                raise
            log.warning("what the failed run has left is for the next start: %s", error)

    def _delete_checkpoints(self) -> None:
        """Delete this lineage, never one below it. A restore may supersede it at any moment, while
        this driver sleeps: so it looks again and again, and the last lease is not its to delete."""
        above, _, name = self._directory.rpartition("/")
        files, coordinator = open_files(self._spark, self._directory), self.coordinator
        newest = math.inf if coordinator is None else coordinator.generation
        for left in reversed(range(DELETE_ATTEMPTS)):
            try:
                for entry in sorted(set(files.list("")) - {LINEAGES, LEASES}):
                    if coordinator is not None and (why := coordinator.still_needed()):
                        log.warning("job %s: %s is kept: %s", self._name, self._directory, why)
                        return
                    files.delete(entry)
                for lease in files.list(LEASES):
                    number = lease.partition(".")[0]
                    if not number.isdigit() or int(number) <= newest:
                        files.delete(f"{LEASES}/{lease}")
                if not files.list(LEASES) and LINEAGES not in files.list(""):
                    open_files(self._spark, above).delete(name)
                log.info("job %s is cancelled; %s is deleted", self._name, self._directory)
                return
            except Exception as error:
                if not left:
                    log.warning("%s could not be deleted: %s", self._directory, error)
                time.sleep(0.2)  # Spark's state maintenance may still write there

    # --- after a failure

    def _after_failure(self, run: StreamRun, error: Exception) -> float:
        """Return the seconds until the next run; without one raise the job's error."""
        try:
            delay_s = self._delay_s(run, error)
        except Exception as fatal:
            self._add_failure(run, fatal, restarted=False)
            raise
        self._add_failure(run, error, restarted=True)
        return delay_s

    def _add_failure(self, run: StreamRun, error: Exception, *, restarted: bool) -> None:
        kind, epoch = type(error).__name__, run.coordinator.failing_epoch
        self.execution.add_failure(
            ExecutionFailure(time.time(), epoch, kind, self._reason(error), restarted)
        )

    def _reason(self, error: BaseException) -> str:
        return self._redactor(reason_of(error))

    def _delay_s(self, run: StreamRun, error: Exception) -> float:
        verdict = judge(error, first_start=not self._started)
        if verdict is Verdict.FATAL:
            raise error
        if isinstance(verdict, CheckpointFailureReason):
            self._count(run, verdict, error)
            tolerable = self._checkpoint.tolerable_failed_checkpoints
            if len(self._consecutive) <= tolerable:
                log.warning(
                    "job %s: checkpoint failure %d of %d that are tolerated: %s",
                    self._name, len(self._consecutive), tolerable, self._consecutive[-1],
                )  # fmt: skip
                return self._until_next_epoch_s(run)
            error = self._too_many(error)
        delay_s = self._backoff(time.monotonic())
        if delay_s is None:
            log.error(
                "job %s fails after %d restarts (%s): %s",
                self._name, self.restarts, self._checkpoint.restart_strategy, reason_of(error),
            )  # fmt: skip
            raise error
        self.restarts += 1
        log.warning(
            "job %s failed: %s; restart %d in %.1f s (%s)",
            self._name, reason_of(error), self.restarts, delay_s, self._checkpoint.restart_strategy,
        )  # fmt: skip
        return delay_s

    def _count(self, run: StreamRun, reason: CheckpointFailureReason, error: Exception) -> None:
        if run.coordinator.has_completed_epoch:
            self._consecutive.clear()
        failed = FailedCheckpoint(
            run.coordinator.failing_epoch, time.time(), reason, self._reason(error)
        )
        self._consecutive.append(failed)
        self.failed_checkpoints.append(failed)

    def _too_many(self, error: Exception) -> TooManyFailedCheckpointsError:
        reasons = "; ".join(str(failed) for failed in self._consecutive)
        count, tolerable = len(self._consecutive), self._checkpoint.tolerable_failed_checkpoints
        self._consecutive.clear()  # as in Flink: a restarted job begins anew
        failure = TooManyFailedCheckpointsError(
            f"job {self._name}: {count} checkpoints failed one after another, and "
            f"tolerable_failed_checkpoints is {tolerable}: {reasons}"
        )
        failure.__cause__ = error
        return failure

    def _until_next_epoch_s(self, run: StreamRun) -> float:
        """Return the seconds until the next epoch would have begun, at least the minimum pause; the
        failed epoch runs again then. An immediate retry would use up all tolerated failures within
        a second of a storage outage."""
        interval_s = 0.0 if self._bounded else self._checkpoint.interval_s
        left_s = run.coordinator.begun_s + interval_s - time.monotonic()
        return max(left_s, self._checkpoint.min_pause_s)
