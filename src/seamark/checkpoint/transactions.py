"""A job's open transactions at its sinks' systems, beside its drivers: `seamark txn`.

Invariants:
- a transaction is ended only as the records say, unless its caller insists (`force`); a living
  driver's never;
- before an abort the job is taken over and its older generations are fenced, as a driver does it:
  no sleeping driver can decide the aborted rows afterwards. A commit and the acceptance of a loss
  need no lease (`protocol/accept_loss.py`).

No preflight runs here: it would take the sinks' prefixes from a driver.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seamark.checkpoint.accepted_losses import AcceptedLoss, find_loss
from seamark.checkpoint.batch_log import UID, StoredLog
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.flow_figures import CommitCounts, SinkCounts
from seamark.checkpoint.sink_commits import SinkCommits
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.sink import OpenFacts
from seamark.files import Directory
from seamark.model import failpoints
from seamark.model.errors import UserError
from seamark.protocol import procedures
from seamark.protocol.accept_loss import Acceptance, accept_loss
from seamark.protocol.batches import newest_decision
from seamark.protocol.ports import EpochRecord
from seamark.protocol.verdicts import DriverState, Verdict, of_stored, of_unstored

log = logging.getLogger(__name__)

DEADLINE_S = 60.0
"""Time allowed to a sink's system for one answer that proves something."""


@dataclass(frozen=True)
class StoredAttempt:
    """One transaction's place in the records of an unsettled epoch. `generation` is 0 in a restored
    job; `committable` is the sink's own, whole."""

    epoch: int
    generation: int
    record: EpochRecord
    committable: Any


@dataclass(frozen=True)
class OpenTransaction:
    """One open transaction. `epoch` is -1 if neither its name nor a stored attempt tells it.
    `attempt` is its stored attempt, None if it was never stored.
    `committable` is as the sink lists it: enough for an abort."""

    sink: str
    handle: str
    generation: int
    epoch: int
    attempt: StoredAttempt | None
    verdict: Verdict
    facts: OpenFacts
    committable: Any

    def to_json(self, now: float) -> dict[str, Any]:
        """Return it for people and programs; durations in ms at the time `now`, -1 if unknown."""
        name = AttemptName.parse(self.handle)
        facts = self.facts
        started, expires = facts.started_at, facts.expires_at
        return {
            "sink": self.sink,
            "transaction": self.handle,
            "verdict": self.verdict.value,
            "epoch": self.epoch,
            "generation": self.generation,
            "attempt": -1 if name is None else name.attempt,
            "stored": self.attempt is not None,
            "since": -1 if started is None else round(started * 1000),
            "age": -1 if started is None else max(round((now - started) * 1000), 0),
            "time-left": -1 if expires is None else max(round((expires - now) * 1000), 0),
            "held-up": [asdict(held) for held in facts.held_up],
        }


@dataclass(frozen=True)
class StoredPart:
    """The `count` transactions of one sink in an unsettled stored attempt, by the records alone."""

    sink: str
    epoch: int
    generation: int
    count: int
    verdict: Verdict


def stored_parts(name: str, store: CheckpointStore, driver: DriverState) -> Sequence[StoredPart]:
    """Return the possibly open parts of the job's stored attempts, by epoch and generation."""
    store.open_existing(name)
    latest = store.latest_decision()
    _, unsettled = procedures.unsettled(latest, store)
    return [
        StoredPart(
            uid,
            epoch,
            generation,
            len(part.committables),
            of_stored(generation, record, decided=epoch <= latest, driver=driver),
        )
        for epoch, record in unsettled.items()
        if record.committed is None
        for generation in sorted(record.prepared)
        for uid, part in store.read_prepared(epoch, generation).items()
        if part.committables
    ]


Judgement = tuple[StoredAttempt | None, Verdict]
"""A transaction's stored attempt, None if it was never stored, and the records' verdict on it."""


def find_open(
    commits: SinkCommits, judge: Callable[[str, str, int], Judgement]
) -> Sequence[OpenTransaction]:
    """Return every open transaction of the sinks, by sink, epoch and name. `judge` is given each
    one's sink, handle and generation. Raises AbortFailedError if a sink's system does not
    answer."""
    transactions = []
    for uid in commits.uids:
        lingering = commits.list_lingering(uid)
        facts = commits.describe_open(uid, [each.committable for each in lingering])
        for each, known in zip(lingering, facts, strict=True):
            handle = each.committable.handle
            attempt, verdict = judge(uid, handle, each.generation)
            name = AttemptName.parse(handle)
            epoch = getattr(each.committable, "epoch", -1 if name is None else name.epoch)
            transactions.append(
                OpenTransaction(
                    sink=uid,
                    handle=handle,
                    generation=each.generation,
                    epoch=epoch if attempt is None else attempt.epoch,
                    attempt=attempt,
                    verdict=verdict,
                    facts=known,
                    committable=each.committable,
                )
            )
    return sorted(transactions, key=lambda one: (one.sink, one.epoch, one.handle))


def left_parts(log: StoredLog) -> Sequence[StoredPart]:
    """Return the same of the log of a data source's query: its newest decision, unless its commit
    is proved."""
    decided = newest_decision(log.entries())
    if decided is None or decided.committed or not decided.part.committables:
        return []
    count = len(decided.part.committables)
    return [StoredPart(UID, decided.batch, decided.generation, count, Verdict.MUST_COMMIT)]


class JobTransactions:
    """The open transactions of one job. Use it as a context manager; one thread at a time.

    `driver` tells whether the driver of the newest lease lives. `open_files` opens another job's
    checkpoint directory: a spool taken over by a restore lies there. `settled_below` is given by
    the job's own driver: it has fenced every generation below, and settled their attempts.
    """

    def __init__(
        self,
        job: CheckpointedJob,
        driver: Callable[[], DriverState],
        open_files: Callable[[str], Directory],
        settled_below: int = 0,
    ) -> None:
        self._job = job
        self._store = job.store
        self._driver = driver
        self._fenced = settled_below - 1 if settled_below else None
        """The newest generation known to be fenced; None: nothing is known."""
        self._commits = SinkCommits(job, open_files, SinkCounts(CommitCounts), DEADLINE_S)

    def __enter__(self) -> "JobTransactions":
        try:
            identity = self._store.open_existing(self._job.name)
        except FileNotFoundError:
            raise UserError(
                f"{self._store.uri} holds no checkpoint of job {self._job.name!r}: it has never "
                "run with this storage, so it has no transactions"
            ) from None
        generation = max(self._store.generations(), default=0)
        self._commits.attach(generation, identity)
        return self

    def __exit__(self, *_: object) -> None:
        self._commits.close()

    def list(self) -> Sequence[OpenTransaction]:
        """Return every open transaction of the job's sinks, by sink, epoch and name.

        Raises AbortFailedError if a sink's system does not answer.
        """
        newest = DriverState.IS_GONE if self._fenced is not None else self._driver()
        leases, latest = self._store.generations(), self._store.latest_decision()
        stored = self._stored()  # first: what is settled by now is not open any more

        def judge(uid: str, handle: str, generation: int) -> Judgement:
            driver = self._driver_of(generation, newest)
            if (at := stored.get((uid, handle))) is None:
                return None, of_unstored(generation, leases, driver)
            decided = at.epoch <= latest
            return at, of_stored(at.generation, at.record, decided=decided, driver=driver)

        return find_open(self._commits, judge)

    def commit(self, handles: Sequence[str], *, force: bool) -> Sequence[OpenTransaction]:
        """Commit these transactions, each with proof; return them.

        Commits all MUST_COMMIT if `handles` is empty. Raises UserError, before anything is done,
        if one is not open or, without `force`, need not be committed.
        """
        chosen = self._chosen(handles, Verdict.MUST_COMMIT, force=force)
        for one in chosen:
            at = one.attempt
            if at is None:
                raise UserError(
                    f"sink {one.sink!r}: transaction {one.handle} is in no stored attempt, so some "
                    "of its rows may never have been written; it can only be aborted"
                )
            if one.verdict is Verdict.MUST_COMMIT:
                procedures.seal_decided(at.epoch, at.generation, self._store)
            self._commits.commit_one(one.sink, at.committable, at.epoch)
            log.info("sink %s: transaction %s is committed", one.sink, one.handle)
        return chosen

    def abort(self, handles: Sequence[str], *, force: bool) -> Sequence[OpenTransaction]:
        """Abort these transactions, each with proof; return them.

        Aborts all SAFE_TO_ABORT if `handles` is empty. Takes the job over first, except in its own
        driver. Raises UserError if one is not open or, without `force`, not safe to abort.
        """
        if not self._chosen(handles, Verdict.SAFE_TO_ABORT, force=force):
            return []
        if self._fenced is None:
            self._take_over()
        # Read again: a driver may have decided one before it was fenced.
        chosen = self._chosen(handles, Verdict.SAFE_TO_ABORT, force=force)
        for one in chosen:
            self._commits.abort_one(one.sink, one.committable)
            log.info("sink %s: transaction %s is aborted", one.sink, one.handle)
        return chosen

    def accept_loss(self, loss: Acceptance) -> AcceptedLoss:
        """Accept the loss of a sink's transactions in a decided epoch; return the stored record.

        Raises LossRefusedError, with the reason, if nothing is lost or the job runs.
        """
        if loss.uid not in self._commits.uids:
            raise UserError(
                f"the program declares no sink {loss.uid!r}; there are "
                + ", ".join(self._commits.uids)
            )
        self._refuse_living("its driver finds the loss itself, and stops")
        failpoints.drive(accept_loss(loss, self._store, self._commits))
        accepted = find_loss(self._store.files, loss.epoch, loss.uid)
        assert accepted is not None
        return accepted

    def _refuse_living(self, why: str) -> None:
        if self._driver() is DriverState.LIVES:
            raise UserError(
                f"job {self._job.name!r} runs: {why}. Stop it first: seamark stop {self._job.name}"
            )

    def _take_over(self) -> None:
        """Fence every older driver, as a new driver does."""
        self._refuse_living("its driver ends its transactions itself")
        generation = failpoints.drive(procedures.take_over(self._store))
        older = [g for g in self._store.generations() if g < generation]
        failpoints.drive(procedures.fence(older, generation, self._store))
        self._fenced = generation

    def _driver_of(self, generation: int, newest: DriverState) -> DriverState:
        """Whether a driver may still decide this generation's transactions; `newest`: its state."""
        if self._fenced is None:
            return newest
        # A newer one is this very driver, or one started since.
        return DriverState.LIVES if generation > self._fenced else DriverState.IS_GONE

    def _chosen(
        self, handles: Sequence[str], wanted: Verdict, *, force: bool
    ) -> Sequence[OpenTransaction]:
        listed = self.list()
        if not handles:
            return [one for one in listed if one.verdict is wanted]
        by_handle = {one.handle: one for one in listed}
        chosen = []
        for handle in handles:
            one = by_handle.get(handle)
            if one is None:
                raise UserError(
                    f"{handle}: no open transaction of job {self._job.name!r} has this name; it "
                    "has ended, or is another job's"
                )
            _require(one, wanted, force=force)
            chosen.append(one)
        return chosen

    def _stored(self) -> dict[tuple[str, str], StoredAttempt]:
        """Return the transactions of unsettled attempts, by sink and name."""
        latest = self._store.latest_decision()
        _, unsettled = procedures.unsettled(latest, self._store)
        return {
            (uid, committable.handle): StoredAttempt(epoch, generation, record, committable)
            for epoch, record in unsettled.items()
            for generation in sorted(record.prepared)
            for uid, committables in self._commits.stored(epoch, generation).items()
            for committable in committables
        }


def _require(one: OpenTransaction, wanted: Verdict, *, force: bool) -> None:
    if one.verdict is wanted:
        return
    what = f"sink {one.sink!r}: transaction {one.handle} is {_SAID[one.verdict]}"
    if one.verdict is Verdict.IN_USE:
        raise UserError(f"{what}: the job runs, and its driver will end it")
    if not force:
        consequence = _CONSEQUENCE[wanted, one.verdict]
        raise UserError(f"{what}; {consequence}. --force does it all the same")
    log.warning("%s; it is ended by force", what)


_SAID = {
    Verdict.MUST_COMMIT: "to be committed: its epoch is decided",
    Verdict.SAFE_TO_ABORT: "to be aborted: its epoch is not decided for it",
    Verdict.IN_USE: "in use",
    Verdict.UNKNOWN: "in doubt: its driver may still decide its epoch",
}
_CONSEQUENCE = {
    (Verdict.MUST_COMMIT, Verdict.SAFE_TO_ABORT): "committing it would show rows twice",
    (Verdict.MUST_COMMIT, Verdict.UNKNOWN): "committing it may show rows twice",
    (Verdict.SAFE_TO_ABORT, Verdict.MUST_COMMIT): "aborting it would lose rows",
    (Verdict.SAFE_TO_ABORT, Verdict.UNKNOWN): (
        "aborting it stops its driver, if that lives: end it, or see with seamark list that it is "
        "gone"
    ),
}
