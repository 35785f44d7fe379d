"""Driver side of a sink that puts data files into a table: what all tables have in common.

A table keeps a ledger of outcomes, which its own atomic commit writes together with the files'
names. A subclass reads it and writes it.

Invariants:
- The table names a file only if the file is there, whole, and the ledger is silent about it. A file
  is deleted only after the ledger says "aborted".
- An outcome is returned only once it is durable.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, OpenFacts, SinkContext
from seamark.files import RowDirectory
from seamark.sinks.internal import pending_files, stored
from seamark.sinks.internal.changes import ByKey
from seamark.sinks.internal.committers import StagingCommitter, closed_by_errors
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.internal.table_committable import STAGED, TableCommittable

COMMITTED, ABORTED = "committed", "aborted"
TRIES = 5
"""Tries of a commit or abort that meets others' commits; then the answer is RETRY."""
_GONE = (CommitOutcome.LOST, CommitOutcome.UNKNOWN)
C = TypeVar("C", bound=TableCommittable)
K = TypeVar("K", bound=ByKey[Any])


class TableCommitter(StagingCommitter[K], ABC, Generic[K, C]):
    """Any thread may call, one at a time."""

    def __init__(self, sink: K, context: SinkContext, log: logging.Logger) -> None:
        super().__init__(sink, context, log)
        self._table: Any = None

    @abstractmethod
    def _files(self) -> RowDirectory:
        """Return the table's directory. Raises OSError where it is not mounted now: there a missing
        file proves nothing."""

    @abstractmethod
    def _refresh(self, committables: Sequence[C]) -> None:
        """Load the table, and read the ledger as far as these ask for it."""

    @abstractmethod
    def _recorded(self, committable: C) -> str | None:
        """Return the ledger's durable outcome; None if it is silent."""

    @abstractmethod
    def _lost_trace(self, committable: C) -> str:
        """Return why the ledger's silence may only mean that it has lost the outcome since; "" if
        it is a proof."""

    @abstractmethod
    def _named_files(self) -> set[str]:
        """Return the names of the files that the table names, durably."""

    @abstractmethod
    def _add(self, committables: Sequence[C]) -> bool:
        """Commit the files, and record it, in one step, if the ledger is as `_refresh` has read it.
        All have the same `merged_by`. Return False if perhaps refused."""

    @abstractmethod
    def _record_abort(self, committables: Sequence[C]) -> bool:
        """Record the abort, so that a late commit is refused. Return False if perhaps refused."""

    @abstractmethod
    def _pending(self) -> Iterable[C]:
        """Return every attempt of this job and sink with a record."""

    def commit(self, committables: Sequence[C]) -> Sequence[CommitOutcome]:
        """Add the files to the table in one step; rows staged by other settings in one of their own
        for each, after another look at the ledger.

        LOST: aborted, or a file is gone or torn. UNKNOWN: what could hold the outcome is no longer
        kept. Raises CommitFailedError when the table has changed and does not take the files.
        """
        outcomes = [CommitOutcome.RETRY] * len(committables)
        for kind in sorted({c.merged_by for c in committables}):  # without keys first
            places = [n for n, c in enumerate(committables) if c.merged_by == kind]
            answers = self._commit_alike([committables[n] for n in places])
            for place, outcome in zip(places, answers, strict=True):
                outcomes[place] = outcome
            if CommitOutcome.RETRY in answers:
                break
        return outcomes

    def _commit_alike(self, committables: Sequence[C]) -> Sequence[CommitOutcome]:
        """Do so with files to be appended, or rows staged with the same keys and op."""
        outcomes = [CommitOutcome.RETRY] * len(committables)
        for _ in range(TRIES):
            with closed_by_errors(self):
                self._refresh(committables)
                open_ = self._judge(committables, outcomes)
                if open_ and not self._add(open_):
                    continue
            for position, committable in enumerate(committables):
                if committable in open_:
                    outcomes[position] = CommitOutcome.COMMITTED
            # Delete the records that nobody needs any more.
            self._tidy([c for c, o in zip(committables, outcomes, strict=True) if o not in _GONE])
            break
        return outcomes

    def abort(self, committables: Sequence[C]) -> Sequence[AbortOutcome]:
        """Record the abort in the table. Then delete the files."""
        for _ in range(TRIES if committables else 0):
            with closed_by_errors(self):
                self._refresh(committables)
                told = [(c, self._told(c)) for c in committables]
                open_ = [c for c, outcome in told if outcome is None]
                if open_ and not self._record_abort(open_):
                    continue
            self._delete([c for c, outcome in told if outcome != COMMITTED])
            return [Fate(outcome or ABORTED).of_abort for _, outcome in told]
        return [AbortOutcome.RETRY] * len(committables)

    def close(self) -> None:
        """Forget the table; nothing is open between calls."""
        self._table = None

    def list_lingering(self) -> Iterator[Lingering[C]]:
        """Yield every attempt with a record and without an outcome; clean up the others."""
        pending = list(self._pending())
        self._files()
        if pending:
            self._refresh(pending)
        told = [(committable, self._told(committable)) for committable in pending]
        self._tidy([c for c, outcome in told if outcome == COMMITTED])
        self._delete([c for c, outcome in told if outcome == ABORTED])
        for committable, outcome in told:
            if outcome is None:
                yield Lingering(committable, committable.generation)

    def describe_open(self, committables: Sequence[C]) -> Sequence[OpenFacts]:
        """See `DescribesTransactions`: when each attempt has begun its first file. None times
        out."""
        records = [pending_files.records(one) for one in committables]
        return [OpenFacts(self._files().modified(r[0]) if r else None) for r in records]

    def _judge(self, committables: Sequence[C], outcomes: list[CommitOutcome]) -> list[C]:
        """Set every known outcome; return the committables still to be committed."""
        silent: dict[int, C] = {}
        for position, committable in enumerate(committables):
            told = self._told(committable)
            if told is not None:
                outcomes[position] = Fate(told).of_commit
            elif why := self._lost_trace(committable):
                self._log.error("%s: %s, so it cannot be told whether epoch %d was committed "
                                "and its files removed since",
                                self._name, why, committable.epoch)  # fmt: skip
                outcomes[position] = CommitOutcome.UNKNOWN
            else:
                silent[position] = committable
        torn = self._torn(list(silent.values()))
        self._files()
        for position, committable in silent.items():
            if committable.handle in torn:
                outcomes[position] = CommitOutcome.LOST
        return [c for c in silent.values() if c.handle not in torn]

    def _told(self, committable: C) -> str | None:
        """Return the durable outcome; None if nothing tells one. Where the ledger has lost it,
        files named by the table count as committed, and must stay."""
        outcome = self._recorded(committable)
        if outcome is None and self._lost_trace(committable):
            paths = pending_files.data_paths(self._files(), committable)
            if self._named_files().intersection(path.rpartition("/")[2] for path in paths):
                return COMMITTED
        return outcome

    def _torn(self, committables: Sequence[C]) -> set[str]:
        """Return the handles with a missing or damaged file."""
        files = [(c.handle, *file) for c in committables for file in c.sizes.items()]
        torn = set()
        sizes = stored.sizes(self._files(), [path for _, path, _ in files])
        for (handle, path, written), size in zip(files, sizes, strict=True):
            if size != written:
                torn.add(handle)
                fault = "gone" if size is None else f"damaged: it has {size} bytes"
                self._log.error("%s: data file %s is %s, of %d that were written",
                                self._name, path, fault, written)  # fmt: skip
        return torn

    def _delete(self, aborted: Sequence[C]) -> None:
        """Delete the files, best effort: the next `list_lingering` comes back to leftovers."""
        try:
            files = self._files()
            paths = [path for c in aborted for path in pending_files.data_paths(files, c)]
            stored.delete(files, paths)
        except OSError as error:
            self._log.warning("%s: %s; the rest is left for the next start", self._name, error)
            return
        self._tidy(aborted)

    def _tidy(self, ended: Sequence[C]) -> None:
        """Delete the staged rows and the records, best effort: the next `list_lingering` comes back
        to leftovers."""
        by_key = [c for c in ended if self._sink.keys or c.merged_by[0]]
        try:
            files = self._files()
            paths = [path for c in by_key for path in pending_files.data_paths(files, c)]
            stored.delete(files, [path for path in paths if path.startswith(STAGED)])
            stored.delete(files, [path for c in ended for path in pending_files.records(c)])
        except OSError as error:
            self._log.info("%s: %s", self._name, error)
