"""Dead letters: rows that a sink's system refuses go to a second sink, in the same epoch.

Two abilities, each one method that a sink may have besides those of `contracts/sink.py`:

- `SelectiveSink`: it can tell the rows that its system refuses from the others, so a job may
  declare it with ``on_bad_row="dead_letter"``;
- `DeadLetterFormat`: its writers want dead letters in other columns than `DEAD_LETTER_SCHEMA`. A
  sink without it can take dead letters if its `select_expressions` leave these columns as they are.

`runtime/dead_letters.py` makes the letters, `runtime/pre_commit.py` writes them.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from seamark.contracts.sink import C_co, CommittingWriter, WriterContext
from seamark.model.schema import Column, Schema

if TYPE_CHECKING:
    import pyarrow as pa

DEAD_LETTER_SCHEMA: Schema = (
    Column("sink", "string"),
    Column("epoch", "bigint"),
    Column("reason", "string"),
    Column("row_json", "string"),
)
"""What a dead letter tells: the uid of the sink whose system refused the row, the epoch, what the
system says, and the row as that sink's writer got it, as the text of one JSON object."""


@dataclass(frozen=True)
class RefusedRow:
    """A row of the batch that was to be written: its index there, and why the system refuses it."""

    index: int
    reason: str


class SelectiveWriter(CommittingWriter[C_co], Protocol[C_co]):
    """A writer whose system refuses single rows, and says which."""

    @abstractmethod
    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """Take every row of the batch that the system takes, as `write` does; return the others, by
        rising index, each once.

        Called instead of `write`, never mixed with it. What it has taken must not be refused any
        more: neither by `prepare_commit` nor, above all, by the commit. Raises for what no single
        row is to blame for (the system is away, the table is gone), and the epoch fails. An attempt
        none of whose rows was taken prepares no transaction.
        """
        ...


@runtime_checkable
class SelectiveSink(Protocol):
    """A sink that can be declared with ``on_bad_row="dead_letter"``."""

    def create_selective_writer(self, context: WriterContext) -> SelectiveWriter[Any]:
        """As `create_writer`, and called instead of it; in an executor task, once per attempt."""
        ...


@runtime_checkable
class DeadLetterFormat(Protocol):
    """A sink that brings dead letters into columns of its own."""

    def from_dead_letters(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of `DEAD_LETTER_SCHEMA`, one for one, with the columns that `write` gets.

        Called when the job is built, with no rows, and there raises ConfigurationError if this sink
        as it is configured cannot take dead letters; then in executor tasks, before each `write`.
        """
        ...


def dead_letters_as_json(letters: pa.RecordBatch) -> list[str]:
    """Return each dead letter as the text of one JSON object: `sink`, `epoch`, `reason` and `row`,
    an object too. For sinks that take one value a row."""
    texts = []
    for letter in letters.to_pylist():
        row = letter.pop("row_json")  # is JSON: decoding it could change a number
        texts.append(f'{json.dumps(letter, ensure_ascii=False)[:-1]}, "row": {row}}}')
    return texts
