"""Staged changes into the table: one MERGE of delta-rs per commit, one log entry.

The log never names the files of staged rows. A committable has the keys and op of its rows, so rows
staged before a change of the sink's settings still move as meant.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seamark.contracts.read_back import DELETE
from seamark.files import RowDirectory
from seamark.sinks.delta.committable import DataFile
from seamark.sinks.internal.changes import STAGED_OP
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.table_merge import NEW, reduced


def merge(table: Any, files: RowDirectory, staged: Sequence[DataFile], properties: Any) -> None:
    """Apply the rows of staged files of the same keys and op, in their order. There is no log entry
    if nothing of the table changes."""
    keys, op = staged[0].keys, staged[0].op
    rows = reduced(pa.concat_tables(_read(files, file.path) for file in staged), keys, op)
    given = [name for name in rows.column_names if name != STAGED_OP]
    values = {quoted(name): f"s.{quoted(name)}" for name in given}
    changed = {quoted(name): values[quoted(name)] for name in given if name not in keys}
    others = [field.name for field in table.schema().fields if field.name not in given]
    by = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    merger = table.merge(
        rows, by, source_alias="s", target_alias="t", commit_properties=properties,
        # False: files of the table are skipped by the keys' bounds, and a decimal's are doubles.
        streamed_exec=any(pa.types.is_decimal(rows.schema.field(key).type) for key in keys),
    ).when_matched_delete(f"s.{STAGED_OP} = '{DELETE}'")  # fmt: skip
    if others:
        anew = {**changed, **{quoted(name): "NULL" for name in others}}
        merger = merger.when_matched_update(anew, f"s.{STAGED_OP} = '{NEW}'")
    if changed:
        merger = merger.when_matched_update(changed, f"s.{STAGED_OP} <> '{DELETE}'")
    merger.when_not_matched_insert(values, f"s.{STAGED_OP} <> '{DELETE}'").execute()


def _read(files: RowDirectory, path: str) -> pa.Table:
    with files.open(path) as file:
        return pq.ParquetFile(pa.BufferReader(file.read())).read()
