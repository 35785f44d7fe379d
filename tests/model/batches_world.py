"""Runs of a query of ``format("seamark")`` on one world: Spark's two logs, the location, one sink.

Each process is a greenlet that gives way before every single call to the world, so a schedule may
let it die or sleep between any two. The steps are those of `protocol/batches.py` itself.

Invariants, checked whenever a transaction becomes visible and at the end:
- only transactions of a decided batch become visible, those of one try alone, and no row twice;
- nothing decided is ever aborted;
- no system is asked for a marked decision, but by a process that was asleep: it has forgotten it;
- once an undisturbed run has come to rest, every row is visible once.

Checkpoint and location may be deleted while runs sleep: then another query begins, of which all
this has to hold in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import greenlet

from seamark.model.errors import CheckpointError, FencedError, LostTransactionError
from seamark.protocol import batches
from seamark.protocol.batches import Begun, Decided, Entry, Try

BATCHES = 2
TASKS = 2


class Violation(AssertionError):  # noqa: N818 - it is what the checker looks for
    """The protocol broke its promise in this world."""


class Died(greenlet.GreenletExit):
    """The process was killed."""


@dataclass(eq=False)
class Transaction:
    batch: int
    task: int
    generation: int
    attempt: int
    query: int = 0
    state: str = "open"


@dataclass
class Place:
    """One query's checkpoint and location."""

    query: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    """Batches of which the sink knows nothing any more."""

    def decided(self) -> dict[int, Decided]:
        return {e.batch: e for e in self.entries.values() if isinstance(e, Decided)}

    def emptied(self, *, names_apart: bool) -> Place:
        """Delete all; return the place of the next query, whose files have the same names unless
        they are told apart by the query."""
        self.entries.clear()
        self.marked.clear()
        again = Place(self.query + 1)
        return again if names_apart else replace(again, entries=self.entries, marked=self.marked)


@dataclass
class World:
    """All that outlives a process."""

    place: Place = field(default_factory=Place)
    transactions: list[Transaction] = field(default_factory=list)
    fenced_below: int = 0
    names_apart: bool = True

    def delete(self) -> None:
        self.place = self.place.emptied(names_apart=self.names_apart)

    def visible(self, batch: int, query: int = -1) -> list[Transaction]:
        query = self.place.query if query < 0 else query
        at = query, batch
        return [t for t in self.transactions if (t.query, t.batch) == at and t.state == "visible"]

    def make_visible(self, transaction: Transaction, place: Place) -> None:
        decided = place.decided().get(transaction.batch)
        if transaction.state == "aborted" and place is not self.place:
            raise LostTransactionError("aborted by another one who sleeps while all is deleted")
        if transaction.state == "aborted":
            raise Violation(f"decided and aborted: {transaction}")
        is_decided = decided is not None and transaction in decided.part
        # One who sleeps while all is deleted knows a decision that was there, and no later one.
        if is_decided != (place is self.place):
            raise Violation(f"visible without a decision: {transaction}")
        transaction.state = "visible"
        tasks = [t.task for t in self.visible(transaction.batch, transaction.query)]
        if len(tasks) != len(set(tasks)):
            raise Violation(f"batch {transaction.batch} has a task's rows twice")

    def check_end(self) -> None:
        for batch in range(BATCHES):
            if len(self.visible(batch)) != TASKS:
                raise Violation(f"batch {batch}: visible are {self.visible(batch)}")


Protocol = Mapping[str, Callable[..., Generator[Any, None, Any]]]
STEPS: Protocol = {"begin": batches.begin, "commit": batches.commit, "sweep": batches.sweep}


class Run:
    """One run of the query in a Spark of its own: plans, tasks, commit, Spark's commit log.

    `loser`: each batch's first task has a second, losing attempt, which flushes before the commit
    (`"early"`) or after it (`"late"`) and is never told.
    """

    def __init__(
        self, world: World, name: str, *, steps: Protocol = STEPS, loser: str = ""
    ) -> None:
        self.world, self.name, self.steps, self.loser = world, name, steps, loser
        self.place = self.log = world.place
        """Its checkpoint, and the location as this run has read it last."""
        self.generation, self.previous = 0, 0
        self.failed: Exception | None = None
        self.asleep = False
        self.thread = greenlet.greenlet(self._run)
        self.thread.switch()

    @property
    def alive(self) -> bool:
        return not self.thread.dead

    def step(self) -> None:
        self.thread.switch()

    def die(self) -> None:
        self.thread.throw(Died)

    # --- the ports: each call gives way first

    def entries(self) -> Mapping[int, Entry]:
        _give_way()
        return {
            number: replace(entry, committed=number in self.log.marked)
            if isinstance(entry, Decided)
            else entry
            for number, entry in self.log.entries.items()
        }

    def stands(self) -> bool:
        _give_way()
        return self.log is self.world.place

    def append(self, number: int, entry: Entry) -> bool:
        _give_way()
        if number in self.log.entries:
            return False
        is_there = self.log is self.world.place
        if is_there and isinstance(entry, Decided) and entry.batch in self.log.decided():
            raise Violation(f"batch {entry.batch} is decided twice")
        self.log.entries[number] = entry
        return True

    def mark_committed(self, number: int) -> None:
        _give_way()
        decided = self.log.entries.get(number)
        if self.log is self.world.place:
            assert isinstance(decided, Decided)
            if len(self.world.visible(decided.batch, self.log.query)) != TASKS:
                raise Violation(f"marked, and not visible: {decided}")
        self.log.marked.add(number)

    def is_committed(self, number: int) -> bool:
        _give_way()
        return number in self.log.marked

    def forget(self, decided: Decided) -> None:
        _give_way()
        entries, is_there = self.log.entries, self.log is self.world.place
        if is_there and all(entries[n].batch != decided.batch for n in self.log.marked):  # type: ignore[union-attr]
            raise Violation(f"forgotten, and not marked: {decided}")
        self.log.forgotten.add(decided.batch)

    def take_over(self, generation: int) -> None:
        _give_way()
        self.world.fenced_below = max(self.world.fenced_below, generation)

    def commit(self, decided: Decided) -> None:
        if decided.committed:
            raise Violation(f"asked for a marked decision: {decided}")
        for transaction in decided.part:
            _give_way()
            if decided.batch in self.log.forgotten:
                raise LostTransactionError(f"batch {decided.batch} is forgotten")
            if transaction.state != "visible":
                self.world.make_visible(transaction, self.log)

    def lingering(self, below: int) -> Sequence[Transaction]:
        _give_way()
        return [
            t for t in self.world.transactions
            if t.state == "open" and t.generation < below and t.query == self.log.query
        ]  # fmt: skip

    def abort(self, left: Sequence[Transaction]) -> None:
        for transaction in left:
            _give_way()
            if transaction.state == "visible":
                raise Violation(f"to be aborted, and visible: {transaction}")
            transaction.state = "aborted"

    # --- Spark

    def _run(self) -> None:
        _give_way()
        try:
            while (batch := max(self.place.commits, default=-1) + 1) < BATCHES:
                if self.previous and self.log is not self.world.place:
                    self.log, self.previous = self.world.place, 0
                self._batch(batch)
        except (FencedError, CheckpointError) as error:
            self.failed = error
        except _SparkError as error:
            self.failed = error

    def _batch(self, batch: int) -> None:
        this: Try = _drive(self.steps["begin"](self, self, self.previous))
        self.previous = this.number
        part: list[Transaction] = []
        query = f"query {self.place.query}"
        if this.writes(batch, query, adopts=False):
            part = [self._task(batch, task, this) for task in range(TASKS)]
            if self.loser == "early":
                self._task(batch, 0, this)
        mine = Decided(batch, query, this.number, this.generation, tuple(part))
        _drive(self.steps["commit"](self, self, mine))
        if self.loser == "late" and part:
            self._task(batch, 0, this)
        _drive(self.steps["sweep"](self, self, mine))
        _give_way()
        if batch in self.place.commits:
            raise _SparkError("CONCURRENT_STREAM_LOG_UPDATE")
        self.place.commits.add(batch)

    def _task(self, batch: int, task: int, this: Try) -> Transaction:
        _give_way()
        made = Transaction(batch, task, this.generation, this.number, self.log.query)
        self.world.transactions.append(made)
        _give_way()  # flushed: it may have been aborted meanwhile
        if made.state == "aborted":
            raise _SparkError("the task's transaction is fenced")
        return made


class _SparkError(Exception):
    pass


def _give_way() -> None:
    greenlet.getcurrent().parent.switch()


def _drive(steps: Generator[Any, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


__all__ = ["BATCHES", "STEPS", "TASKS", "Begun", "Run", "Violation", "World"]
