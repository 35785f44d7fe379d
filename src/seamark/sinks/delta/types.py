"""Spark's types in Delta's schema, both ways.

Delta's schema is the JSON of Spark's own, so nothing is converted: a table's column must have the
very type of the DataFrame's column.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, Schema, type_parts
from seamark.sinks.internal.columns import no_counterpart, struct_fields

PARTITION_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "boolean", "date")
"""Types with the same text, in the log and in a directory's name, for every reader."""

_DELTA = {
    "tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "float": "float",
    "double": "double", "boolean": "boolean", "string": "string", "binary": "binary",
    "date": "date", "timestamp": "timestamp", "timestamp_ntz": "timestamp_ntz",
}  # fmt: skip
_SPARK = {delta: spark for spark, delta in _DELTA.items()}
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")


def schema_json(schema: Schema) -> str:
    """Return the schema of a new table with these columns, all nullable.

    Raises ConfigurationError for a type unknown to Delta, or for a field name that cannot be told
    from the type's own punctuation.
    """
    fields = [_field(column.name, _delta_type(column)) for column in schema]
    return json.dumps({"type": "struct", "fields": fields})


def column_types(schema: str) -> dict[str, str]:
    """Return the Spark type of each column of a Delta schema's JSON."""
    return {field["name"]: _spark_type(field["type"]) for field in json.loads(schema)["fields"]}


def normal(spark_type: str) -> str:
    """Return the type as stored in a table: Delta keeps char and varchar as string."""
    return re.sub(r"\b(?:var)?char\(\d+\)", "string", spark_type)


def _field(name: str, type_: Any) -> dict[str, Any]:
    if re.search(r"[ ,;{}()\n\t=]|^$", name):
        raise ConfigurationError(
            f"a Delta table without column mapping has no column or field named {name!r}; rename "
            "it without blanks, line ends and ,;{}()="
        )
    return {"name": name, "type": type_, "nullable": True, "metadata": {}}


def _delta_type(column: Column) -> Any:
    try:
        return _converted(column.type)
    except ConfigurationError:  # of a field's name
        raise
    except (KeyError, ValueError):
        raise no_counterpart(column, "a Delta") from None


def _converted(kind: str) -> Any:
    name, parts = type_parts(kind)
    if name == "array":
        (element,) = map(_converted, parts)
        return {"type": name, "elementType": element, "containsNull": True}
    if name == "map":
        key, value = map(_converted, parts)
        return {"type": name, "keyType": key, "valueType": value, "valueContainsNull": True}
    if name == "struct" and parts:
        fields = [_field(field, _converted(of)) for field, of in struct_fields(parts)]
        return {"type": name, "fields": fields}
    return kind if _DECIMAL.fullmatch(kind) else _DELTA[normal(kind)]


def _spark_type(delta: str | Mapping[str, Any]) -> str:
    if isinstance(delta, str):
        return _SPARK.get(delta, delta)
    match delta["type"]:
        case "array":
            return f"array<{_spark_type(delta['elementType'])}>"
        case "map":
            return f"map<{_spark_type(delta['keyType'])},{_spark_type(delta['valueType'])}>"
        case _:
            fields: Sequence[Any] = delta["fields"]
            inner = ",".join(f"{f['name']}:{_spark_type(f['type'])}" for f in fields)
            return f"struct<{inner}>"
