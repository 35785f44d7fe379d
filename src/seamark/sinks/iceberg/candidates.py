"""An epoch's keys: which rows have one of them, and which data files may."""

import contextlib
from bisect import bisect_left
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.text_forms import since_1970
from seamark.sinks.iceberg import partitions

_PLACE, _ROW = "_seamark_place", "_seamark_row"


class Keys:
    """Keys that are all different, none of them with a null; in the types of the table's columns.

    schema: pyiceberg's `Schema` of the key columns alone.
    """

    def __init__(self, keys: pa.Table, schema: Any) -> None:
        self._fields = {field.field_id: field for field in schema.fields}
        self._values = {n: pc.unique(keys[field.name]) for n, field in self._fields.items()}
        self._ordered = {n: _ordered(values) for n, values in self._values.items()}
        self._keys = _numbered(keys, _PLACE)
        self._partitions: dict[tuple[int, str], set[Any]] = {}

    def places(self, rows: pa.Table) -> Any:
        """Return the place of each row's key among the keys, -1 for another key."""
        result = np.full(rows.num_rows, -1)
        rows = _numbered(rows, _ROW)
        same = rows.join(self._keys, rows.column_names[:-1], join_type="inner")
        result[same[_ROW].to_numpy()] = same[_PLACE].to_numpy()
        return result

    def may_be_in(self, file: Any, spec: Any) -> bool:
        """Whether a file (pyiceberg's `DataFile`) of this partition spec may have one of the keys,
        by its partition and the bounds of its columns."""
        for place, field in enumerate(spec.fields):
            key = self._fields.get(field.source_id)
            if key is None or not partitions.can_split(field.transform, key.field_type):
                continue
            if (name := str(field.transform)) != "void" and file.partition[place] not in self._in(
                name, field.transform, key
            ):
                return False
        return all(self._within(file, number) for number in self._fields)

    def _in(self, name: str, transform: Any, key: Any) -> set[Any]:
        """Return the keys' partition values by a transform of a key column."""
        known = self._partitions.get((key.field_id, name))
        if known is None:
            values = partitions.values(self._values[key.field_id], transform, key.field_type)
            known = {*pc.unique(values).to_pylist()}
            if name in ("year", "month", "day", "hour"):  # old writers rounded up before 1970
                known |= {value + 1 for value in known if value < 0}
            self._partitions[key.field_id, name] = known
        return known

    def _within(self, file: Any, number: int) -> bool:
        """Whether a key column has a value within the file's bounds."""
        from pyiceberg.conversions import from_bytes

        low = (file.lower_bounds or {}).get(number)
        high = (file.upper_bounds or {}).get(number)
        ordered, kind, start = self._ordered[number], self._fields[number].field_type, 0
        with contextlib.suppress(ValueError):  # no value of this type: then no bound
            if low is not None:
                least = from_bytes(kind, low)
                start = bisect_left(ordered, least, key=lambda value: value.as_py())
            if start < len(ordered) and high is not None:
                return bool(ordered[start].as_py() <= from_bytes(kind, high))
        return start < len(ordered)


def _numbered(rows: pa.Table, number: str) -> pa.Table:
    """Return the rows with a column of their numbers, and names of which none is a path."""
    plain = rows.rename_columns([f"key {place}" for place in range(rows.num_columns)])
    return plain.append_column(number, pa.array(np.arange(rows.num_rows)))


def _ordered(values: pa.Array) -> pa.Array:
    """Return the values in order, times as numbers, as Iceberg's bounds are."""
    if pa.types.is_temporal(values.type):
        values = since_1970(values)
    return values.take(pc.sort_indices(values))
