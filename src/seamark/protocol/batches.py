"""The protocol of ``format("seamark")``: one log, in which tries begin and batches are decided.

Spark calls a data source's `commit()` before its own commit log has the batch, so the decision on a
batch is an entry of a log of Seamark's (docs/FORMAT.md, *The log of a data source*). Its entries
are numbered from 1 and made by exclusive create, so that they have one order:

- `Begun`: a try of a batch begins, before one of its tasks runs. It fences every try before it:
  none of those can decide any more, so what they left open may be aborted.
- `Decided`: a batch is final, with these transactions.

A mark beside a decision says that it is committed, with proof. Spark runs a batch again unless its
commit log has it. A batch decided before is then not written again: its recorded transactions are
committed unless they are marked, and the tasks pass their rows over.

Invariants: a try decides only behind its own `Begun`, with no other one between. Before a task of a
new driver runs, the newest decision is committed, and so are all before it. No system is asked for
a marked decision: it may have forgotten it. Nothing here does I/O.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from seamark.model.errors import CheckpointError, FencedError, LostTransactionError


class BatchPoint(Enum):
    """The numbered points: a process may die between any two of them."""

    BEGUN = "batch-begun"
    SETTLED = "batch-settled"
    SWEPT = "batch-swept"
    CALLED = "batch-called"
    DECIDED = "batch-decided"
    COMMITTED = "batch-committed"
    MARKED = "batch-marked"


Steps = Generator[BatchPoint, None, None]


@dataclass(frozen=True)
class Begun:
    """A try of a batch. Its transactions are named after `generation`: the number of the first try
    of its driver since the driver last found the log as it had left it. `at`: when it was stored,
    for people."""

    generation: int
    at: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Decided:
    """A batch of the query `query`, decided by the try of this number. `part` holds what its tasks
    have flushed: the sink's committables, or what stands for them. `committed`: whether the mark
    lies beside it. `plan` tells Spark's plan of the batch from any other one; "" if unknown. For
    people, by the log: `at`, when it was stored, and `total`, what all batches so far have given to
    the sink."""

    batch: int
    query: str
    attempt: int
    generation: int
    part: Any
    committed: bool = False
    plan: str = ""
    at: float = field(default=0.0, compare=False)
    total: Any = field(default=None, compare=False)


Entry = Begun | Decided


class BatchLog(Protocol):
    """The stored log. Each call is one atomic step."""

    def entries(self) -> Mapping[int, Entry]:
        """Return the entries by number: the newest decision, and all behind it, at least."""

    def append(self, number: int, entry: Entry) -> bool:
        """Create the entry exclusively; return False if another one has the number."""

    def mark_committed(self, number: int) -> None:
        """Put the mark beside the decision of this number. Idempotent."""

    def is_committed(self, number: int) -> bool:
        """Return whether the mark lies beside it, or lay there: a newer decision stands."""

    def stands(self) -> bool:
        """Return whether the location still has this log: it was not deleted since, nor begun anew
        by another query, whose log has other names."""


class BatchSink(Protocol):
    """The committer of the query's one sink."""

    def take_over(self, generation: int) -> None:
        """Check that the sink's system is fit, and stop older generations' writers where the
        system can. Raises PreflightError."""

    def commit(self, decided: Decided) -> None:
        """Commit a decided batch's transactions, with proof. Idempotent. Raises
        LostTransactionError or CommitFailedError."""

    def forget(self, decided: Decided) -> None:
        """Delete the rows kept for a marked decision, if any. Idempotent."""

    def lingering(self, below: int) -> Sequence[Any]:
        """List the open transactions of generations below `below`."""

    def abort(self, left: Sequence[Any]) -> None:
        """Abort them, with proof. Raises AbortFailedError."""


@dataclass(frozen=True)
class Try:
    """One try of the next batch: its number in the log, its generation, and the newest decision
    before it."""

    number: int
    generation: int
    decided: Decided | None

    @property
    def settled(self) -> int:
        """The newest batch for which no system is asked any more; -1 for none."""
        if self.decided is None:
            return -1
        return self.decided.batch if self.decided.committed else self.decided.batch - 1

    def writes(self, batch: int, query: str, *, adopts: bool) -> bool:
        """Whether this try's tasks write the batch that Spark runs: not if it is decided already.

        Raises CheckpointError if log and Spark checkpoint are of different moments. `adopts`: a log
        without a decision may begin at any batch.
        """
        newest = self.decided
        if newest is None:
            if batch == 0 or adopts:
                return True
            raise CheckpointError(
                f"Spark runs batch {batch}, and no batch was ever decided here: the location is "
                "new, or another one than before, or its files are gone. Give the location that "
                "this checkpoint had; if the query has written to another sink so far, set the "
                'option adopt to "true" for its first start'
            )
        if newest.query != query:
            raise CheckpointError(
                f"the location belongs to query {newest.query}, and this is query {query}: its "
                "checkpoint is a new one. Give a new location, or the checkpoint that belongs to "
                "this one. A run whose location was deleted, and begun anew, has to be ended"
            )
        if batch not in (newest.batch, newest.batch + 1):
            raise CheckpointError(
                f"Spark runs batch {batch}, and the newest batch decided here is {newest.batch}: "
                "checkpoint and location are of different moments, as after one of them was "
                "restored alone. Take both from one moment. If another sink has written the "
                "batches between, give a new location and the option adopt. If another run of the "
                "query has gone on while this one slept, end one of the two"
            )
        return batch > newest.batch


def begin(
    log: BatchLog,
    sink: BatchSink,
    previous: int,
    check: Callable[[Mapping[int, Entry]], None] = lambda entries: None,
) -> Generator[BatchPoint, None, Try]:
    """Begin a try, before its first task runs; return it.

    `check` is given the entries, and may refuse them by an error before anything is written.
    `previous` is the number of this driver's last try, 0 if there is none. If that try's decision
    is the newest entry, nobody else has been here: the generation goes on, and all is settled.
    Otherwise the newest decision is committed, and what older generations left is aborted.
    """
    while True:
        entries = log.entries()
        check(entries)
        number, decided = max(entries, default=0) + 1, newest_decision(entries)
        # Not by `decided` alone: a try without a decision behind it has left transactions.
        last, generation = entries.get(number - 1), number
        if isinstance(last, Decided) and last.attempt == previous:
            generation = last.generation
        if log.append(number, Begun(generation)):
            break
    yield BatchPoint.BEGUN
    if generation == number:
        sink.take_over(generation)
        if decided is not None:
            decided = yield from _settle(log, sink, _number(entries, decided), decided)
            yield BatchPoint.SETTLED
        sink.abort(sink.lingering(generation))
        yield BatchPoint.SWEPT
    return Try(number, generation, decided)


def commit(log: BatchLog, sink: BatchSink, mine: Decided) -> Steps:
    """Decide a batch whose tasks have flushed, unless it is decided, and make its rows visible.

    Raises FencedError, with nothing decided, if a newer try has begun, or the location is deleted.
    """
    yield BatchPoint.CALLED
    entries = log.entries()
    check_fence(entries, mine.attempt)
    decided = newest_decision(entries)
    if decided is None or decided.batch < mine.batch:
        number = max(entries) + 1
        if not log.append(number, mine):
            check_fence(log.entries(), mine.attempt)
            raise FencedError(f"another process has decided for the try {mine.attempt}")
        decided = mine
        yield BatchPoint.DECIDED
    else:
        number = _number(entries, decided)
    yield from _settle(log, sink, number, decided)


def _number(entries: Mapping[int, Entry], decided: Decided) -> int:
    return next(number for number, entry in entries.items() if entry is decided)


def _settle(
    log: BatchLog, sink: BatchSink, number: int, decided: Decided
) -> Generator[BatchPoint, None, Decided]:
    """Commit the decision of this number with proof, and mark it; return it marked."""
    if not decided.committed:
        # Asked after it was read or made: it may lie in the log of a location that was deleted.
        if not log.stands():
            raise deleted()
        try:
            sink.commit(decided)
        except LostTransactionError:
            if not log.is_committed(number):  # else another process has: this one was asleep
                if not log.stands():
                    raise deleted() from None
                raise
        yield BatchPoint.COMMITTED
        log.mark_committed(number)
        yield BatchPoint.MARKED
    sink.forget(decided)
    return replace(decided, committed=True)


def sweep(log: BatchLog, sink: BatchSink, mine: Decided) -> Steps:
    """Abort what losing attempts of the batch's tasks left open, after its commit.

    Tasks of the next try may have begun: then nothing is aborted, as theirs might be listed too.
    """
    left = sink.lingering(mine.generation + 1)
    yield BatchPoint.SWEPT
    if left and newest_try(log.entries()) == mine.attempt:
        sink.abort(left)


def check_fence(entries: Mapping[int, Entry], number: int) -> None:
    """Raise FencedError if a newer try than this one has begun."""
    newest = newest_try(entries)
    if not newest:
        raise deleted()
    if newest != number:
        raise FencedError(
            f"the try {number} of this batch was superseded by try {newest}, of another run of the "
            "query: two run at once, or this one was asleep; this one stops and has decided nothing"
        )


def deleted() -> FencedError:
    """Return the error of a run whose location is gone."""
    return FencedError(
        "the location was deleted while this run of the query went on, and may have been begun "
        "anew: this run stops, and its batch is not committed. Delete a location and its "
        "checkpoint while no run of the query lives, then start it again"
    )


def newest_try(entries: Mapping[int, Entry]) -> int:
    """Return the number of the newest try; 0 if there is none."""
    tries = (n if isinstance(entry, Begun) else entry.attempt for n, entry in entries.items())
    return max(tries, default=0)


def newest_decision(entries: Mapping[int, Entry]) -> Decided | None:
    """Return the newest decision, None if there is none."""
    for number in sorted(entries, reverse=True):
        entry = entries[number]
        if isinstance(entry, Decided):
            return entry
    return None
