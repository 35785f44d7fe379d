"""The Avro schema of a record's value: given by the user, or made from the columns' Spark types.

Spark's `to_avro` writes by it in the JVM; `schema_registry.py` registers it. In a schema made here
every field is nullable with the default null. Adding or dropping a column later is then compatible
in both directions.
"""

import json
from collections.abc import Sequence
from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column
from seamark.sinks.kafka.column_types import NAME, Fields, part_of

_SCALARS: dict[str, Any] = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


class _Format:
    """See `column_types.Format`."""

    called, names, scalars = "Avro", NAME, _SCALARS

    def __init__(self) -> None:
        self._records: set[str] = set()

    def decimal(self, precision: int, scale: int) -> Any:
        scales = {"precision": precision, "scale": scale}
        return {"type": "bytes", "logicalType": "decimal", **scales}

    def array(self, of: Any) -> Any:
        return {"type": "array", "items": ["null", of]}

    def map(self, key: str, of: Any) -> Any:
        return {"type": "map", "values": ["null", of]} if key.startswith("string") else None

    def struct(self, fields: Fields, path: Sequence[str]) -> Any:
        made = [{"name": name, "type": ["null", of], "default": None} for name, of in fields]
        record = "_".join(path)
        while record in self._records:  # of `a.b_c` and `a_b.c`
            record += "_"
        self._records.add(record)
        return {"type": "record", "name": record, "fields": made}


def schema_of(
    columns: Sequence[Column], topic: str | None, sink: str, given: str | None = None
) -> str:
    """Return the text of the schema `given`, if the columns fit it, or of one made from them;
    raises ConfigurationError."""
    if given is None:
        return json.dumps(part_of(columns, _Format(), topic, sink))
    _check_given(json.loads(given), columns, sink)
    return given


def check_text(text: object, sink: str) -> None:
    """Raise ConfigurationError unless `text` is the JSON of an Avro record, as far as can be seen
    without an Avro library; the registry checks the rest."""
    try:
        schema = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        schema = None
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if (
        not isinstance(fields, list)
        or schema.get("type") != "record"  # type: ignore[union-attr]
        or not all(isinstance(field, dict) and "name" in field for field in fields)
    ):
        raise ConfigurationError(
            f"{sink}: value_schema is {text!r}, which is not the JSON text of an Avro record; give "
            '\'{"type": "record", "name": ..., "fields": [...]}\''
        )


def _check_given(schema: Any, columns: Sequence[Column], sink: str) -> None:
    fields = {str(field.get("name")).lower(): field for field in schema.get("fields", [])}
    names = {column.name.lower() for column in columns}
    for column in columns:
        if column.name.lower() not in fields:
            raise ConfigurationError(
                f"{sink}: value_schema has no field for the column {column.name!r}; add it, or "
                "name the columns of the value in value="
            )
    for name, field in fields.items():
        if name not in names and "null" not in field.get("type", ()):
            raise ConfigurationError(
                f"{sink}: value_schema needs the field {field['name']!r}, and the value has no "
                "such column; select one, or let the field be null"
            )
