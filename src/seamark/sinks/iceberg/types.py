"""Spark's types in an Iceberg schema, both ways."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, Schema, type_parts
from seamark.sinks.internal.columns import no_counterpart, struct_fields

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ICEBERG = {
    "int": "IntegerType", "bigint": "LongType", "float": "FloatType", "double": "DoubleType",
    "boolean": "BooleanType", "string": "StringType", "binary": "BinaryType", "date": "DateType",
    "timestamp": "TimestamptzType", "timestamp_ntz": "TimestampType",
}  # fmt: skip
"""pyiceberg's classes, by Spark's types."""
_SPARK = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Spark's names, where they are not Iceberg's."""
_WIDER = {("int", "bigint"), ("float", "double")}


def iceberg_schema(schema: Schema) -> Any:
    """Return pyiceberg's `Schema` of a new table with these columns, all nullable.

    Raises ConfigurationError for a type unknown to Iceberg, for a field name that cannot be told
    from the type's own punctuation, and for a column with the name of another one's field.
    """
    from pyiceberg.schema import Schema as IcebergSchema

    ids = itertools.count(1)
    fields = [_field(column.name, iceberg_type(column, ids), ids) for column in schema]
    try:
        return IcebergSchema(*fields)
    except ValueError as error:  # `a.b`, and a struct `a` with `b` in it
        raise ConfigurationError(f"{error}; rename one with withColumnRenamed") from None


def iceberg_type(column: Column, ids: Iterator[int]) -> Any:
    """Return the type of a column; `ids` gives its fields their numbers. Raises ConfigurationError
    as `iceberg_schema`."""
    try:
        return _converted(column.type, ids)
    except (KeyError, ValueError):
        raise no_counterpart(column, "an Iceberg") from None


def normal(spark_type: str) -> str:
    """Return the type as read from a table: Iceberg knows neither char and varchar nor integers of
    less than four bytes."""
    text = re.sub(r"\b(?:var)?char\(\d+\)", "string", spark_type)
    return re.sub(r"(^|[<,:])(?:tiny|small)int(?=$|[>,])", r"\1int", text)


def spark_type(iceberg: Any) -> str:
    """Return the Spark type of a column of the table."""
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(iceberg, ListType):
        return f"array<{spark_type(iceberg.element_type)}>"
    if isinstance(iceberg, MapType):
        return f"map<{spark_type(iceberg.key_type)},{spark_type(iceberg.value_type)}>"
    if isinstance(iceberg, StructType):
        inner = ",".join(f"{f.name}:{spark_type(f.field_type)}" for f in iceberg.fields)
        return f"struct<{inner}>"
    text = str(iceberg).replace(" ", "")
    return _SPARK.get(text, text)


def fits(given: str, there: str) -> bool:
    """Whether a column of the first Spark type may go into the table's, as it is."""
    return normal(given) == there or (normal(given), there) in _WIDER


def unreadable(written: Any, now: Any) -> str | None:
    """Return the first column that files written with a schema have in a type from which the second
    schema does not read it. A replaced table keeps the ids of its columns' names."""
    from pyiceberg.exceptions import ResolveError
    from pyiceberg.schema import index_by_id, promote

    there = index_by_id(now)
    for number, field in index_by_id(written).items():
        old, new = field.field_type, there[number].field_type if number in there else None
        if new is None or new == old or (type(new) is type(old) and not old.is_primitive):
            continue
        try:
            promote(old, new)
        except ResolveError:
            return str(written.find_column_name(number))
    return None


def has_required(iceberg: Any) -> bool:
    """Whether a null anywhere within a value of this type is refused."""
    from pyiceberg.types import ListType, MapType, StructType

    if isinstance(iceberg, ListType):
        return iceberg.element_required or has_required(iceberg.element_type)
    if isinstance(iceberg, MapType):
        parts = (iceberg.key_type, iceberg.value_type)
        return iceberg.value_required or any(map(has_required, parts))
    fields = iceberg.fields if isinstance(iceberg, StructType) else ()
    return any(field.required or has_required(field.field_type) for field in fields)


def _field(name: str, kind: Any, ids: Iterator[int]) -> Any:
    from pyiceberg.types import NestedField

    return NestedField(next(ids), name, kind, required=False)


def _converted(kind: str, ids: Iterator[int]) -> Any:
    from pyiceberg import types

    name, parts = type_parts(kind)
    if name == "array":
        (element,) = (_converted(part, ids) for part in parts)
        return types.ListType(next(ids), element, element_required=False)
    if name == "map":
        key, value = (_converted(part, ids) for part in parts)
        return types.MapType(next(ids), key, next(ids), value, value_required=False)
    if name == "struct" and parts:
        fields = [_field(field, _converted(of, ids), ids) for field, of in struct_fields(parts)]
        return types.StructType(*fields)
    if decimal := _DECIMAL.fullmatch(kind):
        return types.DecimalType(int(decimal[1]), int(decimal[2]))
    return getattr(types, _ICEBERG[normal(kind)])()
