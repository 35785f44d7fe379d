"""Changes: rows that replace or delete the row of their key, told apart by the column of `op=`.

`check_settings` and `check_schema` judge keys and op when a job is built, `unfit` judges rows in a
task. Each sink applies changes in its own way, and all by one rule: a table ends up as if an
attempt's rows were applied one after another in the order written.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.api.checks import one_of
from seamark.contracts.dead_letters import Refusals, RefusedRow, without
from seamark.contracts.read_back import DELETE
from seamark.contracts.record_batches import constants, nulls, numbers
from seamark.contracts.sink import OUTPUT_MODES, C
from seamark.model.errors import ConfigurationError, WriteRefusedError
from seamark.model.schema import Column, Schema
from seamark.sinks.internal.columns import (
    check_columns,
    column_names,
    not_utf8,
    require_column,
    text_expression,
)
from seamark.sinks.internal.committables import StagingSink

STAGED_OP = "_seamark_op"
"""The name of the op column in a stage table: the stage itself says whether its rows have an op."""
OPS = ("insert", "update", DELETE)
"""The values of the column `op=`. The first two mean the same: the row replaces the one of its
key, if there is one."""


class ByKey(StagingSink[C]):
    """A sink whose `keys`, if it has any, name the row that a row replaces."""

    mode: Any
    keys: Sequence[str]
    op: str | None

    @property
    def output_modes(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        return OUTPUT_MODES if self.keys else OUTPUT_MODES[:1]

    @staticmethod
    def _cannot_name(name: str) -> bool:
        """Whether no column of the target can have this name."""
        return False

    def _expression(self, column: Column) -> str:
        """Return Spark SQL for what is written of a column."""
        return text_expression(column, ())

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """Return one expression per column: scalars unchanged, the rest as JSON.

        Raises ConfigurationError for types that no column can hold, for duplicate names and for
        missing keys.
        """
        check_columns(schema, self.describe(), self._cannot_name, as_json=True)
        self._check_key_columns(schema)
        return [self._expression(column) for column in schema]

    def _check_keys(self, sink: str, modes: Sequence[str]) -> None:
        """Raise ConfigurationError for unfit `keys`, `op` or `mode`. A mode of None follows from
        the keys: ``append`` or ``upsert``."""
        keys = column_names(self.keys, f"{sink}: keys")
        object.__setattr__(self, "keys", keys)
        mode = ("upsert" if keys else "append") if self.mode is None else self.mode
        one_of(mode, modes, f"{sink}: mode")
        check_settings(self.op, keys, sink, "give mode='upsert' and keys=")
        if (mode == "upsert") != bool(keys):
            raise ConfigurationError(
                f"{sink}: mode is {mode!r} and keys is {keys!r}; mode='upsert' needs the key "
                "columns of the table in keys=, and no other mode takes any"
            )

    def _check_key_columns(self, schema: Schema) -> None:
        """Raise ConfigurationError unless the DataFrame has the keys, and op as a string."""
        for key in self.keys:
            require_column(key, schema, "key", "keys", self.describe())
        check_schema(self.op, schema, self.describe())


def check_settings(op: object, keys: Sequence[str], sink: str, how: str) -> None:
    """Raise ConfigurationError unless op is None, or a name beside `keys`. `how` says what gives a
    sink keys."""
    if op is None:
        return
    if not isinstance(op, str) or not op:
        raise ConfigurationError(
            f"{sink}: op is {op!r}; give the name of a column, or leave it out"
        )
    if not keys:
        raise ConfigurationError(
            f"{sink}: op is {op!r}, and there is no key to find the row that a change is of; {how}"
        )
    if op.lower() in {key.lower() for key in keys}:
        raise ConfigurationError(f"{sink}: op is {op!r}, which is a key column; give another")


def check_schema(op: str | None, schema: Schema, sink: str) -> None:
    """Raise ConfigurationError unless the DataFrame has the column, as a string, and others."""
    require_column(op, schema, "op", "op", sink)
    for column in schema:
        if column.name == op and not column.type.startswith(("string", "varchar", "char")):
            raise ConfigurationError(
                f"{sink}: the op column {op!r} has type {column.type}; give a string column with "
                f"the values {', '.join(OPS)}"
            )


def target_columns(schema: Schema, op: str | None) -> Schema:
    """Return the DataFrame's columns that are written: all but op."""
    return tuple(column for column in schema if column.name != op)


def unfit(
    batch: pa.RecordBatch,
    keys: Sequence[str],
    op: str | None,
    required: Sequence[str] = (),
    *,
    nan_is_null: bool = False,
) -> list[RefusedRow]:
    """Return the rows that are no changes: with an unknown op, a null key, or null in a `required`
    column. A row to delete needs its keys alone."""
    refused = Refusals()
    names = batch.schema.names
    kept = np.ones(batch.num_rows, bool)
    if op is not None:
        given = batch.column(names.index(op))
        ops = constants(*(one.encode() for one in OPS)).view(pa.string()).cast(given.type)
        place = pc.index_in(given, value_set=ops)
        unknown = nulls(place)
        kept = unknown | (numbers(place) != OPS.index(DELETE))
        if unknown.any():
            texts = given.filter(pa.array(unknown))
            texts = iter(pc.if_else(not_utf8(texts), "not UTF-8", texts).to_pylist())
            allowed = ", ".join(OPS)
            refused.add(
                unknown, lambda _: f"its op column {op!r} is {next(texts)!r}; allowed are {allowed}"
            )
    for name in (*keys, *required):
        column = batch.column(names.index(name))
        null = nulls(column, nan_is_null=nan_is_null)
        null, what = (null, "key column") if name in keys else (null & kept, "NOT NULL column")
        refused.add(null, f"its {what} {name!r} is null")
    return refused.rows()


def require_fit(unfit_rows: Sequence[RefusedRow], sink: str) -> None:
    """Raise WriteRefusedError for the first of the rows, if there is one."""
    if unfit_rows:
        first = unfit_rows[0]
        raise WriteRefusedError(
            f"{sink}: {len(unfit_rows)} row(s) of a batch are refused, the first because "
            f"{first.reason}. Change the rows before the sink, or give Job.sink "
            'on_bad_row="dead_letter"'
        )


def take_others(
    batch: pa.RecordBatch,
    refused: Sequence[RefusedRow],
    take: Callable[[pa.RecordBatch], Sequence[RefusedRow]],
) -> list[RefusedRow]:
    """Give the rows not yet refused to `take`; return all refused rows of the batch."""
    if not refused:
        return list(take(batch))
    others = np.delete(np.arange(batch.num_rows), [row.index for row in refused])
    refusals = take(without(batch, refused))
    also = [RefusedRow(int(others[row.index]), row.reason) for row in refusals]
    return sorted([*refused, *also], key=lambda row: row.index)
