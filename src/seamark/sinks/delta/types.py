"""Spark's types in Delta's schema, both ways.

Delta's schema is the JSON of Spark's own, so nothing is converted: a table's column must have the
very type of the DataFrame's column.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, Schema

PARTITION_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "boolean", "date")
"""Types with the same text, in the log and in a directory's name, for every reader."""

KEY_TYPES = (*PARTITION_TYPES, "decimal", "timestamp", "timestamp_ntz")
"""Types of which two equal values are equal to every reader: not those with NaN, or nested ones."""

_DELTA = {
    "tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "float": "float",
    "double": "double", "boolean": "boolean", "string": "string", "binary": "binary",
    "date": "date", "timestamp": "timestamp", "timestamp_ntz": "timestamp_ntz",
}  # fmt: skip
_SPARK = {delta: spark for spark, delta in _DELTA.items()}
_TOKEN = re.compile(r"decimal\(\d+,\d+\)|(?:var)?char\(\d+\)|[^<>,:]+|[<>,:]")


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


def is_key(spark_type: str) -> bool:
    """Whether rows can be told apart by a column of this type."""
    return normal(spark_type).partition("(")[0] in KEY_TYPES


def _field(name: str, type_: Any) -> dict[str, Any]:
    if re.search(r"[ ,;{}()\n\t=]|^$", name):
        raise ConfigurationError(
            f"a Delta table without column mapping has no column or field named {name!r}; rename "
            "it without blanks, line ends and ,;{}()="
        )
    return {"name": name, "type": type_, "nullable": True, "metadata": {}}


def _delta_type(column: Column) -> Any:
    tokens = _TOKEN.findall(column.type)
    position = 0

    def take(*wanted: str) -> str:
        nonlocal position
        token: str = tokens[position]
        if wanted and token not in wanted:
            raise IndexError
        position += 1
        return token

    def parse() -> Any:
        name = take()
        if name == "array":
            take("<")
            element = parse()
            take(">")
            return {"type": "array", "elementType": element, "containsNull": True}
        if name == "map":
            take("<")
            key = parse()
            take(",")
            value = parse()
            take(">")
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if name == "struct":
            fields = []
            while take("<", ",", ">") != ">":
                field = take()
                take(":")
                fields.append(_field(field, parse()))
            return {"type": "struct", "fields": fields}
        return name if name.startswith("decimal(") else _DELTA[normal(name)]

    try:
        delta = parse()
        if position == len(tokens):
            return delta
    except (IndexError, KeyError):
        pass
    raise ConfigurationError(
        f"column {column.name!r} has type {column.type}, which has no counterpart in a Delta table "
        "that can be told from its text; make the table yourself, or CAST the column"
    )


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
