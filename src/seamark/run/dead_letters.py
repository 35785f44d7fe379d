"""Turns refused rows into dead letters, in the task that met them; checks sinks for dead letters.

Letters are made row by row, in Python: if there are many, the job has another problem. Every value
Spark can send fits into a letter: a row impossible to set aside would stop a job told to go on.
"""

import base64
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from seamark.contracts.dead_letters import DEAD_LETTER_SCHEMA, DeadLetterFormat, RefusedRow
from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.contracts.text_forms import as_text
from seamark.model.errors import ConfigurationError
from seamark.model.schema import quoted

_ARROW = {"string": pa.string(), "bigint": pa.int64()}
_SCHEMA = pa.schema([(column.name, _ARROW[column.type]) for column in DEAD_LETTER_SCHEMA])
# Not of Python values: each worker would import pandas for it.
NO_LETTERS = pa.RecordBatch.from_arrays(
    [pa.nulls(0, kind) for kind in _SCHEMA.types], schema=_SCHEMA
)


def dead_letters(
    sink_uid: str, epoch: int, batch: pa.RecordBatch, refused: Sequence[RefusedRow]
) -> pa.RecordBatch:
    """Return a dead letter for each refused row of `batch`, by `DEAD_LETTER_SCHEMA`."""
    rows = batch.take(pa.array([row.index for row in refused], pa.int64()))
    columns = [column.cast(_readable(column.type)).to_pylist() for column in rows.columns]
    texts = [
        json.dumps(
            {
                name: _plain(column[number], field)
                for name, column, field in zip(
                    rows.schema.names, columns, rows.schema.types, strict=True
                )
            },
            ensure_ascii=False,
        )
        for number in range(len(refused))
    ]
    reasons = [" ".join(row.reason.split()) for row in refused]
    values = [[sink_uid] * len(refused), [epoch] * len(refused), reasons, texts]
    return pa.RecordBatch.from_arrays(
        [pa.array(v, field.type) for v, field in zip(values, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def for_sink(sink: TwoPhaseCommitSink[Any], letters: pa.RecordBatch) -> pa.RecordBatch:
    """Return dead letters with the columns expected by the writers of `sink`."""
    return sink.from_dead_letters(letters) if isinstance(sink, DeadLetterFormat) else letters


def check_takes_dead_letters(sink: TwoPhaseCommitSink[Any], uid: str) -> None:
    """Raise ConfigurationError if `sink` cannot take the dead letters of the sink `uid`."""
    try:
        if isinstance(sink, DeadLetterFormat):
            sink.from_dead_letters(NO_LETTERS)
            return
        columns = list(sink.select_expressions(DEAD_LETTER_SCHEMA))
    except ConfigurationError as error:
        raise ConfigurationError(f"dead letters of sink {uid!r}: {error}") from error
    if columns not in ([quoted(c.name) for c in DEAD_LETTER_SCHEMA], list(_SCHEMA.names)):
        raise ConfigurationError(
            f"dead letters of sink {uid!r}: {sink.describe()} would have Spark compute its columns "
            f"({', '.join(columns)}), but dead letters do not come from Spark; give another sink, "
            f"or give {type(sink).__name__} the method from_dead_letters"
        )


def _readable(kind: pa.DataType) -> pa.DataType:
    """Return the type in which to read values of `kind`. Python has no value for some dates (after
    the year 9999), so read dates and times as numbers. It refuses text that is not UTF-8, so read
    text as bytes."""
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return pa.int32() if pa.types.is_date32(kind) else pa.int64()
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _readable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_readable(kind.key_type), _readable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    return kind


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Convert a value of type `kind` for `json.dumps`, losing nothing."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {
            str(_plain(key, kind.key_type)): _plain(item, kind.item_type) for key, item in value
        }
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_plain(element, kind.value_type) for element in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, int) and pa.types.is_temporal(kind):
        return as_text(pa.array([value]).cast(_readable(kind)).cast(kind))[0].as_py()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
