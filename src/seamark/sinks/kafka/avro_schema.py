"""The Avro schema of a record's value: given by the user, or made from the columns' Spark types.

Spark's `to_avro` writes by it in the JVM; `schema_registry.py` registers it. In a schema made here
every field is nullable with the default null. Adding or dropping a column later is then compatible
in both directions.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
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


@dataclass(frozen=True)
class AvroSchema:
    """One schema, as JSON text."""

    text: str

    @classmethod
    def of(
        cls, columns: Sequence[Column], given: str | None, topic: str | None, sink: str
    ) -> "AvroSchema":
        """Return the schema `given`, if the columns fit it, or a schema made from them.

        Raises ConfigurationError; `sink` names the sink in it.
        """
        if given is not None:
            _check_given(json.loads(given), columns, sink)
            return cls(given)
        record = re.sub(r"[^A-Za-z0-9_]", "_", f"{topic}_value")
        record = record if _NAME.fullmatch(record) else f"_{record}"
        fields = [_field(c.name, c.type, f"{record}_{c.name}", c, sink) for c in columns]
        return cls(json.dumps({"type": "record", "name": record, "fields": fields}))


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


def _field(name: str, type_: str, record: str, column: Column, sink: str) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{sink}: {name!r} (in the column {column.name!r}) cannot name an Avro field; use "
            "letters, digits and '_', e.g. by withColumnRenamed"
        )
    return {"name": name, "type": ["null", _type(type_, record, column, sink)], "default": None}


def _type(type_: str, record: str, column: Column, sink: str) -> Any:
    """Return the Avro type of Spark's `type_`; `record` is the name for a record in it."""
    base = re.sub(r" collate .*|\(\d+\)$", "", type_)
    if base in ("varchar", "char"):
        base = "string"
    if base in _SCALARS:
        return _SCALARS[base]
    if found := _DECIMAL.fullmatch(type_):
        scale = {"precision": int(found[1]), "scale": int(found[2])}
        return {"type": "bytes", "logicalType": "decimal", **scale}
    kind, _, inside = type_.partition("<")
    parts = _split(inside[:-1])
    if kind == "array":
        return {"type": "array", "items": ["null", _type(parts[0], record, column, sink)]}
    if kind == "map" and parts[0].startswith("string"):
        return {"type": "map", "values": ["null", _type(parts[1], record, column, sink)]}
    if kind == "struct":
        fields = []
        for part in parts:
            name, _, of = part.partition(":")
            fields.append(_field(name, of, f"{record}_{name}", column, sink))
        return {"type": "record", "name": record, "fields": fields}
    within = "" if type_ == column.type else f" (within {column.type})"
    raise ConfigurationError(
        f"{sink}: the column {column.name!r} has the type {type_}{within}, which Avro has not; "
        "convert it, e.g. to a string, or a map's keys to strings"
    )


def _split(text: str) -> list[str]:
    """Split at the commas outside all brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
