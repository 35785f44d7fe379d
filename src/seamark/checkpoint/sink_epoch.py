"""A sink's part of one prepared epoch, and its ledger: docs/FORMAT.md, `prepared.<g>.json`.

Tasks fill a `Tally` (`run/pre_commit.py`), the store keeps the `SinkEpoch`, and audits compare
it with what a reader of the sink finds (`verify/audit`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.checkpoint.channel_state import NO_CHANNEL_STATE, ChannelState
from seamark.checkpoint.row_hash import NO_ROWS, RowSums, row_hashes, sums
from seamark.contracts.read_back import DELETE, AccountableWriter, Targets, UpsertingSink
from seamark.model.records import record_of

_SMALL_ROWS = 256
_HELD_ROWS = 4096
_HELD_BYTES = 32 * 2**20
"""Of the buffers that held batches keep alive: a slice keeps those of its whole batch."""
MOST_KEYED_ROWS = 100_000
"""The most rows of an epoch in an upserting sink whose keys the ledger keeps, at 16 bytes a row. Of
an epoch with more than ten tasks, task n keeps those of at most 10 / (n + 1) times as many: the
reports of a thousand tasks stay below 100 MB, far from `spark.driver.maxResultSize`."""
DELETED = np.uint64(0)
"""Stands for the hash of a row that deletes its key's row."""


@dataclass(frozen=True)
class TaskLedger:
    """One task's rows in one sink: their sums by the sink's target partition, "" where the sink
    does not tell it; and the number of the task's committables, in the order of the tasks.

    `keys`, of an upserting sink: of each key the last row, as pairs of little-endian uint64, the
    hashes of key and row. None if they are not kept."""

    task: int
    committables: int
    targets: Mapping[str, RowSums]
    keys: bytes | None = None

    @property
    def sums(self) -> RowSums:
        """Of all rows."""
        return sum(self.targets.values(), NO_ROWS)

    def to_record(self) -> dict[str, Any]:
        """Return its stored form."""
        known = {name: one for name, one in vars(self).items() if one is not None}
        return {name: record_of(one) for name, one in known.items()}


@dataclass(frozen=True)
class SinkEpoch:
    """One sink's part of one prepared epoch: its row count, its dumped committables, and its
    ledger, which is empty in older records."""

    rows: int
    committables: tuple[bytes, ...]
    ledger: tuple[TaskLedger, ...] = field(default=(), compare=False)

    @property
    def sums(self) -> RowSums | None:
        """Of all rows; None without a ledger."""
        if self.rows and not self.ledger:
            return None
        return sum((task.sums for task in self.ledger), NO_ROWS)


class PreparedSinks(dict[str, SinkEpoch]):
    """The sinks of one attempt by uid, and the attempt's channel state."""

    channel_state: ChannelState = NO_CHANNEL_STATE


class Tally:
    """Adds up the rows of one task in one sink's `writer`, by target partition; of an upserting
    sink it keeps the keys too.

    Small batches are held until there are enough rows: numpy takes as long for one row as for a
    thousand.
    """

    def __init__(self, writer: object, upserts: UpsertingSink | None = None, task: int = 0) -> None:
        """`upserts` is the sink, if it has keys; `task` the task's number in its epoch."""
        self._writer = writer if isinstance(writer, AccountableWriter) else None
        self._upserts = upserts
        self._held: list[tuple[pa.RecordBatch, Targets | None]] = []
        self._held_rows = self._held_bytes = 0
        self._most_keyed_rows = min(MOST_KEYED_ROWS, 10 * MOST_KEYED_ROWS // (task + 1))
        self._keyed_rows = 0
        self._keyed: list[tuple[Any, Any]] = []
        self._targets: dict[str, RowSums] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the rows that the sink's writer has taken in its last call."""
        if rows.num_rows == 0:
            return
        targets = None
        if self._writer is not None:
            targets = self._writer.last_targets()
            rows = self._writer.as_found(rows)
        if rows.num_rows >= _SMALL_ROWS and not self._held:
            self._count(self._hashes(rows), targets)
            return
        self._held.append((rows, targets))
        self._held_rows += rows.num_rows
        self._held_bytes += rows.get_total_buffer_size()
        if self._held_rows >= _HELD_ROWS or self._held_bytes >= _HELD_BYTES:
            self._count_held()

    def close(self) -> Mapping[str, RowSums]:
        """Return the sums by target."""
        self._count_held()
        return self._targets

    def keys(self) -> bytes | None:
        """Return them as `TaskLedger` has them, after `close`."""
        if self._upserts is None or self._keyed_rows > self._most_keyed_rows:
            return None
        keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in self._keyed)])
        rows = np.concatenate([np.empty(0, np.uint64), *(rows for _, rows in self._keyed)])
        _, last = np.unique(keys[::-1], return_index=True)
        chosen = len(keys) - 1 - last
        return np.stack([keys[chosen], rows[chosen]], axis=1).astype("<u8").tobytes()

    def _count_held(self) -> None:
        held, self._held, self._held_rows, self._held_bytes = self._held, [], 0, 0
        if not held:
            return
        (whole,) = pa.Table.from_batches([rows for rows, _ in held]).combine_chunks().to_batches()
        hashes, start = self._hashes(whole), 0
        if all(targets is None for _, targets in held):
            self._count(hashes, None)
            return
        for rows, targets in held:
            self._count(hashes[start : start + rows.num_rows], targets)
            start += rows.num_rows

    def _hashes(self, rows: pa.RecordBatch) -> Any:
        """Return the rows' hashes; note them by key for an upserting sink."""
        hashes = row_hashes(rows)
        if self._upserts is None:
            return hashes
        self._keyed_rows += rows.num_rows
        if self._keyed_rows <= self._most_keyed_rows:
            kept, op = hashes, self._upserts.op
            if op is not None:
                deletes = np.asarray(pc.equal(rows.column(op), DELETE))
                kept = np.where(deletes, DELETED, row_hashes(rows.drop_columns([op])))
            self._keyed.append((row_hashes(rows.select(list(self._upserts.keys))), kept))
        return hashes

    def _count(self, hashes: Any, targets: Targets | None) -> None:
        if targets is None:
            self._targets[""] = self._targets.get("", NO_ROWS) + sums(hashes)
            return
        if targets.order is not None:
            hashes = hashes[targets.order]
        firsts = [start for _, start, _ in targets.groups]
        first = np.add.reduceat(hashes, firsts)
        second = np.add.reduceat(hashes * hashes, firsts)
        for at, (target, start, end) in enumerate(targets.groups):
            part_sums = RowSums(end - start, int(first[at]), int(second[at]))
            self._targets[target] = self._targets.get(target, NO_ROWS) + part_sums
