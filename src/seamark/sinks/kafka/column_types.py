"""Walks Spark's types, as text, to make a value's schema of them: Avro's, Protobuf's or JSON's.

A format is told of each type from the inside out, and makes its part of the schema.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, type_parts

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
Fields = Sequence[tuple[str, Any]]


class Format(Protocol):
    """A format's parts of a schema; `array` and `map` return None for what it has not."""

    @property
    def called(self) -> str:
        """Its name, for errors."""

    @property
    def names(self) -> re.Pattern[str] | None:
        """What a field may be called; None for anything."""

    @property
    def scalars(self) -> Mapping[str, Any]:
        """The parts of types without others in them, by Spark's name."""

    def decimal(self, precision: int, scale: int) -> Any:
        """Return the part for a decimal."""

    def array(self, of: Any) -> Any:
        """Return the part for an array of what is `of`."""

    def map(self, key: str, of: Any) -> Any:
        """Return the part for a map; `key` is Spark's type."""

    def struct(self, fields: Fields, path: Sequence[str]) -> Any:
        """Return the part for a struct; `path` are the names from the value's own on."""


def record_name(topic: str | None) -> str:
    """Return the name of a topic's value, of letters, digits and '_'."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", f"{topic}_value")
    return name if NAME.fullmatch(name) else f"_{name}"


def part_of(columns: Sequence[Column], format_: Format, topic: str | None, sink: str) -> Any:
    """Return the format's part for a struct of these columns.

    Raises ConfigurationError; `sink` names the sink in it.
    """
    record = record_name(topic)
    fields = [(c.name, _part(c.type, format_, (record, c.name), c, sink)) for c in columns]
    for column in columns:
        _check_names([column.name], format_, column, sink)
    return format_.struct(fields, (record,))


def _part(type_: str, format_: Format, path: tuple[str, ...], column: Column, sink: str) -> Any:
    base = re.sub(r" collate .*|\(\d+\)$", "", type_)
    if base in ("varchar", "char"):
        base = "string"
    made = format_.scalars.get(base)
    if match := _DECIMAL.fullmatch(type_):
        made = format_.decimal(int(match[1]), int(match[2]))
    kind, parts = type_parts(type_)
    if kind == "array":
        made = format_.array(_part(parts[0], format_, path, column, sink))
    if kind == "map":
        made = format_.map(parts[0], _part(parts[1], format_, path, column, sink))
    if kind == "struct" and parts:
        named = [part.partition(":")[::2] for part in parts]
        _check_names([name for name, _ in named], format_, column, sink)
        fields = [(n, _part(of, format_, (*path, n), column, sink)) for n, of in named]
        made = format_.struct(fields, path)
    if made is None:
        within = "" if type_ == column.type else f" (within {column.type})"
        raise ConfigurationError(
            f"{sink}: the column {column.name!r} has the type {type_}{within}, which "
            f"{format_.called} has not; convert it, e.g. to a string, or a map's keys to strings"
        )
    return made


def _check_names(names: Sequence[str], format_: Format, column: Column, sink: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"{sink}: {name!r} (in the column {column.name!r}) is there twice; rename one"
            )
        if format_.names is not None and not format_.names.fullmatch(name):
            raise ConfigurationError(
                f"{sink}: {name!r} (in the column {column.name!r}) cannot name a field in "
                f"{format_.called}; use letters, digits and '_', e.g. by withColumnRenamed"
            )
