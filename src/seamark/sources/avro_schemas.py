"""Avro schemas in fastavro's form: parsed for many records at once, looked into, and compared.

`avro.py` reads values by them.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from seamark.model.packages import load_driver
from seamark.model.schema_registry import SchemaText

_LOGICAL = "seamarkLogicalType"
"""Stands for ``logicalType``, so that fastavro leaves values as they are stored: its own conversion
rounds decimals to their precision, and knows no year above 9999."""
MARK = os.urandom(16)
MOMENTS = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_NUMBERS = (
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-nanos"),
    ("long", "local-timestamp-nanos"),
)
"""Logical types for which Spark has none: the number is the value."""
_WIDER = {
    ("int", "long"), ("int", "double"), ("float", "double"), ("string", "bytes"),
    ("bytes", "string"),
}  # fmt: skip
_ROUNDING = {("int", "float"), ("long", "float"), ("long", "double")}


def library() -> Any:
    """Return fastavro; raises MissingDependencyError."""
    return load_driver("fastavro", "Avro values need fastavro", "avro")


def parsed(schema: SchemaText) -> tuple[Any, dict[str, Any]]:
    """Return fastavro's form of a schema for many records at once, and its named types.

    A call of fastavro's for each record would cost several times as much. Behind each is a mark: a
    record that does not end in time, or ends early, cannot borrow its neighbour's bytes.
    """
    fastavro = library()
    named: dict[str, Any] = {}
    for _, text in schema.references:
        fastavro.parse_schema(_hidden(json.loads(text)), named_schemas=named)
    mark = {"type": "fixed", "name": "seamark_mark", "size": len(MARK)}
    row = _record("row", value=_hidden(json.loads(schema.text)), mark=mark)
    whole = _record("rows", rows={"type": "array", "items": row})
    return fastavro.parse_schema(whole, named_schemas=named), named


def _record(name: str, **fields: Any) -> dict[str, Any]:
    made = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return {"type": "record", "name": f"seamark_{name}", "fields": made}


def value_in(whole: Any) -> Any:
    """Return the schema of one value in the form of `parsed`."""
    return whole["fields"][0]["type"]["items"]["fields"][0]["type"]


def count_of(number: int) -> bytes:
    """Return a count as Avro writes it."""
    number, made = number << 1, bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def spelled_out(schema: Any, named: Mapping[str, Any]) -> Any:
    """Return a schema with its named types in place of their names: fastavro fails at a name in a
    union of the reader's, if the writer has none."""
    if isinstance(schema, list):
        return [spelled_out(one, named) for one in schema]
    if isinstance(schema, dict):
        below = {key: schema[key] for key in ("items", "values") if key in schema}
        return {**schema, **{key: spelled_out(one, named) for key, one in below.items()}}
    return named.get(schema, schema)


def _hidden(schema: Any) -> Any:
    """Return a schema with its logical types under another name."""
    if isinstance(schema, list):
        return [_hidden(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        _LOGICAL if key == "logicalType" else key: value if key == "default" else _hidden(value)
        for key, value in schema.items()
    }


def kind_of(schema: Any, named: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type's name, ``record`` and the like, and the whole type as a dict."""
    while not isinstance(schema, dict) or isinstance(schema["type"], dict):
        inner = isinstance(schema, dict)
        schema = schema["type"] if inner else named.get(schema, {"type": schema})
    if schema["type"] in named:
        return kind_of(schema["type"], named)
    return schema["type"], schema


def meaning(schema: Any) -> str:
    """Return the logical type that a value's number or bytes are to be read by; "" without."""
    if not isinstance(schema, dict):
        return ""
    kind, logical = schema.get("type"), schema.get(_LOGICAL, "")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision > 0:
            return f"decimal({precision},{scale})"
        return ""
    return str(logical) if (kind, logical) in (*MOMENTS, *_NUMBERS) else ""


def conflict(
    writer: Any, reader: Any, written: Mapping[str, Any], read: Mapping[str, Any], path: str
) -> str:
    """Return why Avro's resolution of two schemas would alter values: a number read in another
    unit, a decimal of another scale, a long rounded to a double, a branch or a field taken for
    another; "" if it would not."""
    if isinstance(writer, list):
        conflicts = (conflict(one, reader, written, read, path) for one in writer)
        return next(filter(None, conflicts), "")
    kind, writer = kind_of(writer, written)
    branches = reader if isinstance(reader, list) else [reader]
    fitting = [
        (of, schema)
        for of, schema in (kind_of(branch, read) for branch in branches)
        if (kind == of or (kind, of) in _WIDER | _ROUNDING)
        and (kind != "record" or len(branches) == 1 or _same_name(writer, schema))
    ]
    if not fitting:
        return ""
    of, schema = fitting[0]  # fastavro takes the first that a value could be promoted to
    where = f"the field {path!r}" if path else "the value"
    if (kind, of) in _ROUNDING:
        return f"{where} is a {kind} of its writer's, which a {of} would round"
    exact = [_exact(kind, writer, *one) for one in fitting]
    if any(exact) and not exact[0]:
        return (
            f"{where} is a {writer.get('name', kind)} of its writer's, and in the reader's union "
            f"stands behind {schema.get('name', of)}, for which it would be taken"
        )
    meant, asked = meaning(writer), meaning(schema)
    if meant != asked and ((meant and asked) or (of != kind and "decimal" in meant + asked)):
        return (
            f"{where} is a {meant or kind} of its writer's, and a {asked or of} of the reader's "
            "schema"
        )
    if kind == "array":
        return conflict(writer["items"], schema["items"], written, read, f"{path}[]")
    if kind == "map":
        return conflict(writer["values"], schema["values"], written, read, f"{path}{{}}")
    if kind == "record":
        return _conflict_of_fields(writer, schema, written, read, path)
    return ""


def _conflict_of_fields(
    writer: Any, reader: Any, written: Mapping[str, Any], read: Mapping[str, Any], path: str
) -> str:
    given = {field["name"]: field["type"] for field in writer["fields"]}
    own = {field["name"] for field in reader["fields"]}
    for field in reader["fields"]:
        below = f"{path}.{field['name']}" if path else field["name"]
        aliases = (alias for alias in field.get("aliases", ()) if alias not in own)
        names = [name for name in dict.fromkeys((field["name"], *aliases)) if name in given]
        if len(names) > 1:
            return f"the field {below!r} is {' and '.join(names)} of its writer's"
        for name in names:
            if why := conflict(given[name], field["type"], written, read, below):
                return why
    return ""


def _exact(kind: str, writer: Mapping[str, Any], of: str, reader: Mapping[str, Any]) -> bool:
    return kind == of and writer.get("name") == reader.get("name")


def _same_name(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> bool:
    names: Sequence[str] = (reader["name"], *reader.get("aliases", ()))
    return writer["name"].split(".")[-1] in {name.split(".")[-1] for name in names}
