"""JSON values from a schema registry: the reader's schema has the columns, found by name.

A record is read, not validated: what its columns cannot hold unaltered makes it unreadable, a field
that is missing is null. Its writer's schema says nothing more.
"""

import decimal
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from seamark.model.schema_registry import SchemaText, no_column, no_schema

_SCALARS = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_EXACT_DIGITS = 15
"""As many a double always holds, unless it is nearly 0."""
_EXACT_WHOLE = 2**53


class JsonValues:
    """The values of one reader's schema. `type` is their Arrow type.

    `name` begins each error. Raises ConfigurationError for what Spark has no type for, and for text
    that is no JSON Schema.
    """

    def __init__(self, reader: SchemaText, name: str) -> None:
        self._name = name
        try:
            self._documents = {at: json.loads(text) for at, text in reader.references}
            self._documents[""] = json.loads(reader.text)
        except ValueError as error:
            raise no_schema(name, "JSON", error, reader) from None
        try:
            self.type = self._typed(self._documents[""], "", "", ())
        except (AttributeError, TypeError) as error:  # a list for an object, and the like
            raise no_schema(name, "JSON Schema", error, reader) from error

    def reading(self, writer: SchemaText) -> Callable[[Sequence[bytes]], list[Any]]:
        """Return the function that reads records, without their heads. It raises whatever an
        unreadable record among them leads to; Arrow refuses scalars of another type."""
        return lambda records: [_shaped(_loaded(record), self.type) for record in records]

    def _typed(self, schema: Any, document: str, path: str, within: tuple[str, ...]) -> pa.DataType:
        if isinstance(schema, dict) and "$ref" in schema:
            at, _, pointer = str(schema["$ref"]).partition("#")
            document = at or document
            place = f"{document}#{pointer}"
            if place in within:
                raise no_column(self._name, path, f"has {schema['$ref']} within itself")
            return self._typed(self._found(document, pointer, path), document, path,
                               (*within, place))  # fmt: skip
        for one_of in ("oneOf", "anyOf"):
            if isinstance(schema, dict) and "type" not in schema and one_of in schema:
                others = [one for one in schema[one_of] if not _is_null(one)]
                if len(others) == 1:
                    return self._typed(others[0], document, path, within)
        kind = schema.get("type") if isinstance(schema, dict) else None
        kinds = {kind} if isinstance(kind, str) else set(kind or ())
        kinds.discard("null")
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        kind = next(iter(kinds)) if len(kinds) == 1 else None
        if kind in _SCALARS:
            return _SCALARS[kind]
        if kind == "array" and "items" in schema:
            return pa.list_(self._typed(schema["items"], document, f"{path}[]", within))
        if kind == "object" and schema.get("properties"):
            return pa.struct(
                [(n, self._typed(one, document, f"{path}.{n}" if path else n, within))
                 for n, one in schema["properties"].items()]
            )  # fmt: skip
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            of = self._typed(schema["additionalProperties"], document, f"{path}{{}}", within)
            return pa.map_(pa.string(), of)
        raise no_column(
            self._name, path, f"is {json.dumps(schema)}, for which Spark has no one type"
        )

    def _found(self, document: str, pointer: str, path: str) -> Any:
        try:
            schema = self._documents[document]
            for part in pointer.split("/")[1:]:
                schema = schema[part.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            raise no_column(
                self._name, path, f"refers to {document}#{pointer}, which is not there"
            ) from None
        return schema


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _loaded(record: bytes) -> Any:
    return json.loads(
        record.decode(),
        parse_float=_float,
        parse_constant=_refuse,
        object_pairs_hook=_object,
    )


def _float(text: str) -> float:
    """Return a number that a double holds to the digit; raises ValueError for another."""
    value = float(text)
    doubtful = len(text) > _EXACT_DIGITS or abs(value) < sys.float_info.min
    if math.isinf(value) or (doubtful and decimal.Decimal(repr(value)) != decimal.Decimal(text)):
        raise ValueError(f"{text} has more digits than a double holds")
    return value


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError(f"an object has a field twice: {', '.join(name for name, _ in pairs)}")
    return made


def _shaped(value: Any, type_: pa.DataType) -> Any:
    """Return a value whose lists and objects are where the type has them: Arrow would take a text
    for a list of its letters, a list of pairs for an object, true for 1, and of 1.5 the whole
    number."""
    if value is None:
        return None
    if pa.types.is_list(type_):
        if not isinstance(value, list):
            raise ValueError(f"{json.dumps(value)} stands for an array")
        return [_shaped(one, type_.value_type) for one in value]
    if pa.types.is_struct(type_) or pa.types.is_map(type_):
        if not isinstance(value, dict):
            raise ValueError(f"{json.dumps(value)} stands for an object")
        if pa.types.is_map(type_):
            return {name: _shaped(one, type_.item_type) for name, one in value.items()}
        return {field.name: _shaped(value.get(field.name), field.type) for field in type_}
    if isinstance(value, bool) and not pa.types.is_boolean(type_):
        raise ValueError(f"{json.dumps(value)} stands for another type")
    if isinstance(value, float) and pa.types.is_integer(type_):
        if not value.is_integer() or abs(value) > _EXACT_WHOLE:
            raise ValueError(f"{value} stands for a whole number")
        return int(value)
    return value
