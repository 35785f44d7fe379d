"""The forms of a value that a schema registry knows: the schema that each registers, and its bytes.

Spark makes Avro's bytes. The others' are made of Arrow's columns in the task, so that a row that
has no such bytes is refused by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from seamark.contracts.dead_letters import Refusals
from seamark.model.schema import Column
from seamark.model.schema_registry import HEAD
from seamark.sinks.kafka import avro_schema, json_value, protobuf_value
from seamark.sinks.kafka.value_arrays import Encoding


@dataclass(frozen=True)
class ValueForm:
    """One form. `kind` is the registry's name for it; `schema_of` makes a schema's text of columns,
    for a topic and a sink's name; `indexes` stand between a schema's id and the value; `encoding`
    makes the bytes, None if Spark does."""

    kind: str
    schema_of: Callable[[Sequence[Column], str | None, str], str]
    indexes: bytes = b""
    encoding: type[Encoding] | None = None

    def head(self, schema_id: int) -> bytes:
        """Return what is in front of each value."""
        return HEAD.pack(0, schema_id) + self.indexes

    def encoded(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Refusals]:
        """Return a batch with the bytes of its values, and the rows that have none."""
        if self.encoding is None:
            return batch, Refusals()
        encoding = self.encoding()
        made = encoding.encode(batch.column("value"), np.arange(batch.num_rows), "")
        at = batch.schema.get_field_index("value")
        return batch.set_column(at, "value", made.cast(pa.binary())), encoding.refusals


FORMS = {
    "avro": ValueForm("AVRO", avro_schema.schema_of),
    # The first message of its schema.
    "protobuf": ValueForm(
        "PROTOBUF", protobuf_value.schema_of, b"\0", protobuf_value.ProtobufEncoding
    ),
    "json-schema": ValueForm("JSON", json_value.schema_of, b"", json_value.JsonEncoding),
}
