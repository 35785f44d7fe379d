"""Chooses a partition for each row of a whole Arrow batch: Kafka's murmur2, in numpy.

librdkafka could choose row by row. Grouping a batch by partition beforehand costs one lock and one
transaction check per group instead of per row, and halves the sink's CPU. The result equals that of
Java's default partitioner, so a key's rows land in the same partition as with Spark's own sink.
Rows without a key are spread in runs, as by Java's sticky partitioner.
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

LONGEST_KEY = 256
"""Bytes. Above this, a loop in C over one key beats a loop in numpy over all keys."""

_SEED, _M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_SHORTEST_RUN = 1000


def murmur2(data: Any, starts: Any, lengths: Any) -> Any:
    """Return Kafka's 32-bit murmur2 of each ``data[start : start + length]``.

    `data` is an array of bytes with at least 4 more bytes after the last one hashed.
    """
    # The 32-bit word starting at each byte.
    words = np.ndarray((len(data) - 3,), "<u4", buffer=data, strides=(1,))
    hashes = _SEED ^ lengths.astype(np.uint32)
    blocks = lengths >> 2
    for i in range(int(blocks.max(initial=0))):
        rows: Any = blocks > i
        if rows.all():
            rows = slice(None)
        k = words[starts[rows] + 4 * i] * _M
        k ^= k >> np.uint32(24)
        k *= _M
        hashes[rows] = (hashes[rows] * _M) ^ k
    rest = lengths & 3
    tail = words[starts + (blocks << 2)] & _TAIL_MASKS[rest]
    hashes = np.where(rest > 0, (hashes ^ tail) * _M, hashes)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    return hashes ^ (hashes >> np.uint32(15))


class Partitioner:
    """Chooses partitions for one producer. `available` holds the partitions with a leader."""

    def __init__(self, count: int, available: Sequence[int]) -> None:
        self.count = count
        self._available = np.array(available or range(count), np.int32)
        self._turn = random.randrange(len(self._available))

    def of(self, keys: pa.Array) -> Any | None:
        """Return each row's partition (int32); None if a key is longer than `LONGEST_KEY`."""
        if keys.null_count == len(keys):
            return self._runs(len(keys))
        starts, lengths, data = layout(keys)
        if lengths.max(initial=0) > LONGEST_KEY:
            return None
        first, last = int(starts[0]), int(starts[-1] + lengths[-1])
        padded = np.zeros(last - first + 4, np.uint8)
        padded[: last - first] = data[first:last]
        hashes = murmur2(padded, starts - first, lengths) & np.uint32(0x7FFFFFFF)
        partitions = (hashes % np.uint32(self.count)).astype(np.int32)
        if keys.null_count:
            null = keys.is_null().to_numpy(zero_copy_only=False)
            partitions[null] = self._runs(int(null.sum()))
        return partitions

    def _runs(self, count: int) -> Any:
        """Spread `count` rows over the partitions in turn, in runs long enough to fill batches."""
        run = max(-(-count // len(self._available)), _SHORTEST_RUN)
        turns = self._turn + np.arange(count) // run
        self._turn = (int(turns[-1]) + 1) % len(self._available) if count else self._turn
        return self._available[turns % len(self._available)]


def layout(column: pa.Array) -> tuple[Any, Any, Any]:
    """Return the start and length of each value of a (large) binary array, as int64, and the bytes
    they refer to. A null has any start, and the length found in the buffers."""
    wide = str(column.type).startswith("large")
    _, offsets_buffer, data_buffer = column.buffers()
    count = len(column)
    if offsets_buffer is None or count == 0:
        offsets = np.zeros(count + 1, np.int64)
    else:
        offsets = np.frombuffer(
            offsets_buffer,
            dtype=np.int64 if wide else np.int32,
            count=count + 1,
            offset=column.offset * (8 if wide else 4),
        ).astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.zeros(0, np.uint8)
    return offsets[:-1], offsets[1:] - offsets[:-1], data
