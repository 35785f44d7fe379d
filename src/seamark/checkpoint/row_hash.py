"""The hash of a row, and order-free sums of it: docs/FORMAT.md, *The hash of a row*.

Whole Arrow columns are hashed at once. Bytes are hashed by a function inside pyarrow's own library,
after a test that it computes what the format says; else by numpy, with the same result.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.record_batches import nulls, numbers

log = logging.getLogger(__name__)

P2, P3, P4, P5 = (
    np.uint64(number)
    for number in (
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
Q1, Q2, Q3 = (np.uint32(number) for number in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D))
_NULL = P5
_STRIPE = 16
_RUN = 2**18
_MASK = 2**64 - 1
_SYMBOLS = (
    "_ZN5arrow7compute9Hashing3210HashVarLenElbjPKjPKhPjS6_",
    "_ZN5arrow7compute9Hashing3210HashVarLenExbjPKjPKhPjS6_",  # macOS: another int64_t
)
_AVX2 = 1 << 5
"""A bit of Arrow's ``CpuInfo``: with it, Arrow hashes four times as fast."""
_BytesHash = Callable[[Any, Any, Any], Any]
"""From (offsets, bytes, output), numpy arrays of int32, uint8 and uint32."""


@dataclass(frozen=True)
class RowSums:
    """The rows of some place: their number, the sum of their hashes, and the sum of the hashes'
    squares, both modulo 2^64. Sums of parts add up."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: RowSums) -> RowSums:
        return RowSums(
            self.rows + other.rows,
            (self.first + other.first) & _MASK,
            (self.second + other.second) & _MASK,
        )

    def __sub__(self, other: RowSums) -> RowSums:
        return self + RowSums(-other.rows, -other.first, -other.second)

    @property
    def hash(self) -> str:
        """Both sums, 16 hex digits each."""
        return f"{self.first:016x}{self.second:016x}"

    @staticmethod
    def of(rows: int, hash_: str) -> RowSums:
        """Read the form of `hash`; raises ValueError."""
        if len(hash_) != 32:
            raise ValueError(f"{hash_!r} has not 32 hex digits")
        return RowSums(rows, int(hash_[:16], 16), int(hash_[16:], 16))

    def to_record(self) -> list[Any]:
        """Return the number of rows and the `hash`."""
        return [self.rows, self.hash]

    @staticmethod
    def from_record(body: Sequence[Any]) -> RowSums:
        """Read the form of `to_record`."""
        return RowSums.of(*body)


NO_ROWS = RowSums()


def sums(hashes: Any) -> RowSums:
    """Return the sums of an array of hashes."""
    return RowSums(
        len(hashes), int(hashes.sum(dtype=np.uint64)), int((hashes * hashes).sum(dtype=np.uint64))
    )


def row_hashes(batch: pa.RecordBatch) -> Any:
    """Return the hash of each row (uint64)."""
    total = np.zeros(batch.num_rows, np.uint64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        total += value_hashes(column) * _column_key(name)
    return avalanche(total)


def value_hashes(values: pa.Array) -> Any:
    """Return the hash of each value (uint64); the type says how."""
    hashes = _hashes(values)
    if values.null_count:
        hashes[nulls(values)] = _NULL
    return hashes


def _hashes(values: pa.Array) -> Any:
    kind, is_ = values.type, pa.types
    if is_.is_null(kind):
        return np.full(len(values), _NULL)
    if is_.is_dictionary(kind):
        return value_hashes(values.dictionary_decode())
    if is_.is_boolean(kind) or is_.is_integer(kind):
        # Not by `cast`: a uint64 has values above int64's.
        return _of_numbers(numbers(values).astype(np.int64))
    if is_.is_floating(kind):
        floats = numbers(values.cast(pa.float64())) + 0.0  # a copy, with 0 for -0
        floats[np.isnan(floats)] = np.nan
        return _of_numbers(floats)
    if is_.is_temporal(kind):
        return _of_numbers(_whole_numbers(values))
    if is_.is_decimal(kind):
        return _of_decimals(values)
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return _of_lists(values.flatten(), numbers(pc.list_value_length(values)) * ~nulls(values))
    if is_.is_map(kind):
        # A null may have entries below it: they count for its own hash alone, which is replaced.
        offsets = numbers(values.offsets)
        entries = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
        return _of_lists(entries[offsets[0] : offsets[-1]], np.diff(offsets))
    if is_.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        return _of_structs(names, values.flatten(), len(values))
    return _of_bytes(values)


def avalanche(x: Any) -> Any:
    """Mix the bits of each number; 0 stays 0."""
    x = x ^ (x >> np.uint64(33))
    x *= P2
    x ^= x >> np.uint64(29)
    x *= P3
    x ^= x >> np.uint64(32)
    return x


@functools.lru_cache(maxsize=4096)
def _column_key(name: str) -> Any:
    """Return a column's odd factor."""
    data = name.encode()
    hashes = _of_text(np.array([0, len(data)], np.int32), np.frombuffer(data, np.uint8))
    return avalanche(hashes)[0] | np.uint64(1)


def _of_numbers(numbers: Any) -> Any:
    return avalanche(np.ascontiguousarray(numbers).view(np.uint64) ^ P5)


def _whole_numbers(values: pa.Array) -> Any:
    kind = values.type
    if pa.types.is_date(kind):
        values = values.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_time(kind):
        values = values.cast(pa.time64("us"), safe=False)
    else:
        values = values.cast(pa.duration("us"), safe=False)
    return numbers(values.cast(pa.int64()))


def _of_decimals(values: pa.Array) -> Any:
    kind = values.type
    if kind.bit_width != 128:
        values = values.cast(pa.decimal128(kind.precision, kind.scale))
    words = np.frombuffer(values.buffers()[1], "<u8")
    words = words[2 * values.offset : 2 * (values.offset + len(values))].reshape(-1, 2)
    return avalanche(avalanche(words[:, 0] ^ P5) + words[:, 1] * P4 + np.uint64(kind.scale))


def _of_lists(elements: pa.Array, lengths: Any) -> Any:
    """Return the lists' hashes from all their elements, in order; from a run of them at a time, as
    they can be as small as a bit."""
    counts = lengths.astype(np.int64)
    ends = np.cumsum(counts)
    starts, total = ends - counts, np.zeros(len(counts), np.uint64)
    for start in range(0, int(counts.sum()), _RUN):
        hashes = value_hashes(elements.slice(start, _RUN))
        firsts, lasts = (np.clip(place - start, 0, len(hashes)) for place in (starts, ends))
        places = np.arange(start + 1, start + 1 + len(hashes)) - np.repeat(starts, lasts - firsts)
        mixed = avalanche(hashes + places.astype(np.uint64) * P2)
        running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)))
        total += running[lasts] - running[firsts]
    return avalanche(total + counts.astype(np.uint64) * P3 + P4)


def _of_structs(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> Any:
    total = np.full(count, P4)
    for name, column in zip(names, columns, strict=True):
        total += value_hashes(column) * _column_key(name)
    return avalanche(total)


def _of_bytes(values: pa.Array) -> Any:
    if not (pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
        # Large, view, and fixed-size kinds; a batch below 2 GiB has 32-bit offsets enough.
        text = pa.types.is_large_string(values.type)
        values = values.cast(pa.large_binary()) if text else values
        values = values.cast(pa.binary())
    count = len(values)
    if count == 0:
        return np.empty(0, np.uint64)
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + count + 1]
    return _of_text(offsets, np.frombuffer(data_buffer or b"", np.uint8))


def _of_text(offsets: Any, data: Any) -> Any:
    """Return the hash of the bytes between any two successive offsets."""
    hashes = np.empty(len(offsets) - 1, np.uint32)
    _bytes_hash()(offsets, data if len(data) else np.zeros(1, np.uint8), hashes)
    products = np.multiply(offsets[1:] - offsets[:-1], P3, dtype=np.uint64, casting="unsafe")
    products += hashes
    return products


# --- the hash of bytes


@functools.cache
def _bytes_hash() -> _BytesHash:
    """Return pyarrow's function if it is there and computes the right hashes, else numpy's."""
    native = _native()
    if native is None:
        log.info("pyarrow %s has no function for hashes of bytes; numpy does it", pa.__version__)
        return numpy_bytes_hash
    rng = np.random.default_rng(20)
    lengths = np.array([*range(100), 0, 1000, 5], np.int32)
    offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)))
    data = rng.integers(0, 256, int(offsets[-1]), np.uint8)
    expected, hashed = np.empty(len(lengths), np.uint32), np.empty(len(lengths), np.uint32)
    numpy_bytes_hash(offsets, data, expected)
    native(offsets, data, hashed)
    if (expected != hashed).any():
        log.info("pyarrow %s computes other hashes of bytes; numpy does it", pa.__version__)
        return numpy_bytes_hash
    return native


def _native() -> _BytesHash | None:
    """Return Arrow's ``Hashing32::HashVarLen``: no public function, so nothing is taken for granted
    of it."""
    if os.name != "posix":
        return None
    vectors = _AVX2 if pa.runtime_info().simd_level in ("avx2", "avx512") else 0
    for path in sorted(Path(pa.__file__).parent.glob("libarrow*")):
        if not path.name.startswith(("libarrow_compute.", "libarrow.")):
            continue
        for symbol in _SYMBOLS:
            try:
                function = ctypes.CDLL(str(path))[symbol]
            except (OSError, AttributeError):
                continue
            pointers = [ctypes.c_void_p] * 4
            function.argtypes = [ctypes.c_int64, ctypes.c_bool, ctypes.c_uint32, *pointers]
            function.restype = None

            def hash_all(offsets: Any, data: Any, out: Any, call: Any = function) -> None:
                addresses = (array.ctypes.data for array in (offsets, data, out))
                call(vectors, False, len(out), *addresses, None)

            return hash_all
    return None


def numpy_bytes_hash(offsets: Any, data: Any, out: Any) -> None:
    """Hash the bytes between any two successive offsets into `out`, stripe by stripe."""
    lengths = (offsets[1:] - offsets[:-1]).astype(np.int64)
    starts = offsets[:-1].astype(np.int64) - offsets[0]
    # `data` may be that of a whole batch, and the offsets those of a slice.
    padded = np.concatenate((data[offsets[0] : offsets[-1]], np.zeros(_STRIPE, np.uint8)))
    words = np.ndarray((len(padded) - 3,), "<u4", buffer=padded, strides=(1,))
    lanes = [np.full(len(out), number) for number in _LANES]
    stripes = np.maximum(-(-lengths // _STRIPE), 1)
    for number in range(int(stripes.max(initial=0))):
        rows = np.flatnonzero(stripes > number)
        for lane, state in enumerate(lanes):
            at = number * _STRIPE + 4 * lane
            left = np.clip(lengths[rows] - at, 0, 4)
            place = np.minimum(starts[rows] + at, len(words) - 1)
            state[rows] = _rotated(state[rows] + (words[place] & _WORD_MASKS[left]) * Q2, 13) * Q1
    x = np.zeros(len(out), np.uint32)
    for state, turn in zip(lanes, (1, 7, 12, 18), strict=True):
        x += _rotated(state, turn)
    x ^= x >> np.uint32(15)
    x *= Q2
    x ^= x >> np.uint32(13)
    x *= Q3
    out[:] = x ^ (x >> np.uint32(16))


_LANES = tuple(np.uint32(n % 2**32) for n in (int(Q1) + int(Q2), int(Q2), 0, -int(Q1)))
_WORD_MASKS = np.array([2 ** (8 * n) - 1 for n in range(5)], np.uint32)


def _rotated(x: Any, bits: int) -> Any:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))
