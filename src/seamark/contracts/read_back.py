"""Rows read back from a sink's target: an optional part of the sink contract, for `seamark audit`.

A writer may tell the target partition of each row (`AccountableWriter`). A sink may read back what
its readers see (`ReadableSink`), and say which rows replace others (`UpsertingSink`). None of it
takes part in the protocol.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from seamark.contracts.sink import SinkContext

DELETE = "delete"
"""In the op column of an upserting sink: the row deletes that of its key."""


@dataclass(frozen=True)
class Targets:
    """The target partitions of the rows of one batch. `order` (None: as they are) groups the rows;
    `groups` are the (target, start, end) of each group in that order, without gaps."""

    order: Any | None
    groups: Sequence[tuple[str, int, int]]


@runtime_checkable
class AccountableWriter(Protocol):
    """A writer that knows where each row goes, and how a reader finds it there."""

    def last_targets(self) -> Targets | None:
        """Return the targets of the rows taken by the last `write`; None if not known."""

    def as_found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as `ReadableSink.read_back` gives them. Other writers' rows are found as
        they were written."""


@dataclass(frozen=True)
class FoundRows:
    """Rows that a reader of the target finds.

    `rows` have the columns of `CommittingWriter.write`. `writers` are the numbers in
    `ReadBack.committables` of the transactions of which one has written them; () if it was none of
    these, None if the target does not tell. `epoch` is the rows' epoch where the target tells that
    alone, else None. `target` is as in `Targets`; `place` names the rows' surroundings to people,
    and `positions` each row in it, if it has one.
    """

    rows: pa.RecordBatch
    writers: tuple[int, ...] | None = None
    epoch: int | None = None
    target: str = ""
    place: str = ""
    positions: Any | None = None


@dataclass(frozen=True)
class ReadBack:
    """What to read: `schema` is that of the rows as written, `committables` are all those in the
    job's ledger. `epoch_column` names a column of the target with each row's epoch; "" for none.
    Without `by_transaction` the rows' writers are not wanted: they cannot tell them."""

    context: SinkContext
    schema: pa.Schema
    committables: Sequence[Any]
    epoch_column: str = ""
    by_transaction: bool = True


@runtime_checkable
class ReadableSink(Protocol):
    """A sink whose target can be read back. A sink without this method cannot be audited."""

    def read_back(self, asked: ReadBack) -> Iterator[FoundRows]:
        """Yield every row that a reader sees now, other writers' rows too. Changes nothing.

        Raises UserError if the target cannot be compared with the rows as written, and why;
        OperationFailedError if it does not answer.
        """


@runtime_checkable
class UpsertingSink(Protocol):
    """A sink that may have one row for each key: the last one of its task in the newest epoch. An
    audit of it compares by key, and asks `read_back` for no writers."""

    @property
    def keys(self) -> Sequence[str]:
        """The columns of a row's key, never null; () if rows are appended."""

    @property
    def op(self) -> str | None:
        """A string column that is not written; where it is `DELETE`, the row deletes that of its
        key. None if no row does."""
