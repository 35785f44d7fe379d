"""JSON values made of columns: their schema, Draft-07 as Confluent's clients take it, and text.

Each field may be null. What JSON has no type for is text: decimals, dates and times as Spark's
CAST takes them, binary in Base64. A row with NaN or an infinity, which JSON has not, is refused.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.model.schema import Column
from seamark.sinks.kafka.column_types import Fields, part_of, record_name
from seamark.sinks.kafka.value_arrays import (
    BYTES,
    Encoding,
    in_lists,
    is_bytes,
    is_repeated,
    iso,
    joined,
)

_DRAFT = "http://json-schema.org/draft-07/schema#"
_ESCAPED = r'["\\\x00-\x1f]'


def _typed(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": ["null", kind], **more}


class _Format:
    called, names = "JSON Schema", None
    scalars = {
        "boolean": _typed("boolean"),
        **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _typed("integer")),
        **dict.fromkeys(("float", "double"), _typed("number")),
        "string": _typed("string"),
        "binary": _typed("string", contentEncoding="base64"),
        "date": _typed("string", format="date"),
        "timestamp": _typed("string", format="date-time"),
        "timestamp_ntz": _typed("string"),
    }

    def decimal(self, precision: int, scale: int) -> Any:
        return _typed("string")

    def array(self, of: Any) -> Any:
        return _typed("array", items=of)

    def map(self, key: str, of: Any) -> Any:
        return _typed("object", additionalProperties=of) if key.startswith("string") else None

    def struct(self, fields: Fields, path: Sequence[str]) -> Any:
        # Closed: a registry takes another column for compatible with an older schema only so.
        return _typed("object", properties=dict(fields), additionalProperties=False)


def schema_of(columns: Sequence[Column], topic: str | None, sink: str) -> str:
    """Return the text of the schema; raises ConfigurationError."""
    part = part_of(columns, _Format(), topic, sink)
    whole = {"$schema": _DRAFT, "title": record_name(topic), **part, "type": "object"}
    return json.dumps(whole, ensure_ascii=False)


class JsonEncoding(Encoding):
    """See `Encoding`."""

    def present(self, values: pa.Array, rows: Any, path: str) -> pa.Array:
        """See `Encoding`."""
        kind = values.type
        if pa.types.is_struct(kind):
            parts: list[pa.Array | bytes] = [b"{"]
            for field, column in zip(kind, values.flatten(), strict=True):
                within = f"{path}.{field.name}" if path else field.name
                comma = b"," if len(parts) > 1 else b""
                name = comma + json.dumps(field.name, ensure_ascii=False).encode() + b":"
                parts += [name, self._or_null(column, rows, within)]
            return joined(*parts, b"}")
        if is_repeated(kind):
            lengths, inside, inner = self.lists(values, rows)
            names = [self.present(inside[0], inner, path), b":"] if len(inside) == 2 else []
            commas = np.ones(len(inside[-1]), np.int8)
            commas[(np.cumsum(lengths) - lengths)[lengths > 0]] = 0
            before = pa.array([b"", b","], BYTES).take(pa.array(commas))
            elements = joined(before, *names, self._or_null(inside[-1], inner, path))
            ends = (b"{", b"}") if names else (b"[", b"]")
            return joined(ends[0], in_lists(elements, lengths), ends[1])
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
            return values.cast(pa.string()).cast(BYTES)
        if pa.types.is_floating(kind):
            return self._numbers(values.cast(pa.float64()), rows, path)
        if pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
            return joined(b'"', iso(values).cast(BYTES), b'"')
        if is_bytes(kind):
            texts = [base64.b64encode(value) for value in values.to_pylist()]
            return joined(b'"', pa.array(texts, BYTES), b'"')
        return _quoted(values, self.text(values, rows, path))

    def _or_null(self, values: pa.Array, rows: Any, path: str) -> pa.Array:
        return self.encode(values, rows, path).fill_null(b"null")

    def _numbers(self, values: pa.Array, rows: Any, path: str) -> pa.Array:
        odd = ~np.isfinite(values.to_numpy())
        self.refuse(odd, rows, path, "is NaN or infinite, which JSON has no number for; nullif it")
        texts = values.cast(pa.string())
        whole = pc.match_substring_regex(texts, r"^-?\d+$")  # -0 would be read as a whole number
        return pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts).cast(BYTES)


def _quoted(values: pa.Array, texts: pa.Array) -> pa.Array:
    made = joined(b'"', texts, b'"')
    odd = pc.match_substring_regex(texts.cast(BYTES), _ESCAPED)
    if pc.any(odd).as_py():
        odd_texts = texts.filter(odd).to_pylist()
        escaped = [json.dumps(t.decode(errors="replace"), ensure_ascii=False) for t in odd_texts]
        made = pc.replace_with_mask(made, odd, pa.array([t.encode() for t in escaped], BYTES))
    return made
