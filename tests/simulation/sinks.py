"""Simulated systems behind the real sink contract, and the real write-ahead sink over one of them.

A transactional sink follows Kafka, as the model's does: a pool of ids, each with one open
transaction, and a handle that is the id alone. Any answer may be late, lost, or never come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from seamark.contracts.sink import (
    AbortOutcome,
    CommitOutcome,
    Lingering,
    SinkContext,
    TwoPhaseCommitSink,
    WriterContext,
)
from seamark.contracts.write_ahead import EpochToken
from seamark.model.errors import AbortFailedError
from seamark.model.guarantee import SinkWay
from seamark.sinks.write_ahead import WriteAheadSink
from tests.model.world import Transaction

from .reality import SPOOLED, UPSERT, WRITE_AHEAD, Reality

SCHEMA = pa.schema([("row", pa.int64())])
TakeId = Callable[[str, WriterContext], str]


class Rows(tuple[int, ...]):
    """A batch for sinks that need no Arrow."""

    num_rows = property(len)


def batch(rows: Sequence[int], way: str) -> Any:
    if way in (SPOOLED, WRITE_AHEAD):
        return pa.record_batch([pa.array(rows, pa.int64())], schema=SCHEMA)
    return Rows(rows)


def rows_of(found: Any) -> tuple[int, ...]:
    return tuple(found) if isinstance(found, Rows) else tuple(found.column(0).to_pylist())


@dataclass(frozen=True)
class Id:
    """A committable: the transactional id, and which of its transactions."""

    handle: str
    number: int


class TransactionalSink(TwoPhaseCommitSink[Id]):
    def __init__(self, uid: str, world: Reality, take_id: TakeId) -> None:
        self.uid = uid
        self.world = world
        self.spool = world.ways[uid] == SPOOLED
        self.take_id = take_id

    def describe(self) -> str:
        return self.uid

    def check_transaction_scope(self, context: SinkContext) -> None: ...

    def create_writer(self, context: WriterContext) -> Any:
        return _Writer(self, context)

    def create_committer(self, context: SinkContext) -> Any:
        return _Committer(self)

    def dump(self, committable: Id) -> bytes:
        return f"{committable.handle}#{committable.number}".encode()

    def load(self, data: bytes) -> Id:
        handle, _, number = data.decode().rpartition("#")
        return Id(handle, int(number))


class _Writer:
    def __init__(self, sink: TransactionalSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._made: Id | None = None
        self._transaction: Transaction | None = None

    def write(self, found: Any) -> None:
        sink, at, world = self._sink, self._context, self._sink.world
        if self._transaction is None:
            id_ = sink.take_id(sink.uid, at)
            world.machine.step(f"{sink.uid}: begin {id_}")
            made = world.sinks[sink.uid].begin(id_, at.epoch, at.generation)
            number = sum(t.id == id_ for t in world.sinks[sink.uid].transactions)
            world.by_handle[sink.uid, id_, number] = made
            self._made, self._transaction = Id(id_, number), made
        world.machine.step(f"{sink.uid}: write")
        world.sinks[sink.uid].write(self._transaction, rows_of(found))

    def prepare_commit(self) -> Sequence[Id]:
        self._sink.world.machine.step(f"{self._sink.uid}: flush")
        return [self._made] if self._made is not None else []

    def abort(self) -> None:
        self._sink.world.machine.step(f"{self._sink.uid}: give up")
        if self._transaction is not None and self._transaction.state == "open":
            self._transaction.state = "aborted"


class _Committer:
    def __init__(self, sink: TransactionalSink) -> None:
        self._sink = sink
        self._world = sink.world

    def preflight(self) -> None: ...

    def close(self) -> None: ...

    def commit(self, committables: Sequence[Id]) -> Sequence[CommitOutcome]:
        return [self._ask("commit", c, self._commit, CommitOutcome.RETRY) for c in committables]

    def abort(self, committables: Sequence[Id]) -> Sequence[AbortOutcome]:
        return [self._ask("abort", c, self._abort, AbortOutcome.RETRY) for c in committables]

    def list_lingering(self) -> list[Lingering[Id]]:
        uid, at = self._sink.uid, self._world.machine
        try:
            found = at.call(f"{uid}: list", lambda: self._world.sinks[uid].open())
        except OSError as error:
            raise AbortFailedError(f"{uid} could not be proved aborted: {error}") from error
        names = {id(t): Id(i, n) for (u, i, n), t in self._world.by_handle.items() if u == uid}
        return [Lingering(names[id(t)], t.generation) for t in found]

    def _ask(self, what: str, c: Id, act: Callable[[Transaction], Any], retry: Any) -> Any:
        transaction = self._world.by_handle[self._sink.uid, c.handle, c.number]
        try:
            return self._world.machine.call(
                f"{self._sink.uid}: {what} {c.handle}#{c.number}",
                lambda: self._world.judged(lambda: act(transaction)),
                changes=True,
            )
        except OSError:
            return retry

    def _commit(self, transaction: Transaction) -> CommitOutcome:
        uid = self._sink.uid
        if self._world.sinks[uid].unknown(transaction):
            return CommitOutcome.UNKNOWN
        if transaction.state == "open":
            self._world.commit(uid, transaction)
            return CommitOutcome.COMMITTED
        if transaction.state == "committed":
            return CommitOutcome.ALREADY_COMMITTED
        return CommitOutcome.LOST

    def _abort(self, transaction: Transaction) -> AbortOutcome:
        unknown = self._world.sinks[self._sink.uid].unknown(transaction)
        if transaction.state == "committed" and not unknown:
            return AbortOutcome.COMMITTED
        if transaction.state == "open":
            transaction.state = "aborted"
        return AbortOutcome.ABORTED


class UpsertSink(TwoPhaseCommitSink[Id]):
    """Rows are visible at the flush, each under its own key: a repetition changes nothing."""

    def __init__(self, uid: str, world: Reality) -> None:
        self.uid = uid
        self.world = world

    @property
    def way(self) -> SinkWay:
        return SinkWay.NONE

    def describe(self) -> str:
        return self.uid

    def check_transaction_scope(self, context: SinkContext) -> None: ...

    def create_writer(self, context: WriterContext) -> Any:
        return _Upserts(self)

    def create_committer(self, context: SinkContext) -> Any:
        return _Nothing()

    def dump(self, committable: Id) -> bytes:
        raise NotImplementedError

    def load(self, data: bytes) -> Id:
        raise NotImplementedError


class _Upserts:
    def __init__(self, sink: UpsertSink) -> None:
        self._sink = sink
        self._rows: set[int] = set()

    def write(self, found: Any) -> None:
        self._rows |= set(rows_of(found))

    def prepare_commit(self) -> Sequence[Id]:
        at, uid = self._sink.world, self._sink.uid
        at.machine.step(f"{uid}: upsert")
        at.upserted[uid] |= self._rows
        return []

    def abort(self) -> None: ...


class _Nothing:
    def preflight(self) -> None: ...

    def close(self) -> None: ...

    def commit(self, committables: Sequence[Id]) -> Sequence[CommitOutcome]:
        return [CommitOutcome.ALREADY_COMMITTED for _ in committables]

    def abort(self, committables: Sequence[Id]) -> Sequence[AbortOutcome]:
        return [AbortOutcome.ABORTED for _ in committables]

    def list_lingering(self) -> list[Lingering[Id]]:
        return []


class Target(WriteAheadSink):
    """The real write-ahead sink, sending to a target that keeps tokens."""

    idempotent = True

    def __init__(self, uid: str, world: Reality) -> None:
        self.uid = uid
        self.world = world

    def describe(self) -> str:
        return self.uid

    def send(self, batches: Iterator[Any], token: EpochToken) -> None:
        rows = tuple(row for found in batches for row in rows_of(found))
        self.world.machine.call(
            f"{self.uid}: send {token.epoch}",
            lambda: self.world.judged(
                lambda: self.world.take(self.uid, str(token), token.epoch, rows)
            ),
            changes=True,
        )


def make_sink(uid: str, world: Reality, take_id: TakeId) -> TwoPhaseCommitSink[Any]:
    """Return one driver's sink, by the world's way for it."""
    way = world.ways[uid]
    if way == UPSERT:
        return UpsertSink(uid, world)
    if way == WRITE_AHEAD:
        return Target(uid, world)
    return TransactionalSink(uid, world, take_id)
