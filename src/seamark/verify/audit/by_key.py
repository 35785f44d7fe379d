"""Audits an upserted table by key: of each key it must have the last row that the ledger has.

The ledger keeps the hashes of each epoch's keys and rows. Where several tasks wrote one key in an
epoch, the row of any of them may stand. The table is read once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from seamark.checkpoint.ledger import LedgerEntry
from seamark.checkpoint.row_hash import P2, row_hashes
from seamark.checkpoint.sink_epoch import DELETED, MOST_KEYED_ROWS
from seamark.contracts.read_back import FoundRows, ReadBack, UpsertingSink
from seamark.model.errors import UserError
from seamark.verify.audit.cells import Cell
from seamark.verify.audit.faults import MOST_EXAMPLES, rows_at
from seamark.verify.audit.findings import Comparison, Fault, FoundRow
from seamark.verify.audit.one_sink import Question, SinkReading


class LastWrites:
    """What one sink was given: its keys, sorted, and the newest epoch of each. `since` is the first
    epoch from which on the ledger has all keys; `judged` are the keys whose last row is of the
    epochs asked for."""

    def __init__(
        self,
        uid: str,
        entries: Iterable[LedgerEntry],
        undecided: Iterable[LedgerEntry],
        asked: tuple[int, int],
        since: int = 0,
    ) -> None:
        """`undecided` attempts may be committed while the target is read: their keys are not
        judged. `asked` are the first and last epoch to judge; what was written before `since` is
        not known."""
        self.since, writes = since, list[tuple[int, int, Any]]()
        for entry in (entry for entry in entries if entry.epoch >= since):
            for task in entry.sinks[uid].ledger if uid in entry.sinks else ():
                if task.keys is None:
                    self.since = entry.epoch + 1
                else:
                    writes.append((entry.epoch, task.task, _pairs(task.keys)))
            if uid in entry.sinks and entry.sinks[uid].sums is None:
                self.since = entry.epoch + 1
        writes = [write for write in writes if write[0] >= self.since]
        pairs = np.concatenate([_pairs(b""), *(pairs for _, _, pairs in writes)])
        counts = [len(pairs) for _, _, pairs in writes]
        epochs = np.repeat(np.array([epoch for epoch, _, _ in writes], np.int64), counts)
        tasks = np.repeat(np.array([task for _, task, _ in writes], np.int64), counts)
        order = np.lexsort((tasks, epochs, pairs[:, 0]))
        keys, rows, epochs = pairs[order, 0], pairs[order, 1], epochs[order]
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))[: len(keys)])
        ends = np.append(starts[1:], len(keys)) - 1 if len(keys) else starts
        self.keys, self.epochs, self.tasks = keys[starts], epochs[ends], tasks[order][ends]
        self.rows = rows[ends]
        """Of each key the last row, DELETED if its task has deleted it."""
        last = epochs == np.repeat(self.epochs, ends - starts + 1)
        self.right = np.sort(_joined(keys[last], rows[last]))
        self.written = np.sort(_joined(keys, rows))
        deleted = np.sort(keys[last & (rows == DELETED)])
        self.may_be_gone = _within(deleted, self.keys)
        """Whether a key's row may have been deleted."""
        open_ = [task.keys for e in undecided if uid in e.sinks for task in e.sinks[uid].ledger]
        self.any_pending = None in open_
        """Whether an undecided attempt has no keys: it may have written each."""
        waiting = [_pairs(keys)[:, 0] for keys in open_ if keys is not None]
        self.pending = np.sort(np.concatenate([np.empty(0, np.uint64), *waiting]))
        within = (self.epochs >= asked[0]) & (self.epochs <= asked[1]) & (not self.any_pending)
        self.judged = within & ~_within(self.pending, self.keys)


@dataclass
class _Some:
    """The rows of one finding: their number, and a few of them."""

    rows: int = 0
    examples: list[FoundRow] = field(default_factory=list)
    hash: str = ""


class KeyAudit(SinkReading):
    """The audit of an upserted target; as `SinkAudit`, with one look."""

    def __init__(self, question: Question, writes: LastWrites, incomplete: str) -> None:
        """`incomplete` says why the target may have keys of the job that the ledger does not know;
        "" if it cannot."""
        super().__init__(question)
        self._writes = writes
        self._incomplete = incomplete or question.foreign_expected
        if not self._incomplete and writes.since:
            self._incomplete = "an earlier epoch may have written them"
        if not self._incomplete and writes.any_pending:
            self._incomplete = "an epoch that is not decided may have written them"
        self._found: dict[tuple[Fault, int, int], _Some] = {}
        self._seen = np.zeros(len(writes.keys), bool)
        self._right = np.zeros(len(writes.keys), np.int64)
        self._unknown = _Some()

    @property
    def schema(self) -> pa.Schema:
        """Of the rows as they are in the target."""
        sink, schema = self._question.sink, self._question.schema
        assert isinstance(sink, UpsertingSink)
        return schema if sink.op is None else schema.remove(schema.get_field_index(sink.op))

    def run(self) -> None:
        """Read the target, and judge each row by its key."""
        sink, result, writes = self.readable(), self.result, self._writes
        if sink is None:
            return
        if not self._question.by_transaction:
            result.notes.append(
                "without exactly-once a reader may see rows of epochs that were never decided: "
                "not compared"
            )
            return
        try:
            for rows in sink.read_back(self._asked()):
                self._look_at(rows)
        except UserError as error:
            result.notes.append(str(error))
            return
        result.comparison = Comparison.KEY
        result.expected_rows = int((writes.rows != DELETED).sum())
        self._look_at_counts()
        if writes.since:
            result.notes.append(
                f"of epochs before {writes.since} the ledger has no keys (more than "
                f"{MOST_KEYED_ROWS} rows, or than a task's share of its later tasks; an older "
                "release; damage): keys that no later epoch has written are not compared"
            )
        if writes.any_pending:
            result.notes.append(
                "an epoch that is not decided has no keys in the ledger: no key is compared; ask "
                "again when it is committed"
            )
        if self._unknown.rows and self._incomplete:
            result.notes.append(
                f"{self._unknown.rows} rows of keys that the ledger does not have are left out: "
                f"{self._incomplete}"
            )

    def look_closer(self) -> None:
        """Do nothing: `run` has seen the rows."""

    def missing_hashes(self) -> set[int]:
        """Return the hashes of a few rows known to be missing."""
        return {int(some.hash, 16) for some in self._found.values() if some.hash}

    def tell(self, known: Mapping[int, FoundRow]) -> None:
        """Make the findings. `known` are rows by their hash, found in other sinks."""
        for (fault, epoch, task), some in sorted(
            self._found.items(), key=lambda one: (one[0][1], one[0][0].value, one[0][2])
        ):
            lost = known.get(int(some.hash, 16)) if some.hash else None
            examples = some.examples or ([lost] if lost else [])
            place = str(Cell(epoch, "", ((epoch, task),)))
            self._find(fault, epoch, some.rows, place, examples, hash=some.hash)
        if self._unknown.rows and not self._incomplete:
            self._find(Fault.FOREIGN, -1, self._unknown.rows, "", self._unknown.examples)

    def _asked(self) -> ReadBack:
        return ReadBack(self._question.context, self.schema, (), by_transaction=False)

    def _look_at(self, found: FoundRows) -> None:
        writes, sink = self._writes, self._question.sink
        assert isinstance(sink, UpsertingSink)
        keys, rows = row_hashes(found.rows.select(list(sink.keys))), row_hashes(found.rows)
        self.result.found_rows += len(keys)
        at, known = _places(writes.keys, keys)
        _add(self._unknown, found, ~known & ~_within(writes.pending, keys))
        right = known & _within(writes.right, _joined(keys, rows))
        self._seen[at[known]] = True
        np.add.at(self._right, at[right], 1)
        wrong = known & ~right
        if not wrong.any():
            return
        wrong[known] &= writes.judged[at[known]]
        written = _within(writes.written, _joined(keys, rows))
        for fault, of_fault in (
            (Fault.OUTDATED, wrong & written),
            (Fault.CHANGED, wrong & ~written),
        ):
            for epoch, task in self._owners(at[of_fault]):
                chosen = of_fault & (writes.epochs[at] == epoch) & (writes.tasks[at] == task)
                _add(self._found.setdefault((fault, epoch, task), _Some()), found, chosen)

    def _look_at_counts(self) -> None:
        writes = self._writes
        missing = ~self._seen & ~writes.may_be_gone & writes.judged
        more = np.where(writes.judged, np.maximum(self._right - 1, 0), 0)
        for fault, rows in ((Fault.MISSING, missing), (Fault.DOUBLED, more)):
            for epoch, task in self._owners(np.flatnonzero(rows)):
                of_owner = (rows > 0) & (writes.epochs == epoch) & (writes.tasks == task)
                first = int(writes.rows[np.flatnonzero(of_owner)[0]])
                self._found[fault, epoch, task] = _Some(
                    int(rows[of_owner].sum()), hash=f"{first:016x}"
                )

    def _owners(self, at: Any) -> Sequence[tuple[int, int]]:
        owners = zip(self._writes.epochs[at].tolist(), self._writes.tasks[at].tolist(), strict=True)
        return sorted({*owners})


def _add(some: _Some, found: FoundRows, chosen: Any) -> None:
    some.rows += int(chosen.sum())
    if len(some.examples) < MOST_EXAMPLES and chosen.any():
        some.examples += rows_at(found, chosen)[: MOST_EXAMPLES - len(some.examples)]


def _pairs(keys: bytes) -> Any:
    return np.frombuffer(keys, "<u8").astype(np.uint64).reshape(-1, 2)


def _joined(keys: Any, rows: Any) -> Any:
    return keys + rows * P2


def _places(ordered: Any, values: Any) -> tuple[Any, Any]:
    """Return where each value may stand in `ordered`, and whether it stands there."""
    if not len(ordered):
        return np.zeros(len(values), np.int64), np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return at, ordered[at] == values


def _within(ordered: Any, values: Any) -> Any:
    return _places(ordered, values)[1]
