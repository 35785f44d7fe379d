"""Avro values from a schema registry: each record is read by its writer's schema and resolved to
the reader's, which has the columns.

fastavro reads. Where it, or Avro's rules of resolution, would alter a value, it is not left to
them: `conflict` (`avro_schemas.py`) refuses a pair of schemas, decimals are made from their bytes,
and defaults from their JSON. Types become those of Spark's own `from_avro`.
"""

import decimal
import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from seamark.model.errors import MissingDependencyError
from seamark.model.schema_registry import SchemaText, no_column, no_schema
from seamark.sources.avro_schemas import (
    MARK,
    MOMENTS,
    conflict,
    count_of,
    kind_of,
    library,
    meaning,
    parsed,
    spelled_out,
    value_in,
)

_SCALARS = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_PYTHON = {
    "boolean": bool, "int": int, "long": int, "float": float, "double": float, "string": str,
    "enum": str, "bytes": bytes, "fixed": bytes, "array": list, "map": dict, "record": dict,
}  # fmt: skip
_NO_DEFAULT = (AttributeError, KeyError, TypeError, ValueError)
_EXACT = decimal.Context(prec=100)
_Convert = Callable[[Any], Any] | None


class AvroValues:
    """The values of one reader's schema. `type` is their Arrow type.

    `name` begins each error. Raises ConfigurationError for what Spark has no type for, and for text
    that is no Avro schema.
    """

    def __init__(self, reader: SchemaText, name: str) -> None:
        self._text, self._name = reader, name
        try:
            self._reader, self._named = parsed(reader)
        except MissingDependencyError:
            raise
        except Exception as error:  # fastavro's, and whatever a wrong structure leads to
            raise no_schema(name, "Avro schema", error, reader) from error
        self.type, self._convert = self._typed(value_in(self._reader), "", ())
        for schema in self._named.values():
            for field in schema.get("fields", ()):
                if "default" in field:
                    try:
                        field["default"] = self._default(field["type"], field["default"])
                    except _NO_DEFAULT:
                        why = f"has the default {field['default']!r}, which is none of its type"
                        raise no_column(name, field["name"], why) from None
                field["type"] = spelled_out(field["type"], self._named)

    def reading(self, writer: SchemaText) -> Callable[[Sequence[bytes]], list[Any]]:
        """Return the function that reads records of this writer's schema, without their heads.

        It raises whatever an unreadable record among them leads to. Raises ValueError if no record
        of the writer's could be read.
        """
        schema, reader = self._reader, None
        if writer != self._text:
            schema, named = parsed(writer)
            reader = self._reader
            misfit = conflict(value_in(schema), value_in(reader), named, self._named, "")
            if misfit:
                raise ValueError(misfit)
        convert = self._convert

        def read(records: Sequence[bytes]) -> list[Any]:
            count = count_of(len(records))
            stream = io.BytesIO(b"".join((count, *(r + MARK for r in records), b"\0")))
            rows = library().schemaless_reader(
                stream, schema, reader, return_record_name=True, return_named_type=True
            )["rows"]
            if any(row["mark"] != MARK for row in rows):
                raise ValueError("a value does not end where its record ends")
            if convert is None:
                return [row["value"] for row in rows]
            return [convert(row["value"]) for row in rows]

        return read

    def _typed(self, schema: Any, path: str, within: tuple[str, ...]) -> tuple[Any, _Convert]:
        """Return the Arrow type of a part of the reader's schema, and what makes a value of it from
        fastavro's; None if that is the value."""
        if isinstance(schema, list):
            return self._union(schema, path, within)
        kind, schema = kind_of(schema, self._named)
        if meant := meaning(schema):
            return self._logical(schema, meant, path)
        if kind in _SCALARS:
            return _SCALARS[kind], None
        if kind == "array":
            of, convert = self._typed(schema["items"], f"{path}[]", within)
            return pa.list_(of), partial(_listed, convert) if convert else None
        if kind == "map":
            of, convert = self._typed(schema["values"], f"{path}{{}}", within)
            return pa.map_(pa.string(), of), lambda values: [
                (key, convert(one) if convert else one) for key, one in values.items()
            ]
        if kind != "record" or not schema["fields"]:
            raise no_column(self._name, path, f"is of the type {kind}, for which Spark has none")
        if schema["name"] in within:
            raise no_column(self._name, path, f"has the record {schema['name']} within itself")
        fields: list[Any] = []
        converts: dict[str, Callable[[Any], Any]] = {}
        for field in schema["fields"]:
            below = f"{path}.{field['name']}" if path else field["name"]
            of, convert = self._typed(field["type"], below, (*within, schema["name"]))
            fields.append(pa.field(field["name"], of))
            if convert:
                converts[field["name"]] = convert
        if not converts:
            return pa.struct(fields), None
        # A new dict: fastavro gives the same default to each record.
        return pa.struct(fields), lambda value: {
            **value, **{name: convert(value[name]) for name, convert in converts.items()}
        }  # fmt: skip

    def _logical(self, schema: Any, meant: str, path: str) -> tuple[Any, _Convert]:
        kind = schema["type"]
        if meant.startswith("decimal"):
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > 38:
                raise no_column(
                    self._name, path, f"is a {meant}; Spark's decimals have at most 38 digits"
                )
            return pa.decimal128(precision, scale), lambda value: _decimal(value, scale)
        if type_ := MOMENTS.get((kind, meant)):
            return type_, (lambda value: value * 1000) if meant.endswith("millis") else None
        return _SCALARS[kind], None

    def _union(self, union: list[Any], path: str, within: tuple[str, ...]) -> tuple[Any, _Convert]:
        branches = [one for one in union if kind_of(one, self._named)[0] != "null"]
        kinds = [kind_of(one, self._named)[0] for one in branches]
        if set(kinds) in ({"int", "long"}, {"float", "double"}) and not any(
            meaning(one) for one in branches
        ):
            branches, kinds = ["long" if "long" in kinds else "double"], [kinds[-1]]
        if len(branches) == 1:
            of, convert = self._typed(branches[0], path, within)
            if convert is None and kinds[0] not in ("record", "enum", "fixed"):
                return of, None
            return of, lambda value: _one_of(value, convert)
        if not branches:
            raise no_column(self._name, path, "is always null")
        for at, kind in enumerate(kinds):
            twins = [k for k in kinds[:at] if _PYTHON[k] is _PYTHON[kind]]
            if twins and {kind, *twins} != {"record"}:
                raise no_column(self._name, path, f"is a union with both {twins[0]} and {kind}")
        typed = [self._typed(one, path, within) for one in branches]
        members = [f"member{at}" for at in range(len(branches))]
        names = [kind_of(one, self._named)[1].get("name") for one in branches]

        def convert_union(value: Any) -> Any:
            if value is None:
                return None
            name, value = value if isinstance(value, tuple) else ("", value)
            fit = [at for at, kind in enumerate(kinds) if type(value) is _PYTHON[kind]]
            if len(fit) > 1:
                fit = [at for at in fit if names[at] == name]
            if len(fit) != 1:
                raise ValueError(f"{path}: the record does not tell the branch of the union")
            convert = typed[fit[0]][1]
            return {members[fit[0]]: convert(value) if convert else value}

        return pa.struct([(m, of) for m, (of, _) in zip(members, typed, strict=True)]), (
            convert_union
        )

    def _default(self, schema: Any, default: Any) -> Any:
        """Return a default as fastavro would have read it."""
        if isinstance(schema, list):
            if default is None:
                return None
            for one in schema:
                try:
                    return self._default(one, default)
                except _NO_DEFAULT:
                    continue  # of another branch; Avro before 1.12 has the first one's alone
            raise TypeError(default)
        kind, schema = kind_of(schema, self._named)
        if kind in ("bytes", "fixed"):
            return default if isinstance(default, bytes) else default.encode("latin-1")
        if kind == "array":
            return [self._default(schema["items"], one) for one in default]
        if kind == "map":
            return {key: self._default(schema["values"], one) for key, one in default.items()}
        if kind == "record":
            return {
                field["name"]: self._default(
                    field["type"],
                    default[field["name"]] if field["name"] in default else field["default"],
                )
                for field in schema["fields"]
            }
        if kind in ("float", "double") and type(default) is int:
            default = float(default)
        if type(default) is not _PYTHON.get(kind, type(None)):
            raise TypeError(kind)
        return default


def _listed(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    return [convert(one) for one in values]


def _one_of(value: Any, convert: _Convert) -> Any:
    """Return the value of a union with one branch beside null: fastavro names a record's."""
    if isinstance(value, tuple):
        value = value[1]
    return value if value is None or convert is None else convert(value)


def _decimal(value: bytes, scale: int) -> decimal.Decimal:
    if not value:
        raise ValueError("a decimal without bytes")
    return decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)
