"""Parts of Arrow batches: what a task makes of its rows is bounded in bytes, not in rows."""

from collections.abc import Iterator

import pyarrow as pa

PART_BYTES = 16 * 2**20
"""Encoders hold a few copies of a part. Smaller parts would cost small rows their speed: a batch of
Spark's 10,000 rows of 1.6 kB is still one part."""


def in_parts(batch: pa.RecordBatch, most_bytes: int = PART_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows, in their order, in parts of at most `most_bytes`, or of one row."""
    if batch.num_rows <= 1 or batch.nbytes <= most_bytes:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from in_parts(batch.slice(0, middle), most_bytes)
    yield from in_parts(batch.slice(middle), most_bytes)
