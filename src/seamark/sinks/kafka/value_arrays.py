"""Values of columns as bytes, whole columns at once: what Protobuf's and JSON's have in common.

A value is put together from the bytes of its parts by joining columns; those of a list's elements
lie one after another already, so a list is a matter of offsets. No row becomes a Python object.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.dead_letters import Refusals
from seamark.contracts.text_forms import as_text
from seamark.sinks.internal.columns import not_utf8

BYTES = pa.large_binary()


def joined(*parts: pa.Array | bytes) -> pa.Array:
    """Return the parts of each row one after another; null if one of them is."""
    made = [pa.scalar(part, BYTES) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*made, pa.scalar(b"", BYTES))


def in_lists(parts: pa.Array, lengths: Any) -> pa.Array:
    """Return, of consecutive elements without nulls, those of each list one after another."""
    _, offsets, data = parts.buffers()
    places = np.frombuffer(offsets, np.int64)[parts.offset :][: len(parts) + 1]
    ends = places[np.concatenate([[0], np.cumsum(lengths)])]
    buffers = [None, pa.py_buffer(ends), data or pa.py_buffer(b"")]
    return pa.LargeBinaryArray.from_buffers(BYTES, len(lengths), buffers)


def is_repeated(kind: pa.DataType) -> bool:
    """Return whether it is a type of lists or maps."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether it is a type of bytes that are no text."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def iso(values: pa.Array) -> pa.Array:
    """Return dates and times as ISO text, decimals in plain digits."""
    texts = as_text(values)
    return pc.replace_substring(texts, " ", "T") if pa.types.is_timestamp(values.type) else texts


class Encoding:
    """The encoding of one batch. `refusals` has the rows that cannot be as they are."""

    def __init__(self) -> None:
        self.refusals = Refusals()

    def encode(self, values: pa.Array, rows: Any, path: str) -> pa.Array:
        """Return the bytes of each value, null for null. `rows` are the indexes of the rows that
        the values are in, `path` their place in these."""
        if not values.null_count:
            return self.present(values, rows, path)
        there = values.is_valid().to_numpy(zero_copy_only=False)
        made = self.present(values.filter(pa.array(there)), rows[there], path)
        return made.take(pa.array(np.cumsum(there) - 1, mask=~there))

    @abstractmethod
    def present(self, values: pa.Array, rows: Any, path: str) -> pa.Array:
        """Return the bytes of values without nulls."""

    def lists(self, values: pa.Array, rows: Any) -> tuple[Any, Sequence[pa.Array], Any]:
        """Return of lists or maps without nulls their lengths, the elements (keys and values, by
        key: a repeated attempt may have them in another order), and the rows that these are in."""
        ends = values.offsets.to_numpy()
        lengths, within = np.diff(ends), slice(ends[0], ends[-1])
        if not pa.types.is_map(values.type):
            return lengths, [values.values[within]], np.repeat(rows, lengths)
        keys, items = values.keys[within], values.items[within]
        maps = pa.array(np.repeat(np.arange(len(lengths)), lengths))
        order = pc.sort_indices(
            pa.table([maps, keys], ["map", "key"]), [("map", "ascending"), ("key", "ascending")]
        )
        return lengths, [keys.take(order), items.take(order)], np.repeat(rows, lengths)

    def text(self, values: pa.Array, rows: Any, path: str) -> pa.Array:
        """Return the bytes of text; a row whose text is not UTF-8 is refused."""
        self.refuse(not_utf8(values), rows, path, "is not UTF-8; mend it")
        return values.cast(BYTES)

    def refuse(self, where: Any, rows: Any, path: str, why: str) -> None:
        """Refuse the rows of the values in a mask."""
        if np.any(where):
            of_rows = np.zeros(int(rows.max()) + 1, bool)
            of_rows[rows[where]] = True
            self.refusals.add(of_rows, f"the column `{path}` {why}")
