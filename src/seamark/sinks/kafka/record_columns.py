"""Maps the columns of a DataFrame to the parts of a Kafka record, in Spark SQL: the JVM makes keys
and values, and no row becomes a Python object.

Without `value_format` a sink takes the columns of Spark's own Kafka sink, and as that one no other:
a topic's rows, as Spark reads them, are copied without a select. With it the value is made of
columns (their schema and bytes: `value_forms.py`). `sink.py` describes the user's settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, Schema, quoted
from seamark.sinks.internal.columns import cast_to_text, check_columns, to_json
from seamark.sinks.kafka import avro_schema
from seamark.sinks.kafka.value_forms import FORMS

ROUTING = ("topic", "partition", "headers")
_HEADERS = "array<struct<key:string,value:binary>>"
_BYTES = ("string", "binary")
_TYPES = {"key": _BYTES, "value": _BYTES, "topic": ("string",), "partition": ("int",),
          "headers": (_HEADERS,)}  # fmt: skip
_KEY_AS_TEXT = ("boolean", "tinyint", "smallint", "int", "bigint", "decimal", "date")
"""Types of a `key=` whose text is the same in every session."""


def as_found(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows as a record tells of them: without the requested partition; null and empty
    headers become equal."""
    names = batch.schema.names
    if "partition" in names:
        batch = batch.select([name for name in names if name != "partition"])
    if "headers" in names and (headers := batch.column("headers")).null_count:
        lengths = pc.fill_null(pc.list_value_length(headers), 0)
        ends = pc.cumulative_sum(lengths.cast(pa.int32()))
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        lists = pa.ListArray.from_arrays(offsets, headers.flatten())
        batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", lists)
    return batch


@dataclass(frozen=True)
class RecordColumns:
    """A KafkaSink's settings for records; `name` names the sink in errors. `select_expressions`
    sorts the columns of one DataFrame by them."""

    name: str
    topic: str | None
    key: tuple[str, ...]
    value: tuple[str, ...]
    value_format: str | None
    value_schema: str | None

    def select_expressions(self, schema: Schema) -> list[str]:
        """Return the SQL of key and value, and of topic, partition and headers where present.

        Raises ConfigurationError for a DataFrame that this sink cannot take.
        """
        parts = self._parts(schema)
        expressions = [self._key(parts.key), self._value(parts.value)]
        for role in ROUTING:
            column = parts.routing.get(role)
            if column is not None:
                self._check_type(role, column)
                expressions.append(f"{quoted(column.name)} AS {role}")
        return expressions

    def value_text(self, schema: Schema) -> str | None:
        """Return the schema of the value for a DataFrame of this shape; None if `value_format` is
        none of a registry's."""
        return self._text(self._parts(schema).value) if self.value_format in FORMS else None

    def _text(self, columns: Sequence[Column]) -> str:
        if self.value_schema is not None:
            return avro_schema.schema_of(columns, self.topic, self.name, self.value_schema)
        return FORMS[self.value_format or ""].schema_of(columns, self.topic, self.name)

    def _parts(self, schema: Schema) -> "_Parts":
        by_name: dict[str, Column] = {}
        named = {name.lower() for name in (*self.key, *self.value)}
        for column in schema:
            name = column.name.lower()
            if not (self.value_format or name in named) and self._is_unlike(column, schema):
                continue
            left_out = name not in _TYPES or (name == "topic" and self.topic is not None)
            if name in by_name and (self.value_format or name in named or not left_out):
                if column.name == by_name[name].name:
                    raise ConfigurationError(
                        f"{self.name}: two columns are `{column.name}`; drop one, or rename it. "
                        "Spark's own sink writes the first"
                    )
                raise ConfigurationError(
                    f"{self.name}: two columns differ in upper and lower case only: "
                    f"{', '.join(column.name for column in schema)}; drop one"
                )
            by_name[name] = column
        value = [self._named("value", name, by_name) for name in self.value]
        key = [self._named("key", name, by_name) for name in self.key]
        free = {n: c for n, c in by_name.items() if c not in value}
        if not self.key and "key" in free:
            key = [free["key"]]
            self._check_type("key", free["key"], or_void=True)
        routing = {role: free[role] for role in ROUTING if role in free and free[role] not in key}
        if self.value_format is None:
            value = value or [self._needed("value", by_name)]
            if unused := [
                n for n in ("key", "value") if n in free and free[n] not in (*key, *value)
            ]:
                raise ConfigurationError(
                    f"{self.name}: the column `{free[unused[0]].name}` is none of those in the "
                    f"record, as {unused[0]}= names others; drop it"
                )
            if self.topic is not None:
                routing.pop("topic", None)
        elif not value:
            implicit = () if self.key else tuple(key)
            value = [c for c in schema if c not in (*implicit, *routing.values())]
        if self.topic is None and "topic" not in routing:
            self._needed("topic", {})
        if self.topic is not None and "topic" in routing:
            raise ConfigurationError(
                f"{self.name}: the sink has topic={self.topic!r} and the DataFrame a column "
                f"`{routing['topic'].name}`, so it is open where rows go; drop the column, or name "
                "it in value= if it is data, or leave out topic= to send each row to its own topic"
            )
        return _Parts(key, value, routing)

    def _is_unlike(self, column: Column, schema: Schema) -> bool:
        """Whether a column is named as a part of the record but for its case. Spark's own sink
        leaves it out, in every session. Here it is refused where no other column is that part: it
        was hardly meant to be left out."""
        role = column.name.lower()
        if role not in _TYPES or column.name == role:
            return False
        given = any(other.name == role for other in schema)
        if not given and not (role == "topic" and self.topic is not None):
            raise ConfigurationError(
                f"{self.name}: the column `{column.name}` is in another case than `{role}`, which "
                f"is what Spark's own sink takes; rename it to `{role}`, or drop it"
            )
        return True

    def _key(self, columns: Sequence[Column]) -> str:
        if not columns:
            return "CAST(NULL AS BINARY) AS key"
        if len(columns) > 1:
            check_columns(tuple(columns), f"{self.name}: key", as_json=True)
            return f"CAST({to_json(_struct(columns))} AS BINARY) AS key"
        column = columns[0]
        if column.type.startswith(_KEY_AS_TEXT):
            return f"CAST({cast_to_text(column)} AS BINARY) AS key"
        if not column.type.startswith((*_BYTES, "void")):
            raise ConfigurationError(
                f"{self.name}: key={column.name!r} has the type {column.type}, and allowed are "
                f"{', '.join((*_BYTES, *_KEY_AS_TEXT))}; convert it, e.g. with date_format(...) or "
                f'to_json(...), or give several columns: key=["{column.name}", ...] makes JSON'
            )
        return f"CAST({quoted(column.name)} AS BINARY) AS key"

    def _value(self, columns: Sequence[Column]) -> str:
        if self.value_format is None:
            self._check_type("value", columns[0])
            return f"CAST({quoted(columns[0].name)} AS BINARY) AS value"
        as_json = self.value_format == "json"
        check_columns(tuple(columns), f"{self.name}: value", as_json=as_json)
        if as_json:
            return f"CAST({to_json(_struct(columns))} AS BINARY) AS value"
        text = self._text(columns)
        if FORMS[self.value_format].encoding is not None:
            return f"{_struct(columns)} AS value"
        return f"to_avro({_struct(columns)}, {_literal(text)}) AS value"

    def _named(self, setting: str, name: str, by_name: dict[str, Column]) -> Column:
        if name.lower() not in by_name:
            raise ConfigurationError(
                f"{self.name}: {setting}= names the column {name!r}, which the DataFrame does not "
                f"have; its columns are {_names(by_name)}"
            )
        return by_name[name.lower()]

    def _needed(self, name: str, by_name: dict[str, Column]) -> Column:
        if name in by_name:
            return by_name[name]
        why = " because the sink has no topic=" if name == "topic" else ""
        other = ', or give the sink value_format="json"' if name == "value" else ""
        raise ConfigurationError(
            f"{self.name}: the column `{name}` is missing{why}; select it, e.g. "
            f'df.selectExpr("... AS {name}"){other}'
        )

    def _check_type(self, role: str, column: Column, *, or_void: bool = False) -> None:
        allowed, base = _TYPES[role], column.type.split(" collate ")[0]
        if base in allowed or (or_void and base == "void"):
            return
        cast = "to_json(...)" if role in ("key", "value") else f"CAST(... AS {allowed[0]})"
        other = f" (as data it would be named in value=[..., {column.name!r}])"
        raise ConfigurationError(
            f"{self.name}: the column `{column.name}` has the type {column.type}, and allowed "
            f"is {' or '.join(allowed)}; convert it, e.g. with {cast}"
            f"{other if self.value_format else ''}"
        )


@dataclass(frozen=True)
class _Parts:
    """The columns of one DataFrame by their role."""

    key: list[Column]
    value: list[Column]
    routing: dict[str, Column]


def _struct(columns: Sequence[Column]) -> str:
    return f"struct({', '.join(quoted(column.name) for column in columns)})"


def _names(by_name: dict[str, Column]) -> str:
    return ", ".join(column.name for column in by_name.values()) or "none"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
