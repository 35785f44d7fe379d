"""Dead letters: rows refused by one sink's system go to a second sink, in the same epoch.

Two abilities are one optional method each, besides those of `contracts/sink.py`:

- `SelectiveSink`: tells refused rows from accepted ones, so a job may declare it with
  ``on_bad_row="dead_letter"``;
- `DeadLetterFormat`: its writers want dead letters in other columns than `DEAD_LETTER_SCHEMA`. A
  sink without it can take dead letters if its `select_expressions` leave these columns unchanged.

`run/dead_letters.py` makes the letters, `run/pre_commit.py` writes them.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from seamark.contracts.sink import C_co, CommittingWriter, WriterContext
from seamark.model.schema import Column, Schema

DEAD_LETTER_SCHEMA: Schema = (
    Column("sink", "string"),
    Column("epoch", "bigint"),
    Column("reason", "string"),
    Column("row_json", "string"),
)
"""The columns of a dead letter: the uid of the refusing sink, the epoch, the system's reason, and
the row as that sink's writer got it, as the text of one JSON object."""


@dataclass(frozen=True)
class RefusedRow:
    """A row refused by the system: its index in the batch, and the system's reason."""

    index: int
    reason: str


class Refusals:
    """The refused rows of one batch: of each row the first reason counts."""

    def __init__(self, known: Sequence[RefusedRow] = ()) -> None:
        self._reasons = {row.index: row.reason for row in known}

    def add(self, where: Any, reason: str | Callable[[int], str]) -> "Refusals":
        """Refuse the rows of a mask; return this object."""
        for index in np.flatnonzero(where).tolist():
            self._reasons.setdefault(index, reason if isinstance(reason, str) else reason(index))
        return self

    def rows(self) -> list[RefusedRow]:
        """Return the rows, by rising index."""
        return [RefusedRow(index, self._reasons[index]) for index in sorted(self._reasons)]


def without(batch: pa.RecordBatch, refused: Sequence[RefusedRow]) -> pa.RecordBatch:
    """Return the batch without the refused rows."""
    if not refused:
        return batch
    bad = {row.index for row in refused}
    kept = [index for index in range(batch.num_rows) if index not in bad]
    return batch.take(pa.array(kept, pa.int64()))


class SelectiveWriter(CommittingWriter[C_co], Protocol[C_co]):
    """A writer for a system with refusals of single rows; it names the refused rows."""

    @abstractmethod
    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """Take each row accepted by the system, as `write` does; return the refused rows.

        Refused rows come by rising index, each once. Called instead of `write`, never mixed with
        it. Accepted rows must not be refused later: neither by `prepare_commit` nor, above all, by
        the commit. Raises for a fault of no single row (the system is away, the table is gone);
        then the epoch fails. An attempt without an accepted row prepares no transaction.
        """


@runtime_checkable
class SelectiveSink(Protocol):
    """A sink for declarations with ``on_bad_row="dead_letter"``."""

    def create_selective_writer(self, context: WriterContext) -> SelectiveWriter[Any]:
        """Return the writer; called instead of `create_writer`, once per attempt of a task."""


@runtime_checkable
class DeadLetterFormat(Protocol):
    """A sink with dead letters in columns of its own."""

    def from_dead_letters(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows of `DEAD_LETTER_SCHEMA`, one for one, to the columns for `write`.

        Called first with no rows, when the job is built; raises ConfigurationError there if this
        sink, as configured, cannot take dead letters. Later called in tasks, before each `write`.
        """


def dead_letters_as_json(letters: pa.RecordBatch) -> list[str]:
    """Return each dead letter as the text of one JSON object, for sinks with one value a row.

    The object has `sink`, `epoch`, `reason` and `row`; `row` is an object too.
    """
    texts = []
    for letter in letters.to_pylist():
        row = letter.pop("row_json")  # already JSON: decoding could change a number
        texts.append(f'{json.dumps(letter, ensure_ascii=False)[:-1]}, "row": {row}}}')
    return texts
