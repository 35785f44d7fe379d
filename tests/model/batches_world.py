"""Runs of a query of ``format("seamark")`` on one world: Spark's two logs, the location, one sink.

Each process is a greenlet that gives way before every single call to the world, so a schedule may
let it die or sleep between any two. The steps are those of `protocol/batches.py` itself.

Invariants, checked whenever a transaction becomes visible and at the end:
- only transactions of a decided batch become visible, those of one try alone, and no row twice;
- nothing decided is ever aborted;
- no system is asked for a marked decision, but by a process that was asleep: it has forgotten it;
- once an undisturbed run has come to rest, every row is visible once.
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
    state: str = "open"


@dataclass
class World:
    """All that outlives a process."""

    entries: dict[int, Entry] = field(default_factory=dict)
    planned: int = -1
    commits: set[int] = field(default_factory=set)
    transactions: list[Transaction] = field(default_factory=list)
    fenced_below: int = 0
    marked: set[int] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    """Batches of which the sink knows nothing any more."""

    def visible(self, batch: int) -> list[Transaction]:
        return [t for t in self.transactions if t.batch == batch and t.state == "visible"]

    def decided(self) -> dict[int, Decided]:
        return {e.batch: e for e in self.entries.values() if isinstance(e, Decided)}

    def make_visible(self, transaction: Transaction) -> None:
        decided = self.decided().get(transaction.batch)
        if transaction.state == "aborted":
            raise Violation(f"decided and aborted: {transaction}")
        if decided is None or transaction not in decided.part:
            raise Violation(f"visible without a decision: {transaction}")
        transaction.state = "visible"
        tasks = [t.task for t in self.visible(transaction.batch)]
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
            number: replace(entry, committed=number in self.world.marked)
            if isinstance(entry, Decided)
            else entry
            for number, entry in self.world.entries.items()
        }

    def append(self, number: int, entry: Entry) -> bool:
        _give_way()
        if number in self.world.entries:
            return False
        if isinstance(entry, Decided) and entry.batch in self.world.decided():
            raise Violation(f"batch {entry.batch} is decided twice")
        self.world.entries[number] = entry
        return True

    def mark_committed(self, number: int) -> None:
        _give_way()
        decided = self.world.entries[number]
        assert isinstance(decided, Decided)
        if len(self.world.visible(decided.batch)) != TASKS:
            raise Violation(f"marked, and not visible: {decided}")
        self.world.marked.add(number)

    def is_committed(self, number: int) -> bool:
        _give_way()
        return number in self.world.marked

    def forget(self, decided: Decided) -> None:
        _give_way()
        if all(self.world.entries[n].batch != decided.batch for n in self.world.marked):  # type: ignore[union-attr]
            raise Violation(f"forgotten, and not marked: {decided}")
        self.world.forgotten.add(decided.batch)

    def take_over(self, generation: int) -> None:
        _give_way()
        self.world.fenced_below = max(self.world.fenced_below, generation)

    def commit(self, decided: Decided) -> None:
        if decided.committed:
            raise Violation(f"asked for a marked decision: {decided}")
        for transaction in decided.part:
            _give_way()
            if decided.batch in self.world.forgotten:
                raise LostTransactionError(f"batch {decided.batch} is forgotten")
            if transaction.state != "visible":
                self.world.make_visible(transaction)

    def lingering(self, below: int) -> Sequence[Transaction]:
        _give_way()
        return [t for t in self.world.transactions if t.state == "open" and t.generation < below]

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
            while (batch := max(self.world.commits, default=-1) + 1) < BATCHES:
                self._batch(batch)
        except (FencedError, CheckpointError) as error:
            self.failed = error
        except _SparkError as error:
            self.failed = error

    def _batch(self, batch: int) -> None:
        this: Try = _drive(self.steps["begin"](self, self, self.previous))
        self.previous = this.number
        part: list[Transaction] = []
        if this.writes(batch, "query", adopts=False):
            part = [self._task(batch, task, this) for task in range(TASKS)]
            if self.loser == "early":
                self._task(batch, 0, this)
        mine = Decided(batch, "query", this.number, this.generation, tuple(part))
        _drive(self.steps["commit"](self, self, mine))
        if self.loser == "late" and part:
            self._task(batch, 0, this)
        _drive(self.steps["sweep"](self, self, mine))
        _give_way()
        if batch in self.world.commits:
            raise _SparkError("CONCURRENT_STREAM_LOG_UPDATE")
        self.world.commits.add(batch)

    def _task(self, batch: int, task: int, this: Try) -> Transaction:
        _give_way()
        made = Transaction(batch, task, this.generation, this.number)
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
