"""Checks the real table and its store before any row is written: the rules (`findings`) change
nothing."""

import contextlib
import json
import logging
import re
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import SinkContext
from seamark.files import HadoopSettings, RowDirectory, open_directory
from seamark.files.local import obstacle
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode
from seamark.model.packages import load_driver
from seamark.model.schema import Schema
from seamark.sinks.delta import merging, store, types
from seamark.sinks.internal import changes, stored
from seamark.sinks.internal.servers import Findings, usable

if TYPE_CHECKING:
    from seamark.sinks.delta.sink import DeltaSink

_log = logging.getLogger(__name__)
_BOUNDED = "delta.dataSkippingStatsColumns"
_CREATORS = 8
_FEATURES = {
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
    "deletionVectors", "timestampNtz", "v2Checkpoint", "columnMapping",
}  # fmt: skip
"""Writer features known to delta-rs and harmless to an append after `_check_settings`."""
_COLUMN_SETTINGS = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generation expression",
    "delta.identity.start": "an identity",
    "delta.columnMapping.physicalName": "a mapped name",
}
_NOT_MERGED = {
    "delta.appendOnly": "appends alone",
    "delta.enableDeletionVectors": "deletion vectors",
}
_CHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark keeps the type of a column that is char or varchar."""
_NOT_NULL_WITHIN = re.compile(r'"(nullable|containsNull|valueContainsNull)": false')
_BARE_SCHEMA = json.dumps({"type": "struct", "fields": [
    {"name": "probe", "type": "string", "nullable": True, "metadata": {}}]})  # fmt: skip


driver = partial(load_driver, "deltalake", "DeltaSink needs delta-rs", "delta")


def errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of delta-rs and of the file systems."""
    return (driver().exceptions.DeltaError, OSError)


def load(sink: "DeltaSink", hadoop: HadoopSettings) -> Any:
    """Return the table at its newest version."""
    return driver().DeltaTable(sink.path, storage_options=store.delta_options(sink.path, hadoop))


def shape(table: Any) -> object:
    """Return the properties a commit relies on; equal while nobody alters the table."""
    metadata = table.metadata()
    protocol = table.protocol()
    return (
        table.schema().to_json(),
        tuple(metadata.partition_columns),
        tuple(sorted(metadata.configuration.items())),
        tuple(sorted(protocol.writer_features or ())),
        protocol.min_writer_version,
    )


def look(sink: "DeltaSink", context: SinkContext, name: str, *, start: bool) -> Findings:
    """Yield every finding. A `start` creates a missing table if the sink may, and tries out what a
    commit needs; else neither the store's condition of a write nor a right to write there is tried.
    Raises PreflightError if the table cannot be read."""
    hadoop = context.hadoop.under(sink.storage_options)
    with _usable(name):
        if start and not stored.is_local(sink.path):
            _check_exclusive_create(sink.path, hadoop, name)
        if not start and stored.is_local(sink.path) and (problem := obstacle(Path(sink.path))):
            raise problem
        table = _loaded(sink, hadoop)
        opened, outer = partial(open_directory, settings=hadoop), sink.path.rpartition("/")[0]
        remedy = "give DeltaSink a path outside of it"
        if within := stored.table_around(outer, opened, name, remedy):
            yield within
            return
        files, missing = opened(sink.path), table is None and sink.create_table
        others = [file for file in files.tree() if file[0] not in "_."] if missing else []
        if others and _loaded(sink, hadoop) is None:  # not even made by another driver meanwhile
            found = f"it has no table, but {others[0]!r}, which the VACUUM of one here would delete"
            remedy = "give DeltaSink an empty directory, or make a table of these files yourself"
            yield Finding(FindingCode.SV005, name, found, remedy)
            return
        if start and missing and context.schema:
            try:
                _create(sink, hadoop, changes.target_columns(context.schema, sink.op), name)
            except ValueError as error:  # ours, or delta-rs's for a name
                found, _, remedy = str(error).partition("; ")
                finding = Finding(FindingCode.SV005, name, found, remedy or "CAST or rename it")
                raise PreflightError(finding) from error
            table = load(sink, hadoop)
        if table is not None and sink.keys:
            actions = merging.added(table)
            if what := merging.misread(table, actions, files, set()):
                yield Finding(FindingCode.SV005, name, what, merging.REWRITE)
            if what := merging.unwritable(table, actions):
                yield Finding(FindingCode.SV005, name, what, merging.ANOTHER)
    if start or not missing:
        yield from findings(table, sink, context, name)
    if start:
        with _usable(name):
            _check_writable(files)


def _usable(name: str) -> contextlib.AbstractContextManager[None]:
    return usable(
        name,
        errors(),
        "see that the path is right, that the driver and all executors can reach it and may write "
        "there, and for S3, Google's and Azure's stores that spark.hadoop.fs.* or storage_options "
        "say where and as whom",
    )


def _loaded(sink: "DeltaSink", hadoop: HadoopSettings) -> Any:
    """Return the table; None if it is missing."""
    try:
        return load(sink, hadoop)
    except driver().exceptions.TableNotFoundError:
        return None


# --- rules


@dataclass(frozen=True)
class _Rules:
    """The rules on a loaded table, of one sink."""

    table: Any
    sink: "DeltaSink"
    schema: Schema
    name: str

    def found(self) -> Findings:
        """Yield every finding."""
        yield from self._settings()
        if self.sink.keys:
            yield from self._unchangeable()
        found = list(self.table.metadata().partition_columns)
        if found != list(self.sink.partition_by):
            yield self._unfit(
                f"the table is partitioned by {_names(found)}, the sink says partition_by="
                f"{list(self.sink.partition_by)!r}",
                f"set partition_by={found!r}",
            )
        if self.schema:
            yield from self._columns()

    def _unfit(self, what: str, remedy: str) -> Finding:
        return Finding(FindingCode.SV005, self.name, what, remedy)

    def _settings(self) -> Findings:
        """The table asks more of a writer than to add files."""
        protocol = self.table.protocol()
        if unknown := set(protocol.writer_features or ()) - _FEATURES:
            yield self._unfit(
                f"the table has the features {', '.join(sorted(unknown))}, which this sink cannot "
                "write",
                "give it a table without them",
            )
        if protocol.min_writer_version not in (1, 2, 3, 4, 5, 7):
            yield self._unfit(
                f"the table wants writers of protocol version {protocol.min_writer_version}, which "
                "delta-rs is not",
                "give it a table of version 1 to 5, or 7",
            )
        for key, value in self.table.metadata().configuration.items():
            if key.startswith("delta.constraints."):
                what = f"a CHECK constraint ({value})"
            elif key == "delta.columnMapping.mode" and value != "none":
                what = f"column mapping ({value})"
            else:
                continue
            yield self._unfit(
                f"the table has {what}, which this sink does not enforce",
                "drop it, or give the sink a table without",
            )
        for field in self._fields():
            for key, what in _COLUMN_SETTINGS.items():
                if key in field["metadata"]:
                    yield self._unfit(
                        f"column {field['name']!r} of the table has {what} ({key}), which this "
                        "sink does not make",
                        "give it a table without",
                    )

    def _unchangeable(self) -> Findings:
        """The table's rows may not be changed, or were never changed by delta-rs."""
        configuration = self.table.metadata().configuration
        features = self.table.protocol().reader_features or ()
        for key, what in _NOT_MERGED.items():
            if configuration.get(key, "").lower() == "true":
                yield self._unfit(
                    f"the table has {what} ({key}), so its rows cannot be changed by key",
                    "unset it, or give the sink a table without",
                )
        if "deletionVectors" in features:
            yield self._unfit(
                "the table has the feature deletionVectors, with which it was never merged",
                "drop the feature, or give the sink a table without",
            )

    def _fields(self) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = json.loads(self.table.schema().to_json())["fields"]
        return fields

    def _columns(self) -> Findings:
        """The table does not take the DataFrame's columns as they are."""
        in_table = types.column_types(self.table.schema().to_json())
        given = {column.name: types.normal(column.type) for column in self.schema}
        both = (
            f"The table has: {_columns(in_table.items())}. The DataFrame has: "
            f"{_columns(given.items())}"
        )
        fields = {field["name"]: field for field in self._fields()}
        for name, kind in given.items():
            if name not in in_table:
                yield self._unfit(
                    f"the table has no column {name!r}",
                    f"drop it from the DataFrame, or ALTER TABLE … ADD COLUMN. {both}",
                )
            elif in_table[name] != kind:
                yield self._unfit(
                    f"column {name!r} is {kind} in the DataFrame and {in_table[name]} in the table",
                    f"CAST it in the DataFrame. {both}",
                )
            elif _has_not_null(fields[name]):
                yield self._unfit(
                    f"column {name!r} of the table is or has NOT NULL, and nothing here checks "
                    "each row for it",
                    "ALTER TABLE … ALTER COLUMN … DROP NOT NULL",
                )
        for name in self.sink.keys:
            shown = fields.get(name, {"metadata": {}})["metadata"].get(_CHAR, "")
            if shown.startswith("char"):
                yield self._unfit(
                    f"key column {name!r} of the table is {shown}: Spark fills its texts up with "
                    "blanks, and a text without them would be another key",
                    "give it a table in which it is a string or varchar",
                )
        for name, field in fields.items():
            partition = name in self.sink.partition_by
            if name not in given and (partition or not field["nullable"]):
                why = "is a partition column" if partition else "is NOT NULL"
                yield self._unfit(
                    f"column {name!r} of the table {why} and is not in the DataFrame",
                    f"select it. {both}",
                )


def findings(table: Any, sink: "DeltaSink", context: SinkContext, name: str) -> Findings:
    """The table is missing (None), or does not take the DataFrame's columns as they are."""
    if table is None:
        yield Finding(
            FindingCode.SV004,
            name,
            "there is no Delta table at this path",
            "make it, or let the sink do so with create_table=True",
        )
        return
    schema = changes.target_columns(context.schema, sink.op)
    yield from _Rules(table, sink, schema, name).found()


def _has_not_null(field: dict[str, Any]) -> bool:
    nested = _NOT_NULL_WITHIN.search(json.dumps(field["type"]))
    return not field["nullable"] or nested is not None


# --- trials


def _create(sink: "DeltaSink", hadoop: HadoopSettings, schema: Schema, name: str) -> None:
    deltalake = driver()
    columns = deltalake.Schema.from_json(types.schema_json(schema))
    bounded = merging.bounded(columns)
    told = [f"`{name}`" for name, of in bounded.items() if of not in ("boolean", "binary")]
    # Of the other columns a MERGE tells no bounds; delta-rs takes them for null unless it is told.
    is_told = sink.keys and len(bounded) < len(columns.fields) and "`" not in "".join(bounded)
    deltalake.DeltaTable.create(
        sink.path,
        columns,
        mode="ignore",  # another driver may be making it
        configuration={_BOUNDED: ",".join(told)} if is_told else None,
        partition_by=list(sink.partition_by),
        storage_options=store.delta_options(sink.path, hadoop),
    )
    _log.info("%s: made the table", name)


def _check_writable(files: RowDirectory) -> None:
    probe = f"_seamark/probe-{uuid.uuid4()}"
    stored.write(files, probe, b"")
    files.remove(probe)


def _check_exclusive_create(path: str, hadoop: HadoopSettings, name: str) -> None:
    """Let several writers create one log entry at once; only one may succeed.

    A store that ignores the condition of a write would let two drivers both write version n.
    """
    deltalake = driver()
    options = store.delta_options(path, hadoop)
    below = f"_seamark/probe-{uuid.uuid4()}"
    uri = f"{path}/{below}"
    schema = deltalake.Schema.from_json(_BARE_SCHEMA)
    deltalake.DeltaTable.create(uri, schema, storage_options=options)
    tables = [deltalake.DeltaTable(uri, storage_options=options) for _ in range(_CREATORS)]
    start = threading.Barrier(_CREATORS)

    def commit(table: Any) -> Exception | None:
        transaction = deltalake.transaction.Transaction("probe", 0)
        properties = deltalake.CommitProperties(app_transactions=[transaction])
        start.wait()
        try:
            table.create_write_transaction([], "append", schema, commit_properties=properties)
            return None
        except errors() as error:
            return error

    with ThreadPoolExecutor(_CREATORS) as threads:
        outcomes = list(threads.map(commit, tables))
    files = open_directory(path, hadoop)
    with contextlib.suppress(OSError):
        for left in files.tree(below):
            files.remove(left)
    winners = outcomes.count(None)
    if winners == 0:
        raise next(error for error in outcomes if error is not None)
    if winners > 1:
        raise PreflightError(
            Finding(
                FindingCode.CP003,
                name,
                f"of {_CREATORS} writers of one log entry at once {winners} were told that they "
                "had made it: this store does not keep the condition of a write (If-None-Match: "
                "*), so two writers would overwrite each other's commits",
                "use a store that does, as Amazon S3 does, or a newer version of this one",
            )
        )


def _columns(columns: Any) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in columns)


def _names(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"
