"""A two-phase-commit sink in memory for the coordinator's own tests; it misbehaves when told to."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamark.contracts.sink import (
    AbortOutcome,
    CommitOutcome,
    Committer,
    Lingering,
    SinkContext,
    TwoPhaseCommitSink,
    WriterContext,
)
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Schema


@dataclass(frozen=True)
class Transaction:
    handle: str
    generation: int


@dataclass
class MemorySink(TwoPhaseCommitSink[Transaction]):
    """`open` holds flushed transactions, `visible` committed ones; `answers` come first. The call
    named in `hangs` returns when `released` is set; those named in `raises` raise that error."""

    open: dict[str, Transaction] = field(default_factory=dict)
    visible: list[str] = field(default_factory=list)
    answers: list[CommitOutcome] = field(default_factory=list)
    closed: int = 0
    hangs: str = ""
    raises: dict[str, Exception] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    way: SinkWay = SinkWay.TWO_PHASE_COMMIT

    def flush(self, handle: str, generation: int) -> bytes:
        self.open[handle] = Transaction(handle, generation)
        return self.dump(self.open[handle])

    def describe(self) -> str:
        return "memory"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        return [column.name for column in schema]

    def check_transaction_scope(self, context: SinkContext) -> None: ...

    def create_writer(self, context: WriterContext) -> Any:
        raise NotImplementedError

    def create_committer(self, context: SinkContext) -> Committer[Transaction]:
        return self

    def dump(self, committable: Transaction) -> bytes:
        return f"{committable.generation}:{committable.handle}".encode()

    def load(self, data: bytes) -> Transaction:
        generation, _, handle = data.decode().partition(":")
        return Transaction(handle, int(generation))

    def _perhaps_hang(self, call: str) -> None:
        self.calls.append(call)
        if call in self.raises:
            raise self.raises[call]
        if call == self.hangs:
            self.released.wait()

    def preflight(self) -> None:
        self._perhaps_hang("preflight")

    def commit(self, committables: Sequence[Transaction]) -> Sequence[CommitOutcome]:
        self._perhaps_hang("commit")
        return [self._commit(c) for c in committables]

    def _commit(self, committable: Transaction) -> CommitOutcome:
        if self.answers:
            return self.answers.pop(0)
        if committable.handle in self.visible:
            return CommitOutcome.ALREADY_COMMITTED
        if self.open.pop(committable.handle, None) is None:
            return CommitOutcome.LOST
        self.visible.append(committable.handle)
        return CommitOutcome.COMMITTED

    def abort(self, committables: Sequence[Transaction]) -> Sequence[AbortOutcome]:
        self._perhaps_hang("abort")
        outcomes = []
        for committable in committables:
            self.open.pop(committable.handle, None)
            visible = committable.handle in self.visible
            outcomes.append(AbortOutcome.COMMITTED if visible else AbortOutcome.ABORTED)
        return outcomes

    def list_lingering(self) -> Iterable[Lingering[Transaction]]:
        self._perhaps_hang("list_lingering")
        return [Lingering(t, t.generation) for t in self.open.values()]

    def close(self) -> None:
        self.closed += 1
        self._perhaps_hang("close")
