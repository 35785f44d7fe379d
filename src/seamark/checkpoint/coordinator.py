"""The checkpoint coordinator of one driver: drives the protocol for one Spark query.

Life: `start` takes the job over, runs the preflight and recovers. For each epoch Spark's stream
thread calls `begin_epoch` and `store_epoch`; meanwhile the commit thread waits for the decision of
each stored epoch and commits it. `finish` settles the rest after Spark's query has ended. `epochs`
holds the epochs under way.

Invariants:
- between `start` and `finish` the commit thread is the only caller of committers, except for
  `_abort_failed_attempts` and `_commit_early`; both hold the same lock;
- once `failure` is set, nothing more is stored or committed;
- only the decisive part of an epoch can fail the run: what follows its commit is `Upkeep`.
"""

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from seamark.api.config import CheckpointMode
from seamark.checkpoint.accepted_losses import AcceptedLoss, read_losses
from seamark.checkpoint.channel_state import NO_CHANNEL_STATE, ChannelState
from seamark.checkpoint.checkpointed_job import CheckpointedJob, QueryRun
from seamark.checkpoint.copied import require_no_copy
from seamark.checkpoint.epoch_queue import LONGEST_POLL_S, EpochQueue
from seamark.checkpoint.flow_figures import FlowFigures
from seamark.checkpoint.garbage import Garbage
from seamark.checkpoint.ledger import LedgerWriter
from seamark.checkpoint.sink_commits import (
    LISTING_DEADLINE_S,
    CommittedElsewhereError,
    SinkCommits,
)
from seamark.checkpoint.sink_epoch import PreparedSinks, SinkEpoch
from seamark.checkpoint.statistics_recorder import StatisticsRecorder
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.store import JobIdentity
from seamark.checkpoint.task_reports import EpochProgress, KeyedFigures, TaskReport, sink_epochs
from seamark.checkpoint.upkeep import Upkeep
from seamark.model import failpoints
from seamark.model.checkpoint_statistics import CheckpointStatus
from seamark.model.errors import (
    AbortFailedError,
    CheckpointExpiredError,
    DecisionVoidError,
    FencedError,
    QueryHangsError,
    RecordNotStoredError,
    SeamarkError,
    StoppedError,
)
from seamark.model.ignored import ignored
from seamark.protocol import procedures
from seamark.protocol.points import Point
from seamark.protocol.states import AttemptEvent, AttemptState

log = logging.getLogger(__name__)

FIRST_POLL_S = 0.002
IDLE_CHECK_S = 5.0
LONGEST_WAIT_S = 3600.0
"""A thread's longest single wait: a condition accepts at most some 292 years."""
LINGERING_CHECK_S = 300.0
COMMIT_DEADLINE_S = 600.0
COMMIT_THREAD_END_S = 60.0
"""Time allowed to a commit beyond its sinks' deadline, for its records in the storage."""
LAST_WORDS_S = 5.0
"""Time for a system without an answer, once the run is being ended."""


class Coordinator:
    """The link between one Spark query and the sinks of its job. `run` is the query's run:
    the coordinator queries and notifies it. `flow` adds up the flow over all runs of the job."""

    def __init__(
        self,
        job: CheckpointedJob,
        run: QueryRun | None = None,
        flow: FlowFigures | None = None,
        *,
        commit_deadline_s: float = COMMIT_DEADLINE_S,
    ) -> None:
        self._job = job
        self._store = job.store
        self._run = run or QueryRun()
        self._flow = flow or FlowFigures()
        self._commit_deadline_s = commit_deadline_s
        self._commits = SinkCommits(
            job, self._run.open_files, self._flow.commits, deadline_s=commit_deadline_s
        )
        self._ledger = LedgerWriter(self._store)
        self._garbage = Garbage(self._store)
        self.upkeep = Upkeep()
        self._committing = threading.Lock()
        self._retried_s = -math.inf
        self._attempts_left = False
        """Whether a failed attempt's transactions may be open: they are for the next epoch."""
        self._thread: threading.Thread | None = None
        checkpoint = job.checkpoint
        self.epochs = EpochQueue(checkpoint.max_concurrent_checkpoints, checkpoint.min_pause_s)
        self.left_open = False
        """Whether `finish` could not abort what lingers: the next start does, by the checkpoint."""
        self.generation = 0
        self.identity: JobIdentity | None = None
        self.losses: Sequence[AcceptedLoss] = ()
        """The losses that operators had accepted when this driver started."""
        self.restored_epoch = -1
        self.last_stored = -1
        self.channel_state = NO_CHANNEL_STATE
        """Of the last stored epoch: the next epoch begins with these rows."""
        self.last_sealed = -1
        """The newest epoch with a final decision: its commit has begun, at least."""
        self.last_committed = -1
        self.history: deque[EpochProgress] = deque(maxlen=1000)
        """The last committed epochs of this driver, oldest first, without their tasks."""
        self.begun_s = time.monotonic()
        """The start of the newest epoch; before the first one, the making of the coordinator."""
        self.has_completed_epoch = False
        """Whether an epoch of this driver is decided: that was seen, or a later epoch began."""
        self.statistics = StatisticsRecorder(
            StatisticsStore(job.store.files),
            {uid: sink.describe() for uid, sink in job.sinks.items()},
            self._run,
            self._flow.add,
        )

    # --- before Spark's query

    def start(self) -> None:
        """Take the job over and settle everything left by older drivers.

        Nothing is written before this returns; afterwards Spark's query may start. Raises
        PreflightError, CheckpointError, …
        """
        job, store = self._job, self._store
        if self.identity is None:
            store.preflight()
            require_no_copy(store, self._run.open_files)
        else:  # a restart in the same program: the job must be the same
            store.check_identity(self.identity)
        self.identity = store.open(job.name)
        for uid, sink in job.sinks.items():
            sink.check_transaction_scope(job.context(uid, 0, self.identity))
        with self.upkeep.spared("accepted losses, for people"):
            self.losses = read_losses(store.files)
        self.generation = failpoints.drive(procedures.take_over(store))
        with contextlib.ExitStack() as begun:
            begun.callback(self._commits.close)
            self._commits.attach(self.generation, self.identity)
            self._commits.preflight()
            decided = failpoints.drive(procedures.recover(self.generation, store, self._commits))
            with ignored("the look for targets put back"):  # a uid may have another kind of sink
                winner = procedures.winner_of(store.epoch(decided))
                if winner is not None and decided not in {loss.epoch for loss in self.losses}:
                    self._commits.tell_put_back(decided, winner)
            self.restored_epoch = self.last_stored = decided
            self.last_committed = self.last_sealed = decided
            self.channel_state = store.channel_state(decided)
            with self.upkeep.spared("checkpoint statistics"):
                origin = self.identity.restored_from if self.generation == 1 else None
                self.statistics.start(self.identity, self.generation, decided, origin)
            log.info(
                "job %s (%s): generation %d goes on after epoch %d",
                job.name, self.identity.job_id, self.generation, decided,
            )  # fmt: skip
            self.upkeep.later("old records", partial(self._tidy, decided))
            if not job.left:
                self.upkeep.later("spools", partial(self._garbage.forget_settled_rows, decided))
            self._thread = threading.Thread(
                target=self._commit_loop, name="seamark-commit", daemon=True
            )  # `finish` waits for it
            self._thread.start()
            begun.pop_all()
        threading.Thread(target=self._watch_timeout, name="seamark-timeout", daemon=True).start()

    # --- on Spark's stream thread, once an epoch, each call within `guarded`

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Fail the run with any error of the block, except StoppedError: a stop ends the query."""
        try:
            yield
        except StoppedError:
            raise
        except BaseException as error:
            self.fail(error)
            raise

    def begin_epoch(self, epoch: int) -> int:
        """Note that Spark has planned `epoch`; return the last epoch with a recorded outcome."""
        self.has_completed_epoch |= self.last_stored > self.restored_epoch
        with self.epochs.beginning(epoch):
            failpoints.reached(Point.EPOCH_STARTED.value)
            try:
                procedures.check_continuity(epoch, self.last_stored)
            except DecisionVoidError:
                procedures.check_fence(self._store, self.generation)  # or a newer driver decided it
                raise
            self.begun_s = time.monotonic()
            progress = EpochProgress(epoch, 0, AttemptState.PENDING, self.begun_s)
            self.epochs.begin(progress)
            self._flow.triggered += 1
            self.statistics.begun(progress)
            return self.last_committed

    def claim_epoch(self, epoch: int) -> bool:
        """Return whether the epoch's rows are to be written: not if an earlier run has claimed it
        at-most-once. Then the rows not written by that run are lost.

        At-most-once: claims the epoch for this run alone, before it is processed.
        """
        if self._job.checkpoint.mode is CheckpointMode.AT_MOST_ONCE:
            first = procedures.claim_epoch(epoch, self.generation, self._store)
            failpoints.reached("epoch-claimed")
        else:  # the mode may have changed since
            begun = epoch == self.restored_epoch + 1
            first = not begun or self._store.claimed_plan(epoch) is None
        if not first:
            log.warning(
                "epoch %d was begun by an earlier run and is skipped (at-most-once): its rows that "
                "no sink had committed by then are lost",
                epoch,
            )
        return first

    def store_epoch(
        self,
        epoch: int,
        tasks: Sequence[TaskReport],
        channel_state: ChannelState = NO_CHANNEL_STATE,
        *,
        retried: bool,
        keyed: Mapping[str, KeyedFigures] | None = None,
    ) -> None:
        """Store the flushed transactions of all sinks, so that Spark may decide the epoch.

        `tasks` are the winning attempts, one for each partition. `channel_state`: all rows left;
        `keyed`: the bytes of those left in keyed operators, by uid.

        `retried`: a task of this epoch ran, or may have run, more than once. Its dead attempt may
        have left an open transaction, and readers would wait for it; it is aborted here, while no
        task runs.

        Blocks while `max_concurrent` stored epochs are uncommitted.
        """
        progress = self.epochs.current
        assert progress is not None and progress.epoch == epoch
        sinks = sink_epochs(tasks)
        sinks.channel_state = channel_state
        progress.tasks = tasks
        progress.persisted_bytes = channel_state.size_bytes
        progress.keyed = keyed or {}
        progress.rows = sum(part.rows for part in sinks.values())
        progress.moved(AttemptEvent.PRE_COMMIT)
        progress.pre_committed_s = time.monotonic()
        self.epochs.await_room(epoch)
        if self._job.visible_before_decision:
            sinks = self._commit_early(epoch, sinks)
        self._commits.remember(epoch, self.generation, sinks)
        self._garbage.stored(epoch, channel_state)
        failpoints.drive(procedures.store_attempt(epoch, self.generation, sinks, self._store))
        progress.moved(AttemptEvent.STORE)
        self.last_stored = epoch
        self.channel_state = channel_state
        if retried:
            self._retried_s = time.monotonic()
        if retried or self._attempts_left:
            self._attempts_left = not self._abort_failed_attempts(epoch)
        progress.stored_s = time.monotonic()
        self.epochs.add(progress)

    def _commit_early(self, epoch: int, sinks: PreparedSinks) -> PreparedSinks:
        """At-least-once and at-most-once: make the rows visible now; nothing is left to commit."""
        self._commits.remember(epoch, self.generation, sinks)
        with self._committing:
            for uid in self._commits.uids:
                self._commits.commit(uid, epoch, self.generation)
        visible = PreparedSinks((u, replace(part, committables=())) for u, part in sinks.items())
        visible.channel_state = sinks.channel_state
        return visible

    def _abort_failed_attempts(self, epoch: int) -> bool:
        """Return whether none is left."""
        with self._committing:
            keep = self._commits.handles(epoch, self.generation)
            for waiting in list(self.epochs.uncommitted):
                keep |= self._commits.handles(waiting.epoch, self.generation)
            return self._commits.sweep(self.generation + 1, keep)

    # --- queries from other threads

    @property
    def settled_below(self) -> int:
        """Every generation below is fenced, and its attempts are settled; 0 before `start` returns.
        A transaction still open there was begun by a sleeping task that woke up."""
        return 0 if self._thread is None else self.generation

    @property
    def failure(self) -> BaseException | None:
        """The error this run has failed with; None if it has not failed."""
        return self.epochs.failure

    @property
    def failing_epoch(self) -> int:
        """The epoch hit by a failure of the run: the newest epoch begun, or the next."""
        begun = self.epochs.in_progress()
        return begun[-1].epoch if begun else self.last_stored + 1

    def pending_committables(self) -> Mapping[str, int]:
        """Return the number of each sink's flushed transactions waiting for their commit."""
        return self._commits.pending()

    # --- savepoints, from other threads; `epochs` pins the stream for them

    def seal_waiting(self, epoch: int, since_s: float) -> None:
        """Seal a decided epoch, and the uncommitted epochs before it, for a savepoint of it.

        Does so only if `epoch` waits for earlier commits and some sink has not made them for
        `since_s` seconds. Raises FencedError if a newer driver has taken the job over.
        """
        if (waiting := self.epochs.overdue(epoch, since_s)) and self._is_decided(epoch):
            for each in waiting:
                procedures.seal_decided(each, self.generation, self._store)
            self.last_sealed = max(self.last_sealed, epoch)

    def uncommitted_up_to(
        self, epoch: int, patience_s: float
    ) -> Mapping[int, Mapping[str, SinkEpoch]]:
        """Return the uncommitted transactions up to a sealed epoch, by epoch and sink.

        Waits until all are committed, then returns {}; but at most `patience_s` seconds after the
        first attempt to commit. The epochs are this driver's.
        """
        waiting = self.epochs.await_commits(epoch, patience_s)
        return {each: self._store.read_prepared(each, self.generation) for each in waiting}

    def unsent_rows(self, uid: str, part: SinkEpoch) -> tuple[SinkEpoch, Mapping[str, str]]:
        """Do as `CheckpointedJob.unsent_rows`, for an epoch of this driver."""
        assert self.identity is not None
        return self._job.unsent_rows(uid, part, self.generation, self.identity)

    # --- the commit thread

    def _commit_loop(self) -> None:
        lingering_at = time.monotonic() + LINGERING_CHECK_S
        try:
            while True:
                progress = self.epochs.next(IDLE_CHECK_S)
                if self.failure is not None:
                    return
                if progress is not None:
                    if not self._await_decision(progress) or self.failure is not None:
                        return
                    self._commit(progress)
                elif not self.epochs.over:
                    self._check_foreign_decision()
                elif not self.epochs.uncommitted:
                    return
                if time.monotonic() > lingering_at:
                    self._abort_older()
                    lingering_at = time.monotonic() + LINGERING_CHECK_S
        except BaseException as error:  # the thread's end must reach the caller of `run`
            self.fail(error)

    def _await_decision(self, progress: EpochProgress) -> bool:
        """Wait for Spark's commit-log entry; return False if the run is over before it is seen.

        Spark's start of the next epoch proves the entry too: the entry may be gone again, deleted
        by a fenced driver that takes back a decision late (docs/adr/0003-seal.md).
        """
        pause_s = FIRST_POLL_S
        while True:
            over = self.epochs.over  # first: a query that has ended may have decided just before
            asked_s = time.monotonic()
            if self._store.is_decided(progress.epoch):
                return True
            pause_s = max(pause_s, 2 * (time.monotonic() - asked_s))  # object stores are slow
            if over:
                return False
            if self.epochs.await_later(progress.epoch, pause_s):
                return True
            pause_s = min(pause_s * 1.2, LONGEST_POLL_S)

    def _commit(self, progress: EpochProgress) -> None:
        progress.moved(AttemptEvent.DECIDE)
        self.has_completed_epoch = True
        progress.decided_s = time.monotonic()
        steps = procedures.commit_attempt(
            progress.epoch, self.generation, self._store, self._commits
        )
        uids = iter(self._commits.uids)
        with self._committing:
            for point in steps:
                failpoints.reached(point.value)
                if point is Point.SEALED:
                    progress.moved(AttemptEvent.SEAL)
                    progress.commit_started_s = before_s = time.monotonic()
                    self.last_sealed = max(self.last_sealed, progress.epoch)
                elif point is Point.SINK_COMMITTED:
                    now_s = time.monotonic()
                    progress.sink_commit_s[next(uids)] = now_s - before_s
                    before_s = now_s
        progress.moved(AttemptEvent.CONFIRM)
        progress.committed_s = time.monotonic()
        sinks = self._commits.parts(progress.epoch, self.generation)
        self._commits.forget(progress.epoch, self.generation)
        self.last_committed = progress.epoch
        self.epochs.committed(progress)
        self._follow_up(progress, sinks)

    def _follow_up(self, progress: EpochProgress, sinks: Mapping[str, SinkEpoch]) -> None:
        """Do what follows a commit: no later epoch depends on it, so no failure of it may end one.
        The storage's part is done on a thread of its own: a hanging deletion holds up no commit."""
        epoch, upkeep = progress.epoch, self.upkeep
        retained = self._job.checkpoint.num_retained
        # A thousand tasks' reports are ten megabytes, and a thousand epochs are kept.
        self.history.append(replace(progress, tasks=()))
        with upkeep.spared("checkpoint statistics"):
            self.statistics.committed(epoch)
        upkeep.later("old records", partial(self._tidy, epoch, sinks))
        upkeep.later("channel state", partial(self._garbage.forget_channel_state, epoch, retained))
        upkeep.later("spools", partial(self._job.forget_rows, epoch))
        for what, work in self._run.after_commit(epoch).items():
            upkeep.later(what, work)

    def _tidy(self, epoch: int, sinks: Mapping[str, SinkEpoch] | None = None) -> None:
        """Write the ledger up to a committed epoch; only then delete records that it replaces.
        `sinks`: the epoch's parts, if this driver has committed it."""
        if sinks is None:
            self._ledger.catch_up(epoch)
        else:
            self._ledger.committed(epoch, self.generation, sinks)
        self._garbage.prune(epoch, self._job.checkpoint.num_retained)

    def _check_foreign_decision(self) -> None:
        """Find a decision that a fenced driver wrote while this one was idle; raise
        DecisionVoidError for it."""
        latest = self.last_stored
        with self.upkeep.spared("look for another driver's decision"):
            latest = self._store.latest_decision()
        if latest > self.last_stored:
            procedures.check_fence(self._store, self.generation)  # or a newer driver decided it
            raise DecisionVoidError(
                f"epoch {latest} was decided by a driver that this one has fenced; that decision "
                "is void. Start the job again, and the epoch runs again"
            )

    def _abort_older(self) -> None:
        try:
            procedures.check_fence(self._store, self.generation)
            with self._committing:
                self._commits.sweep(self.generation)
        except CommittedElsewhereError:  # rows of an undecided attempt are visible
            raise
        except (AbortFailedError, RecordNotStoredError) as error:  # nothing depends on this round
            log.warning("lingering transactions could not be aborted, will try again: %s", error)

    def fail(self, error: BaseException) -> None:
        """Stop this run: nothing more is stored or committed, and `finish` raises `error`."""
        self.give_up()  # the next start asks again, with all its time
        self.epochs.fail(error)
        log.error("job %s stops: %s", self._job.name, error)
        self._run.stop_soon()

    # --- the timeout thread

    def _watch_timeout(self) -> None:
        """Fail the run when an epoch is not decided within the timeout."""
        decided = -1  # the commit thread may be behind: it commits one after another
        epochs, timeout_s = self.epochs, self._job.timeout_s
        try:
            while not epochs.over:
                with epochs.changed:
                    late, left_s = epochs.undecided(decided), LONGEST_WAIT_S
                    if late is not None:
                        left_s = late.started_s + timeout_s - time.monotonic()
                    if late is None or left_s > 0:
                        epochs.changed.wait(min(left_s, LONGEST_WAIT_S))
                        continue
                if self._is_decided(late.epoch):
                    decided = late.epoch
                elif not epochs.over:
                    raise CheckpointExpiredError(
                        f"epoch {late.epoch} was not decided within {timeout_s:g} s; it is "
                        "aborted and runs again. Raise CheckpointConfig timeout, or make epochs "
                        "smaller at the source"
                    )
        except BaseException as error:
            self.fail(error)

    def _is_decided(self, epoch: int) -> bool:
        """Return whether the epoch is known to be decided. A silent storage counts as late."""
        try:
            return self._store.is_decided(epoch)
        except RecordNotStoredError as error:
            log.warning("%s", error)
            return False

    # --- a stop from outside

    def drain(self, patience_s: float) -> None:
        """Let the epoch under way be committed and hold back the next one.

        Returns once it is committed, or after `patience_s` seconds. Then the caller stops Spark's
        query and calls `epochs.turn_away`.
        """
        if not self.epochs.drain(patience_s):
            self.give_up()

    def give_up(self) -> None:
        """Limit the time for a system without an answer to some seconds more."""
        self._commits.give_up_at = time.monotonic() + LAST_WORDS_S

    # --- after Spark's query

    def finish(self, quiesce_s: float = 0.0, reason: str = "the job was stopped") -> None:
        """Settle this driver's epochs. Spark's query must have ended: it decides no more.

        Commits the decided epochs; aborts the rest and every open transaction of this driver, so
        that no reader waits for one. If only a lingering one cannot be aborted, the run has ended
        well all the same, with `left_open` and a warning. `quiesce_s`: how long cancelled tasks may
        still write; the sweep is repeated after it for an epoch cut off in the middle, or with
        other attempts than the winners. `reason`: the failure of an epoch under way, for the
        statistics, unless this coordinator knows it.

        Raises the failure of the run, if there was one.
        """
        self.epochs.end()
        if self.failure is not None:
            self.give_up()
        if self._thread is not None:
            self._thread.join(self._commit_deadline_s + COMMIT_THREAD_END_S)
            if self._thread.is_alive():
                self.upkeep.close()
                raise QueryHangsError(
                    f"job {self._job.name}: the commit of an epoch has not come back: the "
                    "checkpoint storage hangs. End the program; the next start settles what is open"
                ) from self.failure
        commits = self._commits
        if not commits.uids:
            return  # `start` did not come so far
        try:
            if self.identity is not None:
                self._store.check_identity(self.identity)
            if self.failure is None:
                failpoints.drive(procedures.settle_own(self.generation, self._store, commits))
                # The next start aborts the rest too: no sink that hangs holds up the end for long.
                commits.deadline_s = min(commits.deadline_s, LISTING_DEADLINE_S)
                whole = commits.sweep(self.generation + 1, once=False)
                since = time.monotonic() if self.epochs.current is not None else self._retried_s
                if (wait_s := since + quiesce_s - time.monotonic()) > 0:
                    time.sleep(wait_s)
                    whole = commits.sweep(self.generation + 1, once=False)
                if not whole:
                    self.left_open = True
                    log.warning(
                        "job %s leaves transactions open, which its next start aborts before it "
                        "writes. None is decided; until then they may hold up readers",
                        self._job.name,
                    )
            else:
                self._abort_unstored(quiesce_s)
        except SeamarkError as error:
            self.epochs.fail(error)
        finally:
            with ignored("the end of the committers"):
                commits.close()
            self.upkeep.close()
            self.statistics.close(lambda progress: self._last_status(progress, reason))
        if self.failure is not None:
            raise self.failure

    def still_needed(self) -> str:
        """Return why the job's directory must not be deleted after `finish`; "" if it may be."""
        if self.left_open:
            return "by it the next start, or `seamark txn`, aborts what is still open"
        try:
            procedures.check_fence(self._store, self.generation)
        except (FencedError, RecordNotStoredError) as error:
            return str(error)
        return ""

    def _last_status(self, progress: EpochProgress, reason: str) -> tuple[CheckpointStatus, str]:
        """Return the final status of an epoch left open by the run, with the reason of its failure.
        A decided epoch is complete: the next start commits it, if this one could not."""
        if progress.stored_s and self._store.is_decided(progress.epoch):
            return CheckpointStatus.COMPLETED, ""
        return CheckpointStatus.FAILED, str(self.failure or reason)

    def _abort_unstored(self, quiesce_s: float) -> None:
        """Abort the transactions of a failed run that it has not stored; nobody can commit them.
        Otherwise readers would wait for them until the next driver's next sweep. Best effort."""
        commits = self._commits
        try:
            if self.epochs.current is not None and quiesce_s:
                time.sleep(quiesce_s)
            stored = commits.remembered_handles()  # a record may exist and be invisible now
            for epoch in reversed(self._store.epochs()):
                record = self._store.epoch(epoch)
                if record.committed is not None:
                    break
                if self.generation in record.prepared:
                    stored |= commits.handles(epoch, self.generation)
            self.give_up()
            commits.sweep(self.generation + 1, stored, once=False)
        except Exception as error:
            log.warning("open transactions are left to the next driver: %s", error)
