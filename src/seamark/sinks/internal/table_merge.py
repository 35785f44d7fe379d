"""Changes of a table's rows by key: which columns are keys, and an epoch's changes as one for each
key. A task stages its rows, in their order, below `table_committable.STAGED`; the driver applies
them in the commit."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.read_back import DELETE
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Schema
from seamark.sinks.internal.changes import STAGED_OP

NEW, CHANGED = "new", "changed"
KEY_TYPES = (
    "string", "tinyint", "smallint", "int", "bigint", "boolean", "date", "decimal", "timestamp",
    "timestamp_ntz",
)  # fmt: skip
"""Types of which two equal values are equal to every reader: not those with NaN, or nested ones."""


def check_key_types(keys: Sequence[str], schema: Schema, sink: str) -> None:
    """Raise ConfigurationError unless rows can be told apart by these columns."""
    for column in schema:
        kind = column.type.partition("(")[0]
        if column.name in keys and kind not in (*KEY_TYPES, "char", "varchar"):
            raise ConfigurationError(
                f"{sink}: the key column {column.name!r} is {column.type}; allowed are "
                f"{', '.join(KEY_TYPES)}. CAST it, e.g. CAST(`{column.name}` AS STRING)"
            )


def reduced(rows: pa.Table, keys: Sequence[str], op: str) -> pa.Table:
    """Return the last row of each key, with `STAGED_OP` instead of `op`: `DELETE`, `NEW` for a row
    made anew because the key was deleted too, or `CHANGED`. `op` "" is none."""
    number = rows.num_rows
    deleted = pc.equal(rows[op], DELETE) if op else pa.array(np.zeros(number, bool))
    by = {f"key {position}": rows[key] for position, key in enumerate(keys)}
    last_rows = pa.table({**by, "row": np.arange(number), "deleted": deleted})
    last_rows = last_rows.group_by(list(by)).aggregate([("row", "max"), ("deleted", "any")])
    last_rows = last_rows.select(["row_max", "deleted_any"]).sort_by("row_max")
    last = last_rows["row_max"]
    what = pc.if_else(
        pc.take(deleted, last), DELETE, pc.if_else(last_rows["deleted_any"], NEW, CHANGED)
    )
    # Not by take: it joins the column's chunks, and fails if these have 2 GiB of text.
    is_last = np.zeros(number, bool)
    is_last[last.to_numpy()] = True
    kept = rows.drop_columns([op] if op else []).filter(pa.array(is_last))
    return kept.append_column(STAGED_OP, what)
