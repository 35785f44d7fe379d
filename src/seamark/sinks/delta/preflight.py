"""Checks of the real table and its store, made before anything is written."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import SinkContext
from seamark.file_systems import Directory, HadoopSettings, open_directory
from seamark.model.errors import ConfigurationError, PreflightError
from seamark.model.schema import Schema
from seamark.sinks.delta import store, types
from seamark.sinks.internal import changes
from seamark.sinks.internal.servers import load_driver

if TYPE_CHECKING:
    from seamark.sinks.delta.sink import DeltaSink

_log = logging.getLogger(__name__)
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
_NOT_NULL_WITHIN = re.compile(r'"(nullable|containsNull|valueContainsNull)": false')
_BARE_SCHEMA = json.dumps({"type": "struct", "fields": [
    {"name": "probe", "type": "string", "nullable": True, "metadata": {}}]})  # fmt: skip


driver = partial(load_driver, "deltalake", "DeltaSink needs delta-rs", "delta")


def errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of delta-rs and of the file systems."""
    return (driver().exceptions.DeltaError, OSError)


def load(sink: DeltaSink, hadoop: HadoopSettings) -> Any:
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


def check(sink: DeltaSink, context: SinkContext, name: str) -> Any:
    """Check the table and return it loaded; create it if it is missing and the sink may.

    Raises PreflightError at the first failed check.
    """
    deltalake = driver()
    hadoop = context.hadoop.under(sink.storage_options)
    try:
        if not store.is_local(sink.path):
            _check_exclusive_create(sink.path, hadoop, name)
        try:
            table = load(sink, hadoop)
        except deltalake.exceptions.TableNotFoundError:
            _create(sink, hadoop, changes.target_columns(context.schema, sink.op), name)
            table = load(sink, hadoop)
        check_table(table, sink, context, name)
        _check_writable(open_directory(sink.path, hadoop))
    except errors() as error:
        raise PreflightError(
            f"{name} cannot be used: {error}. See that the path is right, that the driver and all "
            "executors can reach it and may write there, and for S3 that spark.hadoop.fs.s3a.* "
            "or storage_options say where and as whom"
        ) from error
    return table


def check_table(table: Any, sink: DeltaSink, context: SinkContext, name: str) -> None:
    """Raise PreflightError if the table does not take the DataFrame's columns as they are."""
    _check_settings(table, name)
    if sink.keys:
        _check_changeable(table, name)
    found = table.metadata().partition_columns
    if list(found) != list(sink.partition_by):
        raise PreflightError(
            f"{name}: the table is partitioned by {_listed(found)}, the sink says partition_by="
            f"{list(sink.partition_by)!r}; set partition_by={list(found)!r}"
        )
    schema = changes.target_columns(context.schema, sink.op)
    if not schema:
        return
    fields = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    in_table = types.column_types(table.schema().to_json())
    both = (
        f"The table has: {_columns(in_table.items())}. The DataFrame has: "
        f"{_columns((c.name, types.normal(c.type)) for c in schema)}"
    )
    for column in schema:
        if column.name not in in_table:
            raise PreflightError(
                f"{name}: the table has no column {column.name!r}; drop it from the DataFrame, or "
                f"ALTER TABLE … ADD COLUMN. {both}"
            )
        if in_table[column.name] != types.normal(column.type):
            raise PreflightError(
                f"{name}: column {column.name!r} is {types.normal(column.type)} in the DataFrame "
                f"and {in_table[column.name]} in the table; CAST it in the DataFrame. {both}"
            )
    given = {column.name for column in schema}
    for column_name, field in fields.items():
        if column_name in given:
            continue
        if not field["nullable"] or column_name in sink.partition_by:
            why = "is a partition column" if column_name in sink.partition_by else "is NOT NULL"
            raise PreflightError(
                f"{name}: column {column_name!r} of the table {why} and is not in the DataFrame; "
                f"select it. {both}"
            )
    for column in schema:
        field = fields[column.name]
        if not field["nullable"] or _NOT_NULL_WITHIN.search(json.dumps(field["type"])):
            raise PreflightError(
                f"{name}: column {column.name!r} of the table is or has NOT NULL, and nothing "
                "here checks each row for it; ALTER TABLE … ALTER COLUMN … DROP NOT NULL"
            )


def _check_settings(table: Any, name: str) -> None:
    """Refuse a table that asks more of a writer than to add files."""
    protocol = table.protocol()
    unknown = set(protocol.writer_features or ()) - _FEATURES
    if unknown:
        raise PreflightError(
            f"{name}: the table has the features {', '.join(sorted(unknown))}, which this sink "
            "cannot write; give it a table without them"
        )
    if protocol.min_writer_version not in (1, 2, 3, 4, 5, 7):
        raise PreflightError(
            f"{name}: the table wants writers of protocol version {protocol.min_writer_version}, "
            "which delta-rs is not; give it a table of version 1 to 5, or 7"
        )
    configuration = table.metadata().configuration
    for key, value in configuration.items():
        if key.startswith("delta.constraints."):
            what = f"a CHECK constraint ({value})"
        elif key == "delta.columnMapping.mode" and value != "none":
            what = f"column mapping ({value})"
        else:
            continue
        raise PreflightError(
            f"{name}: the table has {what}, which this sink does not enforce; drop it, or give the "
            "sink a table without"
        )
    for field in json.loads(table.schema().to_json())["fields"]:
        for key, what in _COLUMN_SETTINGS.items():
            if key in field["metadata"]:
                raise PreflightError(
                    f"{name}: column {field['name']!r} of the table has {what} ({key}), which this "
                    "sink does not make; give it a table without"
                )


def _check_changeable(table: Any, name: str) -> None:
    """Refuse a table whose rows delta-rs may not or cannot change."""
    configuration = table.metadata().configuration
    for key, what in _NOT_MERGED.items():
        if configuration.get(key, "").lower() == "true":
            raise PreflightError(
                f"{name}: the table has {what} ({key}), so its rows cannot be changed by key; "
                "unset it, or give the sink a table without"
            )
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise PreflightError(
            f"{name}: the table has the feature deletionVectors, with which it was never merged; "
            "drop the feature, or give the sink a table without"
        )


def _create(sink: DeltaSink, hadoop: HadoopSettings, schema: Schema, name: str) -> None:
    if not sink.create_table or not schema:
        raise PreflightError(
            f"{name}: there is no Delta table at this path; make it, or let the sink do so with "
            "create_table=True"
        )
    deltalake = driver()
    try:
        columns = deltalake.Schema.from_json(types.schema_json(schema))
    except ConfigurationError as error:
        raise PreflightError(f"{name}: {error}") from error
    deltalake.DeltaTable.create(
        sink.path,
        columns,
        mode="ignore",  # another driver may be making it
        partition_by=list(sink.partition_by),
        storage_options=store.delta_options(sink.path, hadoop),
    )
    _log.info("%s: made the table", name)


def _check_writable(files: Directory) -> None:
    probe = f"_seamark/probe-{uuid.uuid4()}"
    store.write(files, probe, b"")
    files.delete(probe)


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
    outcomes: list[Exception | None] = []

    def commit(table: Any) -> None:
        transaction = deltalake.transaction.Transaction("probe", 0)
        properties = deltalake.CommitProperties(app_transactions=[transaction])
        start.wait()
        try:
            table.create_write_transaction([], "append", schema, commit_properties=properties)
            outcomes.append(None)
        except errors() as error:
            outcomes.append(error)

    threads = [threading.Thread(target=commit, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = open_directory(path, hadoop)
    with contextlib.suppress(OSError):
        for left in files.list(below):
            files.delete(left)
    winners = outcomes.count(None)
    if winners == 0:
        raise next(error for error in outcomes if error is not None)
    if winners > 1:
        raise PreflightError(
            f"{name}: of {_CREATORS} writers of one log entry at once {winners} were told that "
            "they had made it: this store does not keep the condition of a write (If-None-Match: "
            "*), so two writers would overwrite each other's commits. Use a store that does, as "
            "Amazon S3 does, or a newer version of this one"
        )


def _columns(columns: Any) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in columns)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"
