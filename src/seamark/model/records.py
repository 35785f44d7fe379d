"""Dataclasses as JSON objects, by the names and types of their fields.

Stored records and the pages of drivers are so (docs/FORMAT.md). Enums stand by value, bytes in
base64; a class with a form of its own has the methods `to_record` and `from_record`.
"""

import base64
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]
_PLAIN = (str, int, float, bool, NoneType)
_IN_JSON: Mapping[Any, Any] = {float: (int, float), Mapping: dict}


def record_of(value: Any) -> Any:
    """Return a value, for JSON, as `read_as` reads it."""
    kind = type(value)
    if kind in _PLAIN:  # as most are, in an epoch's record of a thousand tasks
        return value
    if kind is bytes:
        return base64.b64encode(value).decode()
    if own := getattr(value, "to_record", None):
        return own()
    if kind is dict or isinstance(value, Mapping):
        return {key: record_of(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(record_of, value))
    if is_dataclass(value):
        return {field.name: record_of(getattr(value, field.name)) for field in fields(value)}
    return value.value if isinstance(value, Enum) else value


def read_as(kind: type[T], body: Any, *, newer: bool = False) -> T:
    """Return the dataclass `kind` of a JSON object, which may lack fields with a default. Sequences
    are read as tuples. `newer`: unknown fields, at any depth, are left out. Raises TypeError,
    ValueError or AttributeError for anything else; a ValueError names the field."""
    return cast(T, _reader(cast(Any, kind), newer)(body))


@functools.cache
def _reader(type_: Any, newer: bool) -> Reader:
    """Return the function that reads a value of a type; made once, as a history has thousands."""
    origin, parts = get_origin(type_), get_args(type_)
    inner = [_reader(part, newer) for part in parts if part not in (..., NoneType)]
    if type_ is Any:
        return lambda value: value
    if own := getattr(type_, "from_record", None):
        return cast(Reader, own)
    if is_dataclass(type_):
        hints = get_type_hints(type_)
        types = {field.name: hints[field.name] for field in fields(type_)}
        return functools.partial(_object, type_, types, newer)
    if type_ is bytes:
        return base64.b64decode
    if NoneType in parts:
        return lambda value: None if value is None else inner[0](value)
    if origin is tuple and ... not in parts:
        return lambda value: tuple(read(one) for read, one in zip(inner, value, strict=True))
    if origin in (tuple, Sequence, list):
        whole = list if origin is list else tuple
        return lambda value: whole(map(inner[0], value))
    if origin in (Mapping, dict) and parts[1] is not Any:
        return lambda value: {key: inner[1](one) for key, one in value.items()}
    plain = origin or type_
    return plain if issubclass(plain, Enum) else functools.partial(_plain, plain)


def _object(kind: Any, types: Mapping[str, Any], newer: bool, body: Mapping[str, Any]) -> Any:
    values = dict(body)
    for name, value in body.items():
        if type(value) is types.get(name):  # as most are
            continue
        if name in types:
            try:
                values[name] = _reader(types[name], newer)(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        elif newer:
            del values[name]
    return kind(**values)


def _plain(kind: type, value: Any) -> Any:
    if isinstance(value, _IN_JSON.get(kind, kind)):
        return value
    raise ValueError(f"{value!r} is no {kind.__name__}")
