"""Staged changes into the table: one MERGE of delta-rs per commit, one log entry.

The log never names the files of staged rows. A committable has the keys and op of its rows, so rows
staged before a change of the sink's settings still move as meant.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seamark.contracts.read_back import DELETE
from seamark.contracts.text_forms import since_1970
from seamark.files import RowDirectory
from seamark.model.errors import CommitFailedError
from seamark.sinks.delta.committable import DataFile
from seamark.sinks.delta.writer import NULLS, is_nulls, is_too_long
from seamark.sinks.internal.changes import STAGED_OP
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.parquet import int96_columns, parquet_file
from seamark.sinks.internal.partitions import TOO_LONG
from seamark.sinks.internal.table_merge import NEW, reduced

_NEAR_US = 9_214_000_000_000_000
"""Times as far as this from 1970 fit in 64 bits as nanoseconds."""
_INEXACT = re.compile(r'"(?:float|double|decimal\((?:1[6-9]|[23]\d),\d+\))"')
"""In a schema: NaN is outside of its file's bounds, and a decimal's bounds are doubles."""
_CUT_OFF = "\ufffd"
ANOTHER = "UPDATE that text to another, shorter one, or DELETE all rows with it"
REWRITE = "write its rows again with spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS"


def merge(
    table: Any, files: RowDirectory, staged: Sequence[DataFile], properties: Any, known: set[str]
) -> None:
    """Apply the rows of staged files of the same keys and op, in their order. There is no log entry
    if nothing of the table changes. Raises CommitFailedError for a file that is `misread`, or
    a partition that is `unwritable`."""
    keys, op = staged[0].keys, staged[0].op
    rows = reduced(pa.concat_tables(_read(files, file.path) for file in staged), keys, op)
    actions = added(table)
    if what := misread(table, actions, files, known, rows.select(keys)):
        raise CommitFailedError(
            f"{what}. The decided rows are kept and not visible: {REWRITE}, and start the job again"
        )
    if what := unwritable(table, actions):
        raise CommitFailedError(
            f"{what}. The decided rows are kept and not visible: {ANOTHER}, and start the job again"
        )
    given = [name for name in rows.column_names if name != STAGED_OP]
    values = {quoted(name): f"s.{quoted(name)}" for name in given}
    changed = {quoted(name): values[quoted(name)] for name in given if name not in keys}
    others = [field.name for field in table.schema().fields if field.name not in given]
    by = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    merger = table.merge(
        _wide(rows, keys), by, source_alias="s", target_alias="t", commit_properties=properties,
        writer_properties=_without_bounds(table),
        # False: files of the table are skipped by the keys' bounds, and a decimal's are doubles.
        streamed_exec=any(pa.types.is_decimal(rows.schema.field(key).type) for key in keys)
        or _has_low_bound(actions, rows.select(keys)),
    ).when_matched_delete(f"s.{STAGED_OP} = '{DELETE}'")  # fmt: skip
    if others:
        anew = {**changed, **{quoted(name): "NULL" for name in others}}
        merger = merger.when_matched_update(anew, f"s.{STAGED_OP} = '{NEW}'")
    if changed:
        merger = merger.when_matched_update(changed, f"s.{STAGED_OP} <> '{DELETE}'")
    merger.when_not_matched_insert(values, f"s.{STAGED_OP} <> '{DELETE}'").execute()


def added(table: Any) -> pa.Table:
    """Return the table's files, a row each, with partition values and bounds."""
    return pa.table(table.get_add_actions(flatten=True))


def _wide(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows with offsets of 64 bits: delta-rs joins an epoch's texts of a column, and
    fails at 2 GiB of them. Not the keys', whose bounds tell it which files to read."""
    kinds = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    fields = [f if f.name in keys else f.with_type(kinds.get(f.type, f.type)) for f in rows.schema]
    return rows.cast(pa.schema(fields))


def _has_low_bound(actions: pa.Table, keys: pa.Table) -> bool:
    """Whether a file may have a text above its bound: older writers of Spark's cut it off and add
    U+FFFD, which is above the rest in UTF-16, and below letters beyond U+FFFF in UTF-8."""
    texts = [field.name for field in keys.schema if pa.types.is_string(field.type)]
    bounds = [actions[f"max.{name}"] for name in texts if f"max.{name}" in actions.column_names]
    return any(pc.any(pc.ends_with(bound, _CUT_OFF)).as_py() for bound in bounds)


def _without_bounds(table: Any) -> Any:
    """Return delta-rs's settings for new files of a table with `_INEXACT` numbers, by whose
    bounds readers would skip rows. No columns within others are bounded."""
    from deltalake import ColumnProperties, WriterProperties

    if not _INEXACT.search(table.schema().to_json()):
        return None
    return WriterProperties(
        compression="SNAPPY",
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties=dict.fromkeys(
            bounded(table.schema()), ColumnProperties(statistics_enabled="PAGE")
        ),
    )


def bounded(schema: Any) -> dict[str, str]:
    """Return the columns, with their types, of which a MERGE tells bounds: all but `_INEXACT` ones,
    and those with others within."""
    types = {field["name"]: field["type"] for field in json.loads(schema.to_json())["fields"]}
    return {
        name: of
        for name, of in types.items()
        if isinstance(of, str) and not _INEXACT.match(f'"{of}"')
    }


def unwritable(table: Any, actions: pa.Table) -> str:
    """Return what is wrong with a partition that delta-rs cannot write again as it is; "" for
    nothing. An append has named its directory by a digest, and an object store has names of any
    length. `actions`: see `added`."""
    in_directories = table.table_uri.startswith(("file:", "hdfs:"))
    for name in table.metadata().partition_columns:
        values = actions[f"partition.{name}"].combine_chunks()
        if in_directories and is_too_long(name, values).any():
            what = TOO_LONG
        elif is_nulls(values).any():
            what = NULLS
        else:
            continue
        return f"the table has rows with {what} in its partition column {name!r}"
    return ""


def misread(
    table: Any,
    actions: pa.Table,
    files: RowDirectory,
    known: set[str],
    keys: pa.Table | None = None,
) -> str:
    """Return what is wrong with a file whose rows a MERGE would change: delta-rs takes INT96, which
    is Spark's default for times, for nanoseconds. "" for nothing. Looks at files with far times,
    and, given the keys of a MERGE, at those that may have one of them and tell no bounds of times.
    `known` gets the paths of files that are read right: they are looked at once. `actions`: see
    `added`."""
    parts = table.metadata().partition_columns
    fields = json.loads(table.schema().to_json())["fields"]
    times = [f["name"] for f in fields if '"timestamp' in json.dumps(f) and f["name"] not in parts]
    if not times:
        return ""
    ends: dict[str, Any] = {}
    if keys is not None:
        plain = [name for name in keys.column_names if not pa.types.is_temporal(keys[name].type)]
        ends = {name: pc.min_max(keys[name]).as_py() for name in plain}
    for place, name in enumerate(actions.column_names):
        if pa.types.is_temporal(actions[name].type):  # Python has no time after the year 9999
            numbers = since_1970(actions[name].combine_chunks())
            actions = actions.set_column(place, name, numbers)
    for action in actions.to_pylist():
        if (path := unquote(action["path"])) in known:
            continue
        bounds = [action.get(f"{end}.{name}") for name in times for end in ("min", "max")]
        is_far = any(bound and abs(bound) > _NEAR_US for bound in bounds)
        is_unknown = keys is not None and None in bounds and _may_match(action, ends)
        if not (is_far or is_unknown):
            continue
        with files.open(path) as file:
            data = file.read()
        if columns := int96_columns(found := parquet_file(data)):
            right = found.read(columns)
            nanoseconds = pq.ParquetFile(pa.BufferReader(data)).read(columns)
            if not nanoseconds.cast(right.schema, safe=False).equals(right):
                return (
                    f"file {path} of the table has times before 1678 or after 2261 as INT96, and "
                    "delta-rs would rewrite them as other times"
                )
        known.add(path)
    return ""


def _may_match(action: Mapping[str, Any], ends: Mapping[str, Any]) -> bool:
    """Whether a file may have a key between these, by its bounds of numbers and texts."""
    for name, end in ends.items():
        low, high = action.get(f"min.{name}"), action.get(f"max.{name}")
        if isinstance(high, str) and high.endswith(_CUT_OFF):  # see `_has_low_bound`
            high = end["max"]
        plain = isinstance(low, int | str) and isinstance(high, int | str)
        if plain and (high < end["min"] or low > end["max"]):
            return False
    return True


def _read(files: RowDirectory, path: str) -> pa.Table:
    with files.open(path) as file:
        return parquet_file(file.read()).read()
