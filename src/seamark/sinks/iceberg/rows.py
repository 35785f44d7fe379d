"""Reads a data file's rows, whatever it was written with.

Not by pyiceberg's `ArrowScan`: it takes INT96, Spark's default for times, for nanoseconds, in which
those before 1677 and after 2262 are other times, makes an empty list or map of a null one with
structs in it, and holds all of a file's rows at once.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa

from seamark.contracts.record_batches import null_where


def read_rows(table: Any, schema: Any, file: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file (pyiceberg's `DataFile`) in a schema's columns and types."""
    import pyarrow.dataset as ds
    from pyiceberg.io import pyarrow as reader
    from pyiceberg.manifest import FileFormat
    from pyiceberg.schema import prune_columns, visit_with_partner

    metadata, arrow = table.metadata, reader.schema_to_pyarrow(schema)
    is_orc = file.file_format is FileFormat.ORC
    form = ds.OrcFileFormat() if is_orc else ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    with table.io.new_input(file.file_path).open() as opened:
        fragment = form.make_fragment(opened)
        written = reader.pyarrow_to_schema(
            fragment.physical_schema, metadata.name_mapping(), downcast_ns_timestamp_to_us=True
        )
        spec = metadata.specs().get(file.spec_id)
        elsewhere = reader._get_column_projection_values(
            file, schema, metadata.schema(), spec, written.field_ids
        )
        leaves = {n for n in schema.field_ids if schema.find_type(n).is_primitive}
        there = prune_columns(written, leaves, select_full_types=False)
        names = [field.name for field in there.fields]
        visitor = _projection()(
            there, True, projected_missing_fields=elsewhere, allow_timestamp_tz_mismatch=True
        )
        for batch in fragment.scanner(columns=names).to_batches():
            found = visit_with_partner(schema, batch, visitor, reader.ArrowAccessor(there))
            columns = [c.cast(f.type) for c, f in zip(found.flatten(), arrow, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=arrow)


@cache
def _projection() -> Any:
    """Return pyiceberg's visitor with the nulls that it loses."""
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    class Projection(ArrowProjectionVisitor):  # type: ignore[misc]
        def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
            return _with_nulls(super().list(list_type, list_array, value_array), list_array)

        def map(self, map_type: Any, map_array: Any, keys: Any, values: Any) -> Any:
            return _with_nulls(super().map(map_type, map_array, keys, values), map_array)

    return Projection


def _with_nulls(made: Any, found: Any) -> Any:
    if made is None or made.null_count == found.null_count:
        return made
    return null_where(found.is_null(), made)
