"""Values in Confluent's wire format: how a user declares them, and what decodes them in tasks.

`registry.py` has the schemas, `avro.py`, `json_schema.py` and `protobuf.py` the values of a format.
A value begins with its writer's schema id. What is read of it are the columns of the reader's
schema, fixed when the job is built.
"""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from seamark.api.checks import one_of
from seamark.contracts.source import UNREADABLE
from seamark.model import schema_registry as settings
from seamark.model.errors import ConfigurationError, OperationFailedError, UnreadableRecordError
from seamark.model.schema_registry import SchemaText
from seamark.sources.avro import AvroValues
from seamark.sources.json_schema import JsonValues
from seamark.sources.protobuf import ProtobufValues
from seamark.sources.registry import Registry

_Values = AvroValues | JsonValues | ProtobufValues
FORMATS: dict[str, type[_Values]] = {
    "avro": AvroValues,
    "json-schema": JsonValues,
    "protobuf": ProtobufValues,
}
ON_BAD_ROW = ("fail", "keep")
_LONGEST_REASON = 300
_log = logging.getLogger(__name__)
_Reading = Callable[[Sequence[bytes]], Sequence[Any]]
_process: dict[object, "_Readings"] = {}
"""What this process knows of its streams: a Python worker runs many tasks."""


@dataclass(frozen=True)
class RegistryValues:
    """The declaration: as `KafkaSource` documents its settings of these names.

    `name` begins each error; `topics` are the source's, for the subject. Raises ConfigurationError.
    """

    name: str
    topics: tuple[str, ...]
    value_format: str
    schema_registry: Mapping[str, Any] = field(repr=False)
    subject: str | None = None
    value_schema: int | str | None = None
    on_bad_row: str = "fail"

    def __post_init__(self) -> None:
        one_of(self.value_format, FORMATS, f"{self.name}: value_format")
        one_of(self.on_bad_row, ON_BAD_ROW, f"{self.name}: on_bad_row")
        checked = settings.checked(self.schema_registry, self.name, self.value_format)
        object.__setattr__(self, "schema_registry", checked)
        given = self.value_schema
        number = isinstance(given, int) and not isinstance(given, bool) and given > 0
        if given is not None and not number and (not isinstance(given, str) or not given.strip()):
            raise ConfigurationError(
                f"{self.name}: value_schema is {given!r}; give the number of a version, from 1, or "
                "the schema's text"
            )
        subject = self.subject
        if subject is not None and (not isinstance(subject, str) or not subject.strip()):
            raise ConfigurationError(
                f"{self.name}: subject is {subject!r}; give the name of one, or leave it out"
            )
        if not isinstance(given, str) and self.subject is None and len(self.topics) != 1:
            raise ConfigurationError(
                f"{self.name}: the registry has a schema for each topic, and here it is not one "
                "topic; give subject= the name of the subject with the reader's schema, or "
                "value_schema= its text"
            )

    def decoder(self) -> "RegistryDecoder":
        """Return the decoder; asks the registry for the reader's schema, unless it is given.

        Raises ConfigurationError, PreflightError and MissingDependencyError.
        """
        if isinstance(self.value_schema, str):
            schema = SchemaText(self.value_schema)
        else:
            registry = Registry(self.schema_registry, self.name)
            subject = self.subject or f"{self.topics[0]}-value"
            version, schema = registry.of_subject(subject, self.value_schema)
            _log.info("%s: reads %s by its version %s", self.name, subject, version)
        _values(self.value_format, schema, self.name)  # raises for one that Spark cannot have
        keeps = self.on_bad_row == "keep"
        return RegistryDecoder(self.name, self.value_format, self.schema_registry, schema, keeps)


@dataclass(frozen=True)
class RegistryDecoder:
    """See `RowDecoder`. Holds settings and text alone, for the tasks."""

    name: str
    value_format: str
    schema_registry: Mapping[str, Any] = field(repr=False)
    schema: SchemaText
    keeps_unreadable: bool

    @property
    def value_type(self) -> pa.DataType:
        """See `RowDecoder`. Raises ConfigurationError for a schema that Spark cannot have."""
        return _values(self.value_format, self.schema, self.name).type

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See `RowDecoder`."""
        at = batch.schema.get_field_index("value")
        given = batch.column(at).to_pylist()
        rows, reasons = _readings(self).read(given)
        if reasons and not self.keeps_unreadable:
            raise UnreadableRecordError(self._refusal(batch, *next(iter(reasons.items()))))
        columns, names = list(batch.columns), list(batch.schema.names)
        columns[at] = rows
        if self.keeps_unreadable:
            kept = [
                {"reason": reasons[row], "value": value} if row in reasons else None
                for row, value in enumerate(given)
            ]
            columns.append(pa.array(kept, UNREADABLE.type))
            names.append(UNREADABLE.name)
        return pa.RecordBatch.from_arrays(columns, names)

    def _refusal(self, batch: pa.RecordBatch, row: int, reason: str) -> str:
        record = batch.slice(row, 1).to_pylist()[0]
        place = f"{record['topic']}/{record['partition']} at {record['offset']}" if {
            "topic", "partition", "offset"
        } <= record.keys() else "a record"  # fmt: skip
        return (
            f"{self.name}: {place} is not readable as {self.value_format}: {reason}; give "
            'on_bad_row="keep" to have such records as rows, with the reason, or move past it '
            "(seamark offsets)"
        )


class _Readings:
    """Reads values; has a function for each writer's schema met, or the reason why none."""

    def __init__(self, decoder: RegistryDecoder) -> None:
        self._values = _values(decoder.value_format, decoder.schema, decoder.name)
        self._registry = functools.cache(lambda: Registry(decoder.schema_registry, decoder.name))
        self._by_head: dict[bytes, _Reading | str] = {}

    def read(self, given: Sequence[bytes | None]) -> tuple[pa.Array, dict[int, str]]:
        """Return the values, null for an unreadable one, and the reasons by index."""
        by_head: dict[bytes, list[int]] = {}
        for row, value in enumerate(given):
            if value is not None:
                by_head.setdefault(value[: settings.HEAD.size], []).append(row)
        values: list[Any] = [None] * len(given)
        reasons: dict[int, str] = {}
        for head, rows in by_head.items():
            reading = self._by_head.get(head) or self._reading(head)
            if isinstance(reading, str):
                reasons.update(dict.fromkeys(rows, reading))
                continue
            bodies = [(given[row] or b"")[settings.HEAD.size :] for row in rows]
            decoded, refused = _each(reading, bodies)
            for row, value in zip(rows, decoded, strict=True):
                values[row] = value
            reasons.update((rows[at], why) for at, why in refused.items())
        try:
            column = pa.array(values, self._values.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            refused = _each(lambda ones: pa.array(ones, self._values.type), values)[1]
            reasons.update(refused)
            kept = [None if row in refused else value for row, value in enumerate(values)]
            column = pa.array(kept, self._values.type)
        return column, dict(sorted(reasons.items()))

    def _reading(self, head: bytes) -> _Reading | str:
        if len(head) < settings.HEAD.size or head[0]:
            return "it does not begin with a zero byte and a schema id, as Confluent's format does"
        schema_id = settings.HEAD.unpack(head)[1]
        schema = self._registry().by_id(schema_id)
        if schema is None:
            return f"the registry knows no schema of id {schema_id}"
        try:
            self._by_head[head] = self._values.reading(schema)
        except OperationFailedError:  # this machine's fault, not the record's
            raise
        except Exception as error:  # the text may be of another format
            self._by_head[head] = f"schema {schema_id}: {_reason(error)}"
        return self._by_head[head]


def _each(
    reading: Callable[[Sequence[Any]], Sequence[Any]], given: Sequence[Any]
) -> tuple[Sequence[Any], dict[int, str]]:
    """Return what `reading` makes of all; if that fails, of each, with the reasons by index."""
    try:
        return reading(given), {}
    except Exception as error:  # a library's, at bytes of any form
        if len(given) == 1:
            return [None], {0: _reason(error)}
    values: list[Any] = []
    refused: dict[int, str] = {}
    for at, one in enumerate(given):
        read, why = _each(reading, [one])
        values += read
        refused.update((at, reason) for reason in why.values())
    return values, refused


def _readings(decoder: RegistryDecoder) -> _Readings:
    login = tuple(sorted((name, repr(value)) for name, value in decoder.schema_registry.items()))
    key = decoder.name, decoder.value_format, decoder.schema, login
    if key not in _process:
        _process[key] = _Readings(decoder)
    return _process[key]


@functools.lru_cache(maxsize=64)
def _values(value_format: str, schema: SchemaText, name: str) -> _Values:
    return FORMATS[value_format](schema, name)


def _reason(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    text = text.encode(errors="backslashreplace").decode()  # it may quote half a character
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
