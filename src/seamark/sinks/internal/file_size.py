"""The size of files that a user asks for: `target_file_size=` of a sink of files.

A task ends a file of that size and begins another. So that a small epoch has few files, the driver
gives fewer tasks to the next one (`run/gathering.py`).
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from seamark.api.checks import Size, whole_bytes
from seamark.contracts.record_batches import in_parts
from seamark.model.errors import ConfigurationError

LEAST_BYTES = 2**20
_PARTS = 4


def checked_size(value: Size | None, sink: str, keys: Sequence[str] = ()) -> int | None:
    """Return the size in bytes, None if none is asked for. Raises ConfigurationError, also for a
    sink with keys."""
    if value is None:
        return None
    if keys:
        raise ConfigurationError(
            f"{sink}: target_file_size is {value!r} and keys is {list(keys)!r}: the driver writes "
            "the files of changes by key, an epoch's in one step; leave target_file_size out"
        )
    return whole_bytes(value, f"{sink}: target_file_size", least=LEAST_BYTES)


def in_parts_of(batch: pa.RecordBatch, target_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts so small that a file can end near its size; 0 is none."""
    return in_parts(batch, target_bytes // _PARTS) if target_bytes else iter((batch,))
