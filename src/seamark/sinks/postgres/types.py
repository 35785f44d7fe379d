"""Maps Spark types to PostgreSQL's: those allowed in a table, and the type for a new one.

Allows only conversions that lose nothing. A column that does not fit is found at the start, not by
the first row too large. (The server still checks a column's declared length and digits before the
point, and its constraints, as for an INSERT.)
"""

import re
from dataclasses import dataclass

TEXTS = ("text", "varchar", "bpchar", "citext", "name", "xml", "json", "enum")
"""Types with their text as binary form."""

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
_OF_ONE_KIND = {
    "bool": "boolean", "int2": "smallint", "int4": "int", "int8": "bigint", "float4": "float",
    "float8": "double", "bytea": "binary", "date": "date", "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
}  # fmt: skip
"""The Spark types of values that a column of these types may hold."""
_SCALAR = re.compile(r"(decimal|string|varchar|char)\b.*")
_NAMES = {
    "bool": "boolean", "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real",
    "float8": "double precision", "timestamptz": "timestamp with time zone",
    "timestamp": "timestamp without time zone",
}  # fmt: skip


@dataclass(frozen=True)
class ColumnType:
    """A column's type from the catalog: ``enum`` for any enum, the base type for a domain. `shown`
    is the server's spelling; `modifier` its length, scale or precision (pg_attribute.atttypmod);
    `element` the element type of an array; `base` is below a domain that is NOT NULL, else "";
    `collation` is the SQL of one that is not the database's."""

    name: str
    oid: int
    shown: str
    modifier: int = -1
    element: "ColumnType | None" = None
    base: str = ""
    collation: str = ""


def kind(spark_type: str) -> str:
    """Return the key of `_ALLOWED` for a Spark type; "array" for an array of scalars; "json" for
    every other nested type, sent as JSON text."""
    if spark_type.startswith("array<"):
        return "array" if kind(spark_type[6:-1]) not in ("array", "json") else "json"
    if spark_type.startswith(("struct<", "map<")):
        return "json"
    base = _SCALAR.sub(r"\1", spark_type)
    return "string" if base in ("varchar", "char") else base


def fits(spark_type: str, column: ColumnType) -> bool:
    """Whether a column can store every value of a Spark type."""
    if kind(spark_type) == "array":
        return column.element is not None and fits(spark_type[6:-1], column.element)
    return (
        column.element is None
        and column.name in _ALLOWED[kind(spark_type)]
        and not _rounds(column, spark_type)
    )


def keeps(staged: ColumnType, now: ColumnType) -> bool:
    """Whether the server moves every value of the first type into the second unchanged, or refuses
    it: texts into longer ones, other values as `fits` has it for their Spark type."""
    if (staged.oid, staged.modifier) == (now.oid, now.modifier):
        return True
    if staged.element is not None and now.element is not None:
        return keeps(staged.element, now.element)
    if staged.name in ("text", "varchar"):
        longer = now.modifier < 0 or 0 <= staged.modifier <= now.modifier
        return now.name == "text" or (now.name == "varchar" and longer)
    if staged.name == "numeric":  # without a modifier of any scale
        return staged.modifier >= 0 and fits(f"decimal(38,{_digits(staged.modifier)})", now)
    return staged.name in _OF_ONE_KIND and fits(_OF_ONE_KIND[staged.name], now)


def _digits(modifier: int) -> int:
    """Return a numeric's scale: eleven bits with a sign."""
    return ((modifier - 4) & 2047 ^ 1024) - 1024


def _rounds(column: ColumnType, spark_type: str) -> bool:
    """Whether the server would round to the column's scale, or its digits of a second."""
    if column.modifier < 0:
        return False
    if column.name == "numeric":
        return _digits(column.modifier) < _scale(spark_type)
    return column.name in ("timestamp", "timestamptz") and column.modifier < 6


def _scale(spark_type: str) -> int:
    return int(spark_type.rstrip(")").partition(",")[2] or 0)


def allowed(spark_type: str) -> str:
    """Return the column types allowed for a Spark type, for people."""
    if kind(spark_type) == "array":
        return " or ".join(f"{name}[]" for name in _shown(spark_type[6:-1]))
    return " or ".join(_shown(spark_type))


def _shown(spark_type: str) -> list[str]:
    kind_name = kind(spark_type)
    how = f" with a scale of at least {_scale(spark_type)}" if kind_name == "decimal" else ""
    how = " with 6 digits of a second" if kind_name.startswith("timestamp") else how
    return [_NAMES.get(name, name) + how for name in _ALLOWED[kind_name]]


def new_column(spark_type: str) -> str:
    """Return the SQL type of a new table's column for a Spark type."""
    kind_name = kind(spark_type)
    if kind_name == "array":
        return new_column(spark_type[6:-1]) + "[]"
    if kind_name == "decimal":
        return spark_type.replace("decimal", "numeric")
    name = _ALLOWED[kind_name][0]
    return _NAMES.get(name, name)
