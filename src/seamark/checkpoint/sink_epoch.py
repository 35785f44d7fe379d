"""A sink's part of one prepared epoch, and its ledger: docs/FORMAT.md, `prepared.<g>.json`.

Tasks fill a `Tally` (`runtime/pre_commit.py`), the store keeps the `SinkEpoch`, and audits compare
it with what a reader of the sink finds (`verify/audit`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from seamark.checkpoint.channel_state import NO_CHANNEL_STATE, ChannelState
from seamark.checkpoint.row_hash import NO_ROWS, RowSums, row_hashes, sums
from seamark.contracts.read_back import AccountableWriter, Targets

_SMALL_ROWS = 256
_HELD_ROWS = 4096


@dataclass(frozen=True)
class TaskLedger:
    """One task's rows in one sink: their sums by the sink's target partition, "" where the sink
    does not tell it; and the number of the task's committables, in the order of the tasks."""

    task: int
    committables: int
    targets: Mapping[str, RowSums]

    @property
    def sums(self) -> RowSums:
        """Of all rows."""
        return sum(self.targets.values(), NO_ROWS)

    def to_json(self) -> dict[str, Any]:
        """Return its stored form."""
        targets = {target: [part.rows, part.hash] for target, part in self.targets.items()}
        return {"task": self.task, "committables": self.committables, "targets": targets}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> TaskLedger:
        """Read the stored form; raises KeyError, TypeError or ValueError."""
        targets = {target: RowSums.of(*part) for target, part in body["targets"].items()}
        return TaskLedger(body["task"], body["committables"], targets)


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

    def to_json(self) -> dict[str, Any]:
        """Return its stored form."""
        return {
            "rows": self.rows,
            "committables": [base64.b64encode(data).decode() for data in self.committables],
            "ledger": [task.to_json() for task in self.ledger],
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SinkEpoch:
        """Read the stored form, of older versions too; raises KeyError, TypeError or ValueError."""
        return SinkEpoch(
            body["rows"],
            tuple(map(base64.b64decode, body["committables"])),
            tuple(map(TaskLedger.from_json, body.get("ledger", ()))),
        )


class PreparedSinks(dict[str, SinkEpoch]):
    """The sinks of one attempt by uid, and the attempt's channel state."""

    channel_state: ChannelState = NO_CHANNEL_STATE


class Tally:
    """Adds up the rows of one task in one sink's `writer`, by target partition.

    Small batches are held until there are enough rows: numpy takes as long for one row as for a
    thousand.
    """

    def __init__(self, writer: object) -> None:
        self._writer = writer if isinstance(writer, AccountableWriter) else None
        self._held: list[tuple[pa.RecordBatch, Targets | None]] = []
        self._held_rows = 0
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
            self._count(row_hashes(rows), targets)
            return
        self._held.append((rows, targets))
        self._held_rows += rows.num_rows
        if self._held_rows >= _HELD_ROWS:
            self._count_held()

    def close(self) -> Mapping[str, RowSums]:
        """Return the sums by target."""
        self._count_held()
        return self._targets

    def _count_held(self) -> None:
        held, self._held, self._held_rows = self._held, [], 0
        if not held:
            return
        (whole,) = pa.Table.from_batches([rows for rows, _ in held]).combine_chunks().to_batches()
        hashes, start = row_hashes(whole), 0
        if all(targets is None for _, targets in held):
            self._count(hashes, None)
            return
        for rows, targets in held:
            self._count(hashes[start : start + rows.num_rows], targets)
            start += rows.num_rows

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
            found = RowSums(end - start, int(first[at]), int(second[at]))
            self._targets[target] = self._targets.get(target, NO_ROWS) + found
