"""The protocol's `Sinks` on real committers: repeats a call until its outcome is proved, and writes
lost rows again from their spool.

The deadline is Seamark's: a committer answers RETRY and is asked again here, with growing pauses.
Nothing here decides anything; `protocol/procedures.py` does.
"""

import logging
import math
import reprlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.flow_figures import SinkCounts
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.spool import LostTransaction, Spooled, load
from seamark.checkpoint.store import JobIdentity
from seamark.contracts.sink import (
    AbortOutcome,
    CommitOutcome,
    Committer,
    DescribesTransactions,
    Lingering,
    OpenFacts,
    SinkContext,
    TwoPhaseCommitSink,
)
from seamark.contracts.spool import SpoolFile
from seamark.files import Directory
from seamark.files.deadline import CallHangsError, CallThread, Deadline, call_within
from seamark.model import failpoints
from seamark.model.errors import (
    AbortFailedError,
    CheckpointError,
    CommitFailedError,
    LostTransactionError,
    PreflightError,
    SeamarkError,
    UserError,
)
from seamark.protocol.write_again import close_chain, write_again

log = logging.getLogger(__name__)
O = TypeVar("O", bound=Enum)  # noqa: E741 - an outcome
R = TypeVar("R")

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0
LISTING_DEADLINE_S = 20.0
LAST_CALL_S = 10.0
"""Time left to a call once the run has been given up."""


@dataclass(frozen=True)
class AttachedSink:
    """One sink of the running job, and its committer made for `context`."""

    uid: str
    sink: TwoPhaseCommitSink[Any]
    committer: Committer[Any]
    context: SinkContext


Stored = tuple[Any, SpoolFile | None]
"""A committable and its spool file, if it has one."""


class CommittedElsewhereError(AbortFailedError):
    """A transaction that must be aborted was committed by somebody else."""


@dataclass(eq=False)
class SinkCommits:
    """Commits and aborts stored attempts. Used by one thread at a time.

    No call to a committer takes longer than `deadline_s`; a call that hangs ends the run, and its
    committer is not called again. `open_files` opens another job's checkpoint directory: a spool
    taken over by a restore lies there. `counts` receives the outcomes of transactions.
    """

    job: CheckpointedJob
    open_files: Callable[[str], Directory]
    counts: SinkCounts
    deadline_s: float
    remedy: str = (
        "If the sink had another target then, put it back for one start, which commits them. Else "
        "re-read them from the source into the sink, then accept the loss: seamark txn accept-loss "
        "(docs/operations/lost-transactions.md)"
    )
    """What an error says of lost transactions."""
    _attached: dict[str, AttachedSink] = field(default_factory=dict, init=False)
    _staged: dict[tuple[int, int], Mapping[str, SinkEpoch]] = field(
        default_factory=dict, init=False
    )
    _calls: CallThread | None = field(default=None, init=False)
    _hanging: set[str] = field(default_factory=set, init=False)
    _said: dict[str, str] = field(default_factory=dict, init=False)
    """By sink: the error raised instead of its last answer."""
    give_up_at: float = field(default=math.inf, init=False)
    """From this monotonic time on, a RETRY is not repeated: the run is being ended."""

    @property
    def uids(self) -> tuple[str, ...]:
        """The job's sinks, in the order of commit; none before `attach`."""
        return tuple(self._attached)

    def attach(self, generation: int, identity: JobIdentity) -> None:
        """Make the committers of all sinks. Called once. Raises PreflightError if one hangs."""
        for uid, sink in self.job.sinks.items():
            context = self.job.context(uid, generation, identity)
            try:
                made = call_within(self.deadline_s, partial(sink.create_committer, context))
            except CallHangsError:
                raise PreflightError(
                    f"sink {uid!r}: create_committer has not returned within "
                    f"{self.deadline_s:g} s: its system hangs; start the job again when it answers"
                ) from None
            self._attached[uid] = AttachedSink(uid, sink, made, context)

    def preflight(self) -> None:
        """Check that the job can run on each real system. Raises PreflightError."""
        for uid, attached in self._attached.items():
            self._call(uid, "preflight", attached.committer.preflight, PreflightError)

    def remember(self, epoch: int, generation: int, sinks: Mapping[str, SinkEpoch]) -> None:
        """Keep an attempt's committables in memory: its next commit need not read the record."""
        self._staged[epoch, generation] = sinks

    def commit(self, uid: str, epoch: int, generation: int) -> None:
        """Commit one sink's part of a sealed attempt; return when every outcome is proved.

        Writes the rows of a lost transaction again from their spool, if there is one. Raises
        LostTransactionError, or CommitFailedError at the deadline.
        """
        attached, stored = self._load(uid, epoch, generation)
        outcomes = self._commit(attached, [committable for committable, _ in stored], epoch)
        gone, errors = [], []
        for (committable, spool), outcome in zip(stored, outcomes, strict=True):
            if outcome is CommitOutcome.LOST and spool is not None:
                self.counts[uid].rewritten += 1
                try:
                    self._write_again(attached, Spooled(committable, spool), epoch)
                except LostTransactionError as error:
                    self.counts[uid].lost += 1
                    errors.append(error)
            elif outcome in (CommitOutcome.LOST, CommitOutcome.UNKNOWN):
                gone.append((committable, outcome))
        if gone:
            self.counts[uid].lost += len(gone)
            rows = self.parts(epoch, generation)[uid].rows
            what = f"The {rows} rows of epoch {epoch}"
            errors.insert(0, _lost(uid, epoch, gone, len(outcomes), what, self.remedy))
        if errors:
            raise LostTransactionError(
                str(errors[0]),
                {handle for error in errors for handle in error.transactions},
                {handle for error in errors for handle in error.unproved},
            )

    def _commit(
        self, attached: AttachedSink, committables: Sequence[Any], epoch: int
    ) -> list[CommitOutcome]:
        uid, counts = attached.uid, self.counts[attached.uid]

        def ask(open_: Sequence[Any]) -> list[CommitOutcome]:
            answers = self._call(
                uid,
                "commit",
                lambda: self._asked(uid, attached.committer.commit, open_, CommitOutcome.RETRY),
                CommitFailedError,
            )
            counts.retried += answers.count(CommitOutcome.RETRY)
            return answers

        outcomes = self._until_proved(
            ask,
            committables,
            CommitOutcome.RETRY,
            lambda open_: CommitFailedError(
                f"sink {uid!r}: epoch {epoch} is decided, but {len(open_)} of its transactions "
                f"({_some(open_)}) could not be committed within {self.deadline_s:g} s"
                f"{self._why(uid)}; the epoch stays decided: start the job again when the system "
                "answers, and it is committed"
            ),
        )
        counts.committed += outcomes.count(CommitOutcome.COMMITTED)
        counts.already_committed += outcomes.count(CommitOutcome.ALREADY_COMMITTED)
        return outcomes

    def tell_put_back(self, epoch: int, generation: int) -> None:
        """Log each sink whose system no longer knows of its part of a committed attempt. What it
        still has staged of that becomes visible."""
        for uid, committables in self.stored(epoch, generation).items():
            committer, spool = self._attached[uid].committer, self._attached[uid].sink.spool
            if spool or not (committables and getattr(committer, "keeps_outcomes", False)):
                continue  # with a spool others may have been committed in their place
            again = partial(committer.commit, committables)
            outcomes = self._call(uid, "commit", again, CommitFailedError)
            if {*outcomes} - {CommitOutcome.ALREADY_COMMITTED, CommitOutcome.RETRY}:
                log.warning(
                    "sink %s: its system has no record of epoch %d any more, which was committed: "
                    "if the target was put back from a backup, or made anew, it lacks all rows "
                    "committed since, and the job goes on without them. seamark audit finds them",
                    uid, epoch,
                )  # fmt: skip

    def _write_again(self, attached: AttachedSink, lost: Spooled, epoch: int) -> None:
        """Make a transaction's rows visible by the protocol's steps, after it is proved lost."""
        uid = attached.uid
        log.warning(
            "sink %s: transaction %s of the decided epoch %d is lost; its %d rows are written "
            "again from the spool",
            uid, lost.handle, epoch, lost.spool.rows,
        )  # fmt: skip
        failpoints.drive(write_again(self._chain(attached, lost, epoch)))

    def close_rewrites(
        self, uid: str, epoch: int, generation: int, lost: LostTransactionError
    ) -> None:
        """Close the chains of rewrites of a sink's lost transactions with a spool."""
        attached, stored = self._load(uid, epoch, generation)
        for committable, spool in stored:
            if spool is not None and committable.handle in lost.transactions:
                chain = self._chain(attached, Spooled(committable, spool), epoch)
                failpoints.drive(close_chain(chain))

    def _chain(self, attached: AttachedSink, lost: Spooled, epoch: int) -> LostTransaction:
        uid = attached.uid

        def commit_now(rewrite: Any) -> bool:
            outcomes = self._commit(attached, [rewrite], epoch)
            if CommitOutcome.UNKNOWN in outcomes:
                what = f"Its {lost.spool.rows} rows"
                unknown = [(rewrite, CommitOutcome.UNKNOWN)]
                error = _lost(uid, epoch, unknown, len(outcomes), what, self.remedy)
                # The loss is the first transaction's, whichever of its chain is forgotten.
                raise LostTransactionError(str(error), [lost.handle], [lost.handle])
            return CommitOutcome.LOST not in outcomes

        return LostTransaction(
            attached.sink,
            lost,
            attached.context,
            lambda job: self.job.store.files if job == self.job.store.uri else self.open_files(job),
            commit_now,
            abort_now=lambda rewrite: self._abort(attached, [rewrite], f"epoch {epoch}"),
            within_deadline=lambda call: self._call(
                uid, "writing lost rows again", call, CommitFailedError
            ),
        )

    def abort(self, uid: str, epoch: int, generation: int) -> None:
        """Abort one sink's part of an attempt sealed ABORT."""
        attached, stored = self._load(uid, epoch, generation)
        self._abort(attached, [committable for committable, _ in stored], f"epoch {epoch}")
        self.counts[uid].aborted += len(stored)

    def abort_lingering(
        self,
        uid: str,
        below_generation: int,
        keep: Collection[str] = frozenset(),
        *,
        once: bool = False,
    ) -> None:
        """Abort the transactions left open by older generations, except the handles in `keep`.
        `once`: ask once."""
        attached = self._attached[uid]
        left = [
            lingering.committable
            for lingering in self.list_lingering(uid, once=once)
            if lingering.generation < below_generation and lingering.committable.handle not in keep
        ]
        if left:
            log.info("sink %s: aborting %d lingering transactions: %s", uid, len(left), _some(left))
            early = self.job.visible_before_decision  # a frozen driver may wake up and commit
            self._abort(attached, left, "lingering", committed_is_right=early, once=once)
            self.counts[uid].lingering_aborted += len(left)

    def sweep(
        self, below_generation: int, keep: Collection[str] = frozenset(), *, once: bool = True
    ) -> bool:
        """Try `abort_lingering` at every sink; return whether nothing is left. Only readers wait
        for these transactions, no epoch does: a system that is away is a warning."""
        failed = False
        for uid in self.uids:
            try:
                self.abort_lingering(uid, below_generation, keep, once=once)
            except CommittedElsewhereError:
                raise
            except AbortFailedError as error:
                failed = True
                log.warning("lingering transactions stay for now: %s", error)
        return not failed

    # --- single transactions, for an operator

    def list_lingering(self, uid: str, *, once: bool = False) -> Sequence[Lingering[Any]]:
        """Return the open transactions of one sink. Raises AbortFailedError without an answer:
        after LISTING_DEADLINE_S or, with `once`, at once."""
        listed = self._attached[uid].committer.list_lingering
        deadline = 0.0 if once else time.monotonic() + LISTING_DEADLINE_S
        while True:
            try:
                return self._call(uid, "list_lingering", lambda: list(listed()), AbortFailedError)
            except AbortFailedError:
                if uid in self._hanging or time.monotonic() > min(deadline, self.give_up_at):
                    raise
            time.sleep(LONGEST_PAUSE_S)

    def describe_open(self, uid: str, committables: Sequence[Any]) -> Sequence[OpenFacts]:
        """Return what the system tells of open transactions, in order; or empty facts."""
        committer = self._attached[uid].committer
        if not committables or not isinstance(committer, DescribesTransactions):
            return [OpenFacts()] * len(committables)
        return self._call(
            uid, "describe_open", lambda: committer.describe_open(committables), AbortFailedError
        )

    def commit_one(self, uid: str, committable: Any, epoch: int) -> None:
        """Commit one stored transaction of an operator's choice, with proof; as `commit`, but
        nothing is written again. Raises LostTransactionError."""
        (outcome,) = self._commit(self._attached[uid], [committable], epoch)
        if outcome in (CommitOutcome.LOST, CommitOutcome.UNKNOWN):
            raise _lost(uid, epoch, [(committable, outcome)], 1, "Its rows", self.remedy)

    def abort_one(self, uid: str, committable: Any) -> None:
        """Abort one transaction of an operator's choice, with proof."""
        self._abort(self._attached[uid], [committable], "the operator's choice")

    def abort_listed(self, uid: str, committables: Sequence[Any], *, once: bool = False) -> None:
        """Abort transactions that the caller has listed and knows to be of no decided epoch.
        `once`: ask once."""
        log.info("sink %s: aborting %d lingering transactions: %s", uid, len(committables),
                 _some(committables))  # fmt: skip
        self._abort(self._attached[uid], committables, "lingering", once=once)

    def stored(self, epoch: int, generation: int) -> dict[str, list[Any]]:
        """Return the committables of one stored attempt, by sink, as far as the job declares it."""
        parts = self.parts(epoch, generation)
        return {
            uid: [load(attached.sink, data)[0] for data in parts[uid].committables]
            for uid, attached in self._attached.items()
            if uid in parts
        }

    def handles(self, epoch: int, generation: int) -> set[str]:
        """Return the transaction handles of one stored attempt, of all sinks."""
        stored = self.stored(epoch, generation).values()
        return {committable.handle for committables in stored for committable in committables}

    def remembered_handles(self) -> set[str]:
        """Return the transaction handles of every attempt remembered and not yet forgotten."""
        return {
            h for epoch, generation in list(self._staged) for h in self.handles(epoch, generation)
        }

    def pending(self) -> dict[str, int]:
        """Return the number of each sink's flushed transactions waiting for their commit, among the
        attempts remembered and not yet forgotten."""
        waiting = list(self._staged.values())
        return {
            uid: sum(len(parts[uid].committables) for parts in waiting if uid in parts)
            for uid in self._attached
        }

    def forget(self, epoch: int, generation: int) -> None:
        """Drop an attempt kept by `remember`."""
        self._staged.pop((epoch, generation), None)

    def close(self) -> None:
        """Close every committer."""
        for uid, attached in self._attached.items():
            try:
                self._call(uid, "close", attached.committer.close, SeamarkError)
            except Exception as error:
                log.info("sink %s was not closed: %s", uid, error)
        if self._calls is not None:
            self._calls.close()
            self._calls = None

    def _call(self, uid: str, what: str, call: Callable[[], R], error: type[SeamarkError]) -> R:
        """Make one call to a committer; raise `error` at the deadline, and for what it raises
        itself, except Seamark's own errors."""
        deadline = Deadline(self.deadline_s)
        if uid not in self._hanging:
            self._calls = self._calls or CallThread("seamark-sink-calls")
            try:
                return self._calls.call(
                    call,
                    lambda: min(
                        deadline.left_s(), self.give_up_at + LAST_CALL_S - time.monotonic()
                    ),
                )
            except CallHangsError:
                self._hanging.add(uid)
                self._calls = None  # left behind
            except SeamarkError:
                raise
            except Exception as cause:
                why = f"{type(cause).__name__}: {cause}"
                raise error(
                    f"sink {uid!r}: {what} has no answer ({why}); start the job again when its "
                    "system answers"
                ) from cause
        raise error(
            f"sink {uid!r}: {what} has not returned within {self.deadline_s:g} s, or within "
            f"{LAST_CALL_S:g} s of the job's end: its system hangs. Nothing decided is lost: start "
            "the job again when the system answers"
        )

    def _asked(
        self, uid: str, call: Callable[[Sequence[Any]], Sequence[O]], asked: Sequence[Any], retry: O
    ) -> list[O]:
        """Ask a committer. The last catch: whatever it raises, unless on purpose, proves nothing
        of these transactions. Raises UserError for an answer that is no list of outcomes."""
        try:
            answers = call(asked)
            outcomes = list(answers) if isinstance(answers, Iterable) else answers
        except SeamarkError:
            raise
        except Exception as error:
            if self._said.get(uid) != (said := f"{type(error).__name__}: {error}"):
                self._said[uid] = said
                log.warning("sink %s does not answer, and is asked again: %s", uid, said)
            return [retry] * len(asked)
        self._said.pop(uid, None)
        outcome = type(retry)
        if (
            isinstance(outcomes, list)
            and len(outcomes) == len(asked)
            and all(isinstance(each, outcome) for each in outcomes)
        ):
            return outcomes
        raise UserError(
            f"sink {uid!r}: {call.__name__} returned {reprlib.repr(outcomes)}; mend its committer, "
            f"which has to return one {outcome.__name__} for each of the {len(asked)} "
            "transactions, and start the job again"
        )

    def _why(self, uid: str) -> str:
        return f" ({self._said[uid]})" if uid in self._said else ""

    def _abort(
        self, attached: AttachedSink, committables: Sequence[Any], what: str,
        *, committed_is_right: bool = False, once: bool = False,
    ) -> None:  # fmt: skip
        uid, within = attached.uid, "yet" if once else f"within {self.deadline_s:g} s"
        outcomes = self._until_proved(
            lambda open_: self._call(
                uid,
                "abort",
                lambda: self._asked(uid, attached.committer.abort, open_, AbortOutcome.RETRY),
                AbortFailedError,
            ),
            committables,
            AbortOutcome.RETRY,
            lambda open_: AbortFailedError(
                f"sink {uid!r}: {len(open_)} transactions of {what} ({_some(open_)}) could not be "
                f"proved aborted {within}{self._why(uid)}; no start of the job writes anything "
                "before they are. Start it when the system answers"
            ),
            once=once,
        )
        committed = [
            c for c, o in zip(committables, outcomes, strict=True) if o is AbortOutcome.COMMITTED
        ]
        if committed and not committed_is_right:
            raise CommittedElsewhereError(
                f"sink {uid!r}: transactions of {what} that must be aborted ({_some(committed)}) "
                "are committed already, and not by a driver of this job: something else ended "
                "them. Their rows are visible and would be written again; find out who committed "
                "them"
            )

    def parts(self, epoch: int, generation: int) -> Mapping[str, SinkEpoch]:
        """Return one attempt's parts by sink, from memory if it is remembered."""
        staged = self._staged.get((epoch, generation))
        return staged if staged is not None else self.job.store.read_prepared(epoch, generation)

    def _load(self, uid: str, epoch: int, generation: int) -> tuple[AttachedSink, list[Stored]]:
        parts = self.parts(epoch, generation)
        known = {*self._attached, *self.job.left}
        if strangers := {u for u, p in parts.items() if p.committables} - known:
            raise CheckpointError(
                f"epoch {epoch} holds transactions of sink {sorted(strangers)[0]!r}, which this "
                "program does not declare; declare it with that uid once more, let the job commit "
                "them, then remove it"
            )
        attached = self._attached[uid]
        return attached, [load(attached.sink, d) for d in parts.get(uid, _NOTHING).committables]

    def _until_proved(
        self,
        call: Callable[[Sequence[Any]], Sequence[O]],
        committables: Sequence[Any],
        retry: O,
        failure: Callable[[list[Any]], Exception],
        *,
        once: bool = False,
    ) -> list[O]:
        outcomes: list[O] = [retry] * len(committables)
        deadline = time.monotonic() + self.deadline_s
        pause_s = FIRST_PAUSE_S
        while open_ := [i for i, outcome in enumerate(outcomes) if outcome is retry]:
            answers = call([committables[i] for i in open_])
            for i, outcome in zip(open_, answers, strict=True):
                outcomes[i] = outcome
            still = [committables[i] for i in open_ if outcomes[i] is retry]
            if still:
                if once or time.monotonic() > min(deadline, self.give_up_at):
                    raise failure(still)
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return outcomes


_NOTHING = SinkEpoch(rows=0, committables=())


def _lost(
    uid: str, epoch: int, gone: Sequence[tuple[Any, CommitOutcome]], of: int, rows: str, remedy: str
) -> LostTransactionError:
    """Return the error about the transactions `gone`, with their outcomes, among `of`."""
    how = "aborted or timed out before they were committed"
    look = ""
    unproved = [c.handle for c, outcome in gone if outcome is CommitOutcome.UNKNOWN]
    if unproved:
        how = "the system cannot tell any more what became of them"
        look = "Look for them in the sink first. "
    return LostTransactionError(
        f"sink {uid!r}: epoch {epoch} is decided, but {len(gone)} of its {of} "
        f"transactions ({_some([c for c, _ in gone])}) are gone: {how}. {rows} are not all "
        f"visible, and running the job again will not write them. {look}{remedy}",
        [c.handle for c, _ in gone],
        unproved,
    )


def _some(committables: Sequence[Any]) -> str:
    shown = ", ".join(c.handle for c in committables[:3])
    return shown if len(committables) <= 3 else f"{shown}, … {len(committables) - 3} more"
