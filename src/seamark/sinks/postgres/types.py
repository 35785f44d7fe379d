"""Which Spark type goes into which PostgreSQL column type, and which one a new table gets.

Only conversions that cannot fail or lose anything: what does not fit is found at start, not by the
first row that is too large. (The server still rounds to a column's declared scale, checks its
length and its constraints, as it does for an INSERT.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TEXTS = ("text", "varchar", "bpchar", "citext", "name", "xml", "json", "enum")
"""Types whose binary form is their text."""

_ALLOWED: dict[str, tuple[str, ...]] = {
    "boolean": ("bool",),
    "tinyint": ("int2", "int4", "int8", "numeric"),
    "smallint": ("int2", "int4", "int8", "numeric"),
    "int": ("int4", "int8", "numeric"),
    "bigint": ("int8", "numeric"),
    "float": ("float4", "float8"),
    "double": ("float8",),
    "decimal": ("numeric",),
    "string": (*TEXTS, "jsonb", "uuid"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
    "json": ("jsonb", "json", "text", "varchar"),
}
_SCALAR = re.compile(r"(decimal|string|varchar|char)\b.*")
_NAMES = {
    "bool": "boolean", "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real",
    "float8": "double precision", "timestamptz": "timestamp with time zone",
    "timestamp": "timestamp without time zone",
}  # fmt: skip


@dataclass(frozen=True)
class ColumnType:
    """The type of a column as its catalog has it: ``enum`` for any enum, a domain's base type for a
    domain. `shown` is how the server writes it; `element` that of an array."""

    name: str
    oid: int
    shown: str
    element: ColumnType | None = None


def kind(spark_type: str) -> str:
    """Return the key of `_ALLOWED` for a Spark type; "array" for an array of scalars; "json" for
    every other nested type, which is sent as JSON text."""
    if spark_type.startswith("array<"):
        return "array" if kind(spark_type[6:-1]) not in ("array", "json") else "json"
    if spark_type.startswith(("struct<", "map<")):
        return "json"
    base = _SCALAR.sub(r"\1", spark_type)
    return "string" if base in ("varchar", "char") else base


def fits(spark_type: str, column: ColumnType) -> bool:
    """Whether values of a Spark type can be stored in a column, every one of them."""
    if kind(spark_type) == "array":
        return column.element is not None and fits(spark_type[6:-1], column.element)
    return column.element is None and column.name in _ALLOWED[kind(spark_type)]


def allowed(spark_type: str) -> str:
    """Return the column types that a Spark type may go into, for people."""
    if kind(spark_type) == "array":
        return " or ".join(f"{name}[]" for name in _shown(spark_type[6:-1]))
    return " or ".join(_shown(spark_type))


def _shown(spark_type: str) -> list[str]:
    return [_NAMES.get(name, name) for name in _ALLOWED[kind(spark_type)]]


def new_column(spark_type: str) -> str:
    """Return the SQL type that a column of a new table gets for a Spark type."""
    found = kind(spark_type)
    if found == "array":
        return new_column(spark_type[6:-1]) + "[]"
    if found == "decimal":
        return spark_type.replace("decimal", "numeric")
    name = _ALLOWED[found][0]
    return _NAMES.get(name, name)
