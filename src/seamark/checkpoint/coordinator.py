"""The checkpoint coordinator of one driver: drives the protocol for one Spark query.

Life: `start` (take over, preflight, recover) -> for each epoch, on Spark's stream thread,
`begin_epoch` and `store_epoch` -> meanwhile the commit thread waits for the decision of each stored
epoch and commits it -> `finish`, when Spark's query has ended.

Invariants:
- the commit thread, between `start` and `finish`, is the only caller of committers, but for
  `abort_failed_attempts`, which holds the same lock;
- an epoch is stored only when fewer than `max_concurrent` stored epochs are uncommitted;
- once `failure` is set nothing more is stored or committed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from seamark.checkpoint.call_deadline import CallHangsError, call_within
from seamark.checkpoint.epoch_progress import EpochProgress
from seamark.checkpoint.files_deadline import LONG_CALL_S, storage_hangs
from seamark.checkpoint.flow_figures import FlowFigures
from seamark.checkpoint.sink_commits import SinkCommits
from seamark.checkpoint.statistics_recorder import Measure, StatisticsRecorder
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.store import CheckpointStore, JobIdentity, SinkEpoch
from seamark.checkpoint.task_reports import TaskReport, sink_epochs
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.contracts.sink import SinkContext, TwoPhaseCommitSink
from seamark.contracts.spool import SpooledSink, spool_directory
from seamark.file_systems import HadoopSettings
from seamark.model import failpoints
from seamark.model.checkpoint_statistics import CheckpointStatus
from seamark.model.errors import (
    CheckpointError,
    CheckpointExpiredError,
    DecisionVoidError,
    FencedError,
    QueryHangsError,
    RecordNotStoredError,
    SeamarkError,
    StoppedError,
)
from seamark.model.redaction import redact
from seamark.model.schema import Schema
from seamark.protocol import procedures
from seamark.protocol.points import Point
from seamark.protocol.states import AttemptEvent, AttemptState

log = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_POLL_S = 0.002
LONGEST_POLL_S = 0.05
IDLE_CHECK_S = 5.0
LONGEST_WAIT_S = 3600.0
"""A thread's wait is cut here: a condition cannot be waited for longer than some 292 years."""
LINGERING_CHECK_S = 300.0
UNDECIDED = (AttemptState.PENDING, AttemptState.PRE_COMMITTED, AttemptState.PREPARED)
COMMIT_THREAD_END_S = 60.0
"""How much longer than its sinks' deadline a commit may take, which is then its records' share."""
LAST_WORDS_S = 5.0
"""How long a run that is being ended asks a system that does not answer."""


class Coordinator:
    """Everything between one Spark query and the sinks of its job."""

    def __init__(
        self,
        name: str,
        sinks: Mapping[str, TwoPhaseCommitSink[Any]],
        store: CheckpointStore,
        *,
        interval_s: float,
        schemas: Mapping[str, Schema] | None = None,
        hadoop: HadoopSettings | None = None,
        visible_before_decision: bool = False,
        max_concurrent: int = 1,
        timeout_s: float = math.inf,
        restart_delay_s: float = 0.0,
        min_pause_s: float = 0.0,
        num_retained: int = 100,
        commit_deadline_s: float = 600.0,
        on_failure: Callable[[], None] = lambda: None,
        measure: Measure = lambda epochs: {},
        open_files: Callable[[str], CheckpointFiles] | None = None,
        on_committed: Callable[[int], None] = lambda epoch: None,
        flow: FlowFigures | None = None,
        hide: Callable[[str], str] = redact,
    ) -> None:
        self._name = name
        self._declared = sinks
        self._store = store
        self._interval_s = interval_s
        self._schemas = schemas or {}
        self._hadoop = hadoop or HadoopSettings()
        self._early = visible_before_decision
        self._max_concurrent = max_concurrent
        self._timeout_s = timeout_s
        self._restart_delay_s = restart_delay_s
        self._min_pause_s = min_pause_s
        self._num_retained = num_retained
        self._commit_deadline_s = commit_deadline_s
        self._give_up_at = math.inf
        self._on_failure = on_failure
        self._open_files = open_files or _no_other_job
        self._on_committed = on_committed
        self._flow = flow or FlowFigures()
        self._changed = threading.Condition()
        self._committing = threading.Lock()
        self._uncommitted: deque[EpochProgress] = deque()
        self._current: EpochProgress | None = None
        self._beginning = False
        self._pause_until = 0.0
        self._retried_s = -math.inf
        self._ended = False
        self._draining = False
        self._pins: list[tuple[int, int]] = []
        self._turned_away = threading.Event()
        self._thread: threading.Thread | None = None
        self._commits: SinkCommits | None = None
        self.generation = 0
        self.identity: JobIdentity | None = None
        self.restored_epoch = -1
        self.last_stored = -1
        self.last_sealed = -1
        """The newest epoch whose decision nothing can take back: its commit has begun, at least."""
        self.last_committed = -1
        self.failure: BaseException | None = None
        self.history: deque[EpochProgress] = deque(maxlen=1000)
        """The last committed epochs of this driver, oldest first."""
        self.begun_s = time.monotonic()
        """When the newest epoch began; before the first one, when the coordinator was made."""
        self.has_completed_epoch = False
        """Whether an epoch of this driver has been decided: one seen, or begun after another."""
        self.statistics = StatisticsRecorder(
            StatisticsStore(store.files),
            {uid: sink.describe() for uid, sink in sinks.items()},
            measure,
            self._flow.add,
            hide,
        )

    # --- before Spark's query

    def start(self) -> None:
        """Take the job over and settle what older drivers left. Nothing is written before this
        returns; afterwards Spark's query may start. Raises PreflightError, CheckpointError, …"""
        if self.identity is None:
            self._store.preflight()
        else:  # a restart in the same program, which must find the same job
            self._store.check_identity(self.identity)
        self.identity = self._store.open(self._name)
        contexts = {uid: self._context(uid, generation=0) for uid in self._declared}
        for uid, sink in self._declared.items():
            sink.check_transaction_scope(contexts[uid])
        self.generation = _run(procedures.take_over(self._store))
        contexts = {uid: self._context(uid, self.generation) for uid in self._declared}
        self._commits = SinkCommits.attach(
            self._declared,
            contexts,
            self._store,
            self._commit_deadline_s,
            self._open_files,
            self._flow.commits,
        )
        self._commits.give_up_at = self._give_up_at
        try:
            self._commits.preflight()
            decided = _run(procedures.recover(self.generation, self._store, self._commits))
        except BaseException:
            self._commits.close()
            raise
        self.restored_epoch = self.last_stored = self.last_committed = decided
        self.last_sealed = decided
        self._store.prune(decided, self._num_retained)
        self._store.forget_settled_rows(decided)
        origin = self.identity.restored_from if self.generation == 1 else None
        self.statistics.start(self.identity, self.generation, decided, origin)
        log.info(
            "job %s (%s): generation %d goes on after epoch %d",
            self._name, self.identity.job_id, self.generation, decided,
        )  # fmt: skip
        self._thread = threading.Thread(
            target=self._commit_loop, name="seamark-commit", daemon=True
        )  # `finish` waits for it
        self._thread.start()
        threading.Thread(target=self._watch_timeout, name="seamark-timeout", daemon=True).start()

    def _context(
        self, uid: str, generation: int, identity: JobIdentity | None = None
    ) -> SinkContext:
        identity = identity or self.identity
        assert identity is not None
        return SinkContext(
            job_id=identity.job_id,
            job_name=self._name,
            sink_uid=uid,
            generation=generation,
            checkpoint_interval_s=self._interval_s,
            schema=self._schemas.get(uid, ()),
            hadoop=self._hadoop,
            spool_uri=self._store.spool_uri(uid),
            checkpoint_timeout_s=0.0 if self._early else self._timeout_s,
            restart_delay_s=self._restart_delay_s,
        )

    def find_damaged_rows(self, epoch: int, generation: int) -> list[str]:
        """Return a line for each damaged or missing file among the rows that sinks spool for a
        stored attempt; for `require_sound`, before `start`."""
        identity = self._store.read_identity()
        problems: list[str] = []
        for uid, part in self._store.read_prepared(epoch, generation).items():
            sink = self._declared.get(uid)
            if isinstance(sink, SpooledSink):
                committables = [sink.load(data) for data in part.committables]
                context = self._context(uid, generation=0, identity=identity)
                look = partial(sink.find_damage, committables, context)
                try:
                    problems += call_within(LONG_CALL_S, look)
                except CallHangsError:
                    where = f"{self._store.uri}, rows of sink {uid!r}"
                    raise storage_hangs(where, "read", LONG_CALL_S) from None
        return problems

    # --- on Spark's stream thread, once an epoch

    def begin_epoch(self, epoch: int) -> int:
        """Note that Spark has planned `epoch`; return the last epoch whose outcome is recorded."""
        self._beginning = True
        try:
            return self._begin(epoch)
        finally:
            self._beginning = False

    def _begin(self, epoch: int) -> int:
        self.has_completed_epoch |= self.last_stored > self.restored_epoch
        if self._min_pause_s:
            self._pause()
        self._hold_for_pins(epoch)
        self.check()
        if self._draining:
            self._turned_away.wait()
            raise StoppedError(f"the job is stopping; epoch {epoch} runs at the next start")
        failpoints.reached(Point.EPOCH_STARTED.value)
        try:
            procedures.check_continuity(epoch, self.last_stored)
        except DecisionVoidError:
            procedures.check_fence(self._store, self.generation)  # or a newer driver decided it
            raise
        self.begun_s = time.monotonic()
        with self._changed:
            self._current = EpochProgress(epoch, 0, AttemptState.PENDING, self.begun_s)
            self._changed.notify_all()
        self._flow.triggered += 1
        self.statistics.begun(self._current)
        return self.last_committed

    def _pause(self) -> None:
        """Wait until every sink has committed the epoch before, and `min_pause` longer; as in Flink
        a pause rules out that two epochs overlap."""
        with self._changed:
            while not (self._over or self._draining):
                left_s = self._pause_until - time.monotonic()
                if left_s <= 0 and not self._uncommitted:
                    return
                self._changed.wait(left_s if left_s > 0 else None)

    def pin(self, epoch: int, last: int) -> None:
        """Hold the stream at the end of epoch `last` until `unpin`, so that nothing is deleted of
        what `epoch` consists of. For a savepoint, from any thread."""
        with self._changed:
            self._pins.append((epoch, last))

    def unpin(self, epoch: int, last: int) -> None:
        """Let the stream go on."""
        with self._changed:
            self._pins.remove((epoch, last))
            self._changed.notify_all()

    def pin_waiting(self, ahead: int, since_s: float) -> int | None:
        """If the stream waits for a decided epoch that some sink has not committed for `since_s`
        seconds, pin that epoch as `pin` does, to `ahead` epochs after it, and return it: a sink
        that is away shall not keep savepoints from being taken. Else None.

        With `ahead` 0 it is the last one that can be decided; it may still have to be sealed.
        """
        with self._changed:
            if not self.is_full or not self._waits(since_s):
                return None
            epoch = self._uncommitted[0 if ahead else -1].epoch
            self._pins.append((epoch, epoch + ahead))
            return epoch

    def seal_waiting(self, epoch: int, since_s: float) -> None:
        """If a decided epoch waits for the commits of those before it, and some sink has not made
        them for `since_s` seconds, seal it, and those: for a savepoint of it. Raises FencedError if
        a newer driver has taken the job over."""
        with self._changed:
            waiting = [p.epoch for p in self._uncommitted if p.epoch <= epoch]
            if epoch not in waiting or not self._waits(since_s):
                return
        if self._is_decided(epoch):
            for each in waiting:
                procedures.seal_decided(each, self.generation, self._store)
            self.last_sealed = max(self.last_sealed, epoch)

    def _waits(self, since_s: float) -> bool:
        """Whether the oldest uncommitted epoch's commit has begun so long ago."""
        begun_s = self._uncommitted[0].commit_started_s if self._uncommitted else 0.0
        return bool(begun_s) and time.monotonic() - begun_s >= since_s

    def _is_held(self, epoch: int) -> bool:
        return any(epoch > last for _, last in self._pins)

    def _hold_for_pins(self, epoch: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._draining or not self._is_held(epoch))

    def claim_epoch(self, epoch: int) -> bool:
        """At-most-once: decide, before the epoch is processed, that this run does it and no other;
        False if an earlier one has claimed it. Then its rows must not be processed again: what that
        run did not write of them is lost."""
        try:
            first = procedures.claim_epoch(epoch, self.generation, self._store)
        except BaseException as error:
            self.fail(error)
            raise
        failpoints.reached("epoch-claimed")
        if not first:
            log.warning(
                "epoch %d was begun by an earlier run and is skipped (at-most-once): its rows that "
                "no sink had committed by then are lost",
                epoch,
            )
        return first

    def store_epoch(self, epoch: int, tasks: Sequence[TaskReport], *, retried: bool) -> None:
        """Store the flushed transactions of all sinks, so that Spark may decide the epoch.

        `tasks` are the winning attempts, one for each partition.

        `retried`: a task of this epoch ran, or may have run, more than once, so a dead attempt may
        have left an open transaction, which would hold up readers: it is aborted here, while no
        task runs.
        Blocks while `max_concurrent` stored epochs are uncommitted.
        """
        progress = self._current
        assert progress is not None and progress.epoch == epoch and self._commits is not None
        sinks: Mapping[str, SinkEpoch] = sink_epochs(tasks)
        progress.tasks = tasks
        progress.rows = sum(part.rows for part in sinks.values())
        progress.moved(AttemptEvent.PRE_COMMIT)
        progress.pre_committed_s = time.monotonic()
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._over
                    or self._turned_away.is_set()
                    or (not self.is_full and not self._is_held(epoch))
                )
            )
        self.check()
        if self._turned_away.is_set() and self._is_held(epoch):
            raise StoppedError(f"the job ends with epoch {epoch - 1}; {epoch} runs at a next start")
        if self._early:
            sinks = self._commit_early(epoch, sinks)
        self._store.stage_prepared(epoch, self.generation, sinks)
        self._commits.remember(epoch, self.generation, sinks)
        _run(procedures.store_attempt(epoch, self.generation, self._store))
        progress.moved(AttemptEvent.STORE)
        self.last_stored = epoch
        if retried:
            self._abort_failed_attempts(epoch)
            self._retried_s = time.monotonic()
        progress.stored_s = time.monotonic()
        with self._changed:
            self._uncommitted.append(progress)
            self._current = None
            self._changed.notify_all()

    def _commit_early(self, epoch: int, sinks: Mapping[str, SinkEpoch]) -> Mapping[str, SinkEpoch]:
        """At-least-once and at-most-once: make the rows visible now; the stored record has nothing
        left to commit."""
        assert self._commits is not None
        self._commits.remember(epoch, self.generation, sinks)
        with self._committing:
            for uid in self._commits.uids:
                self._commits.commit(uid, epoch, self.generation)
        return {uid: SinkEpoch(part.rows, ()) for uid, part in sinks.items()}

    def _abort_failed_attempts(self, epoch: int) -> None:
        assert self._commits is not None
        with self._committing:
            keep = self._commits.handles(epoch, self.generation)
            for waiting in list(self._uncommitted):
                keep |= self._commits.handles(waiting.epoch, self.generation)
            self._commits.abort_all_lingering(self.generation + 1, keep)

    @property
    def failing_epoch(self) -> int:
        """The epoch that a failure of the run hits: the newest one begun, or the next."""
        if self._current is not None:
            return self._current.epoch
        return self._uncommitted[-1].epoch if self._uncommitted else self.last_stored + 1

    def uncommitted_up_to(
        self, epoch: int, patience_s: float
    ) -> Mapping[int, Mapping[str, SinkEpoch]]:
        """Return the transactions of a sealed epoch of this driver, and of those before it, by
        epoch and sink, that some sink has not committed within `patience_s` of the first attempt;
        {} as soon as every one has."""
        with self._changed:
            while self.last_committed < epoch and not self._over and not self._waits(patience_s):
                self._changed.wait(LONGEST_POLL_S)
            first = self.last_committed + 1
        return {e: self._store.read_prepared(e, self.generation) for e in range(first, epoch + 1)}

    def unsent_rows(self, uid: str, part: SinkEpoch) -> tuple[SinkEpoch, Mapping[str, str]]:
        """Return what of a sink's part of an epoch is not known to be at its target; and where the
        rows of it lie, if that sink keeps them in this job's directory: by their path below it, the
        path that they have at this moment, while a commit may be under way."""
        sink = self._declared[uid]
        if not isinstance(sink, SpooledSink):
            return part, {}
        found = {data: sink.load(data) for data in part.committables}
        context = self._context(uid, self.generation)
        unsent = sink.find_unsent(list(found.values()), context)
        left = [data for data, committable in found.items() if committable.handle in unsent]
        at = spool_directory(uid)
        return (
            SinkEpoch(part.rows, tuple(left)),
            {f"{at}/{handle}": f"{at}/{path}" for handle, path in unsent.items()},
        )

    def in_progress(self) -> list[EpochProgress]:
        """Return the epochs that have begun and are not committed, oldest first."""
        with self._changed:
            return [*self._uncommitted, *([self._current] if self._current else [])]

    @property
    def holds_back(self) -> bool:
        """Whether Spark has planned an epoch that must not begin yet: `min_pause`, or a stop."""
        return self._beginning

    def pending_committables(self) -> Mapping[str, int]:
        """Return how many flushed transactions of each sink wait for their commit."""
        return self._commits.pending() if self._commits is not None else {}

    @property
    def is_full(self) -> bool:
        """Whether an epoch must wait before it is stored: `max_concurrent` are uncommitted."""
        return len(self._uncommitted) >= self._max_concurrent

    @property
    def _over(self) -> bool:
        return self._ended or self.failure is not None

    def check(self) -> None:
        """Raise FencedError, with its cause, if this coordinator has failed."""
        if self.failure is not None:
            raise FencedError("the checkpoint coordinator has stopped") from self.failure

    # --- the commit thread

    def _commit_loop(self) -> None:
        lingering_at = time.monotonic() + LINGERING_CHECK_S
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._uncommitted or self._over, IDLE_CHECK_S)
                    if self.failure is not None or (self._ended and not self._uncommitted):
                        return
                    progress = self._uncommitted[0] if self._uncommitted else None
                if progress is not None:
                    if not self._await_decision(progress) or self.failure is not None:
                        return
                    self._commit(progress)
                else:
                    self._check_foreign_decision()
                if time.monotonic() > lingering_at:
                    self._abort_older()
                    lingering_at = time.monotonic() + LINGERING_CHECK_S
        except BaseException as error:  # the thread's end must reach the caller of `run`
            self.fail(error)

    def _await_decision(self, progress: EpochProgress) -> bool:
        """Wait for Spark's commit-log entry; False if the run is over before it is seen.

        Spark's starting the next epoch proves the entry too: a fenced driver that takes back a
        decision late (docs/adr/0003-seal.md) may have deleted it again.
        """
        pause_s = FIRST_POLL_S
        while True:
            over = self._over  # read first: a query that has ended may have decided just before
            asked_s = time.monotonic()
            if self._store.is_decided(progress.epoch):
                return True
            pause_s = max(pause_s, 2 * (time.monotonic() - asked_s))  # object stores are slow
            if over:
                return False
            with self._changed:
                if self._current is not None and self._current.epoch > progress.epoch:
                    return True
                self._changed.wait_for(lambda: self._over, pause_s)
            pause_s = min(pause_s * 1.2, LONGEST_POLL_S)

    def _commit(self, progress: EpochProgress) -> None:
        assert self._commits is not None
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
        self._commits.forget(progress.epoch, self.generation)
        with self._changed:
            self.last_committed = progress.epoch
            self._pause_until = progress.committed_s + self._min_pause_s
            if self._uncommitted and self._uncommitted[0] is progress:
                self._uncommitted.popleft()
            self._changed.notify_all()
        self.history.append(progress)
        self.statistics.committed(progress.epoch)
        self._store.prune(progress.epoch, self._num_retained)
        for uid, sink in self._declared.items():
            if isinstance(sink, SpooledSink) or sink.spool:
                self._store.forget_rows(uid, progress.epoch)
        self._on_committed(progress.epoch)

    def _check_foreign_decision(self) -> None:
        """Find a decision that a fenced driver wrote while this one had nothing to do."""
        latest = self._store.latest_decision()
        if latest > self.last_stored:
            procedures.check_fence(self._store, self.generation)  # or a newer driver decided it
            raise DecisionVoidError(
                f"epoch {latest} was decided by a driver that this one has fenced; that decision "
                "is void. Start the job again, and the epoch runs again"
            )

    def _abort_older(self) -> None:
        assert self._commits is not None
        procedures.check_fence(self._store, self.generation)
        try:
            with self._committing:
                self._commits.abort_all_lingering(self.generation)
        except SeamarkError as error:  # a system is away: nothing depends on this round
            log.warning("lingering transactions could not be aborted, will try again: %s", error)

    def fail(self, error: BaseException) -> None:
        """Stop this run: nothing more is stored or committed, and `finish` raises `error`."""
        with self._changed:
            if self.failure is None:
                self.failure = error
            self.give_up()  # the next start asks again, with all its time
            self._changed.notify_all()
        log.error("job %s stops: %s", self._name, error)
        self._on_failure()

    # --- the timeout thread

    def _watch_timeout(self) -> None:
        """Fail the run when an epoch is not decided within the timeout."""
        decided = -1  # the commit thread may be behind: it commits one after another
        try:
            while not self._over:
                with self._changed:
                    begun = [*self._uncommitted, *([self._current] if self._current else [])]
                    late = next(
                        (p for p in begun if p.epoch > decided and p.state in UNDECIDED), None
                    )
                    left_s = LONGEST_WAIT_S
                    if late is not None:
                        left_s = late.started_s + self._timeout_s - time.monotonic()
                    if late is None or left_s > 0:
                        self._changed.wait(min(left_s, LONGEST_WAIT_S))
                        continue
                if self._is_decided(late.epoch):
                    decided = late.epoch
                elif not self._over:
                    raise CheckpointExpiredError(
                        f"epoch {late.epoch} was not decided within {self._timeout_s:g} s; it is "
                        "aborted and runs again. Raise CheckpointConfig timeout, or make epochs "
                        "smaller at the source"
                    )
        except BaseException as error:
            self.fail(error)

    def _is_decided(self, epoch: int) -> bool:
        """Whether the epoch is known to be decided: a storage that does not say so is late too."""
        try:
            return self._store.is_decided(epoch)
        except RecordNotStoredError as error:
            log.warning("%s", error)
            return False

    @property
    def awaits_spark(self) -> bool:
        """Whether no epoch is under way that has its own timeout, and nothing here keeps Spark from
        beginning the next one."""
        with self._changed:
            begun = [*self._uncommitted, *([self._current] if self._current else [])]
            return not self._beginning and all(p.state not in UNDECIDED for p in begun)

    # --- a stop from outside

    def drain(self, patience_s: float) -> None:
        """Let the epoch under way be committed and hold back the next one; return then, or after
        `patience_s`. The caller stops Spark's query and calls `turn_away`."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()
            drained = self._changed.wait_for(
                lambda: (
                    self._over
                    or (
                        not self._uncommitted
                        and (self._current is None or self._is_held(self._current.epoch))
                    )
                ),
                patience_s,
            )
        if not drained:
            self.give_up()

    def give_up(self) -> None:
        """Ask a system that does not answer only for some seconds more."""
        self._give_up_at = time.monotonic() + LAST_WORDS_S
        if self._commits is not None:
            self._commits.give_up_at = self._give_up_at

    def turn_away(self) -> None:
        """End the epoch that `drain` has held back; Spark's query must be told to stop already."""
        self._turned_away.set()
        with self._changed:
            self._changed.notify_all()

    # --- after Spark's query

    def finish(self, quiesce_s: float = 0.0, reason: str = "the job was stopped") -> None:
        """Settle this driver's epochs; Spark's query must have ended (it decides no more).

        Commits what is decided, aborts the rest and every open transaction of this driver, so that
        no reader waits for one. `quiesce_s`: how long cancelled tasks may still write; an epoch cut
        off in the middle, or with other attempts than those that won, is swept again after it.
        `reason`: why an epoch under way has failed, for the statistics, unless this coordinator
        knows it. Raises the failure of the run, if there was one.
        """
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self.failure is not None:
            self.give_up()
        if self._thread is not None:
            self._thread.join(self._commit_deadline_s + COMMIT_THREAD_END_S)
            if self._thread.is_alive():
                raise QueryHangsError(
                    f"job {self._name}: the commit of an epoch has not come back: the checkpoint "
                    "storage hangs. End the program; the next start settles what is open"
                ) from self.failure
        commits = self._commits
        if commits is None:
            return
        try:
            if self.identity is not None:
                self._store.check_identity(self.identity)
            if self.failure is None:
                _run(procedures.settle_own(self.generation, self._store, commits))
                commits.abort_all_lingering(self.generation + 1)
                since = time.monotonic() if self._current is not None else self._retried_s
                if (wait_s := since + quiesce_s - time.monotonic()) > 0:
                    time.sleep(wait_s)
                    commits.abort_all_lingering(self.generation + 1)
            else:
                self._abort_unstored(commits, quiesce_s)
        except SeamarkError as error:
            self.failure = self.failure or error
        finally:
            with contextlib.suppress(Exception):
                commits.close()
            self.statistics.close(lambda progress: self._last_status(progress, reason))
        if self.failure is not None:
            raise self.failure

    def _last_status(self, progress: EpochProgress, reason: str) -> tuple[CheckpointStatus, str]:
        """How an epoch ended that was open when the run did. A decided one is complete: the next
        start commits it, if this one could not."""
        if progress.stored_s and self._store.is_decided(progress.epoch):
            return CheckpointStatus.COMPLETED, ""
        return CheckpointStatus.FAILED, str(self.failure or reason)

    def _abort_unstored(self, commits: SinkCommits, quiesce_s: float) -> None:
        """A run that has failed aborts what it has not stored, which nobody can commit: else
        readers would wait for it until the next driver's next sweep. Best effort."""
        try:
            if self._current is not None and quiesce_s:
                time.sleep(quiesce_s)
            stored = commits.remembered_handles()  # a record may be there and not be seen now
            for epoch in sorted(self._store.epochs(), reverse=True):
                record = self._store.epoch(epoch)
                if record.committed is not None:
                    break
                if self.generation in record.prepared:
                    stored |= commits.handles(epoch, self.generation)
            self.give_up()
            commits.abort_all_lingering(self.generation + 1, stored)
        except Exception as error:
            log.warning("open transactions are left to the next driver: %s", error)


def _no_other_job(uri: str) -> CheckpointFiles:
    raise CheckpointError(f"this coordinator was given no way to open {uri}")


def _run(steps: Generator[Point, None, T]) -> T:
    """Drive a procedure to its end, dying at an armed failpoint; return what it returns."""
    while True:
        try:
            point = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        failpoints.reached(point.value)
