"""The hash of a row: as docs/FORMAT.md defines it, by whatever function, for every layout.

How: `by_the_book` is FORMAT's definition, value by value in Python's own integers; Arrow batches of
many types, sliced and with nulls, are hashed by it and by the code.
"""

from __future__ import annotations

import datetime
import random
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seamark.checkpoint import row_hash
from seamark.checkpoint.row_hash import RowSums, row_hashes, sums, value_hashes

M = 2**64
P2, P3 = 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def avalanche(x: int) -> int:
    x ^= x >> 33
    x = x * P2 % M
    x ^= x >> 29
    x = x * P3 % M
    return x ^ x >> 32


def of_bytes(data: bytes) -> int:
    m, q1, q2, q3 = 2**32, 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D

    def rotated(x: int, bits: int) -> int:
        return (x << bits | x >> (32 - bits)) % m

    lanes = [(q1 + q2) % m, q2, 0, -q1 % m]
    stripes = max(-(-len(data) // 16), 1)
    padded = data.ljust(16 * stripes, b"\0")
    for at in range(0, len(padded), 4):
        lane, word = at // 4 % 4, int.from_bytes(padded[at : at + 4], "little")
        lanes[lane] = rotated((lanes[lane] + word * q2) % m, 13) * q1 % m
    x = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) % m
    x ^= x >> 15
    x = x * q2 % m
    x ^= x >> 13
    x = x * q3 % m
    x ^= x >> 16
    return (x + len(data) * P3) % M


def of_name(name: str) -> int:
    return avalanche(of_bytes(name.encode())) | 1


def of_number(bits: int) -> int:
    return avalanche(bits % M ^ P5)


def by_the_book(value: Any, scale: int = 0) -> int:
    if value is None:
        return P5
    if isinstance(value, bool | int):
        return of_number(int(value))
    if isinstance(value, float):
        value = float("nan") if value != value else value + 0.0
        return of_number(int.from_bytes(np.float64(value).tobytes(), "little"))
    if isinstance(value, Decimal):
        whole = int(value.scaleb(scale)) % 2**128
        return avalanche((avalanche(whole % M ^ P5) + (whole >> 64) * P4 + scale) % M)
    if isinstance(value, str):
        return of_bytes(value.encode())
    if isinstance(value, bytes):
        return of_bytes(value)
    if isinstance(value, datetime.datetime):
        zone = datetime.timezone.utc
        since = value.replace(tzinfo=zone) - datetime.datetime(1970, 1, 1, tzinfo=zone)
        return of_number(since // datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.date):
        return of_number((value - datetime.date(1970, 1, 1)).days)
    if isinstance(value, dict):
        total = sum(by_the_book(v) * of_name(n) for n, v in value.items())
        return avalanche((P4 + total) % M)
    if value and isinstance(value[0], tuple):  # a map's entries
        value = [{"key": k, "value": v} for k, v in value]
    total = sum(avalanche((by_the_book(v) + (i + 1) * P2) % M) for i, v in enumerate(value))
    return avalanche((total + len(value) * P3 + P4) % M)


DAY = datetime.date(1969, 12, 30)
MOMENT = datetime.datetime(2026, 5, 4, 3, 2, 1, 123456)
VALUES: dict[str, tuple[list[Any], pa.DataType]] = {
    "bytes": ([b"", b"\0", b"a" * 31, b"b" * 32, b"c" * 33, b"d" * 200, None], pa.binary()),
    "text": (["", "a", None, "Straße", "x" * 64], pa.string()),
    "large text": (["", "a", None, "Straße", "x" * 64], pa.large_string()),
    "fixed": ([b"abcd", None, b"\0\0\0\0"], pa.binary(4)),
    "bool": ([True, None, False], pa.bool_()),
    "byte": ([1, None, -128], pa.int8()),
    "long": ([2**63 - 1, None, -(2**63)], pa.int64()),
    "unsigned": ([2**64 - 1, None, 0], pa.uint64()),
    "float": ([1.5, None, -0.0, float("nan"), float("inf")], pa.float32()),
    "double": ([0.1, None, -0.0, float("nan"), float("-inf")], pa.float64()),
    "date": ([DAY, None], pa.date32()),
    "timestamp": ([MOMENT, None], pa.timestamp("us", "UTC")),
    "local timestamp": ([MOMENT, None], pa.timestamp("us")),
    "list": ([[1, 2], None, [], [2, 1], [None]], pa.list_(pa.int32())),
    "nested": ([[["a"], []], None, [None, ["b", "c"]]], pa.list_(pa.list_(pa.string()))),
    "struct": (
        [{"a": 1, "b": "x"}, None, {"a": None, "b": ""}],
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
    ),
    "map": ([[("a", 1), ("b", None)], None, [], [("", 0)]], pa.map_(pa.string(), pa.int64())),
    "nothing": ([None, None], pa.null()),
}


@pytest.fixture(params=["pyarrow", "numpy"])
def function(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(row_hash, "_bytes_hash", lambda: row_hash.numpy_bytes_hash)


@pytest.mark.usefixtures("function")
@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_the_hash_of_the_format(name: str) -> None:
    values, kind = VALUES[name]
    column = pa.array(values, kind)
    expected = [by_the_book(value) for value in column.to_pylist()]
    assert value_hashes(column).tolist() == expected
    assert value_hashes(column[1:]).tolist() == expected[1:], "a slice"
    assert value_hashes(column[:0]).tolist() == []


@pytest.mark.parametrize("name", ["list", "nested", "map"])
def test_long_lists_are_hashed_a_run_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, kind = VALUES[name]
    column = pa.array([*values, *(3 * value for value in values if value)], kind)
    expected = [by_the_book(value) for value in column.to_pylist()]
    for run in range(1, 8):
        monkeypatch.setattr(row_hash, "_RUN", run)
        assert value_hashes(column).tolist() == expected
        assert value_hashes(column[2:]).tolist() == expected[2:], "a slice"


def test_lists_of_bits_take_no_memory_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    column = pa.array([[True] * 5_000_000])
    tracemalloc.start()
    value_hashes(column)
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()


def test_entries_below_a_null_map_count_for_nothing() -> None:
    whole = pa.array([[("a", 1)], [("b", 2)], [("c", 3)]], pa.map_(pa.string(), pa.int64()))
    valid, offsets = pa.py_buffer(b"\x05"), whole.buffers()[1]
    entries = pa.StructArray.from_arrays(
        [whole.keys, whole.items], fields=[whole.type.key_field, whole.type.item_field]
    )
    column = pa.Array.from_buffers(whole.type, 3, [valid, offsets], children=[entries])
    assert column.to_pylist() == [[("a", 1)], None, [("c", 3)]]
    assert value_hashes(column).tolist() == [by_the_book(value) for value in column.to_pylist()]


@pytest.mark.usefixtures("function")
@pytest.mark.parametrize("length", range(70))
def test_a_text_of_each_length(length: int) -> None:
    data = random.Random(length).randbytes(length)
    assert value_hashes(pa.array([b"", data, b""]))[1] == of_bytes(data)


def test_a_decimal_has_the_hash_of_its_digits_and_scale() -> None:
    values = [Decimal("1.50"), None, Decimal("-3.07"), Decimal("9" * 25)]
    column = pa.array(values, pa.decimal128(38, 2))
    expected = [by_the_book(value, 2) for value in values]
    assert value_hashes(column).tolist() == expected
    assert value_hashes(column[2:]).tolist() == expected[2:]


def test_a_row_is_its_columns_names_and_values_in_any_order() -> None:
    batch = pa.record_batch({"a": [1, 1], "b": ["x", None]})
    key = {name: of_name(name) for name in "ab"}
    expected = [
        avalanche((by_the_book(1) * key["a"] + by_the_book(text) * key["b"]) % M)
        for text in ("x", None)
    ]
    assert row_hashes(batch).tolist() == expected
    assert row_hashes(batch.select(["b", "a"])).tolist() == expected


def test_sums_show_values_that_changed_rows() -> None:
    """The columns' sums are the same, so a hash linear in the columns would not see it."""
    before = sums(row_hashes(pa.record_batch({"a": [1, 2], "b": ["x", "y"]})))
    after = sums(row_hashes(pa.record_batch({"a": [2, 1], "b": ["x", "y"]})))
    turned = sums(row_hashes(pa.record_batch({"a": [2, 1], "b": ["y", "x"]})))
    assert before != after
    assert before == turned


def test_sums_add_up_and_count_a_row_each_time() -> None:
    hashes = row_hashes(pa.record_batch({"a": list(range(1000))}))
    whole = sums(hashes)
    assert sums(hashes[:300]) + sums(hashes[300:]) == whole
    assert whole - sums(hashes[300:]) == sums(hashes[:300])
    assert sums(np.concatenate((hashes, hashes[:1], hashes[:1]))) != whole
    assert RowSums.of(whole.rows, whole.hash) == whole


@pytest.mark.parametrize("text", ["", "0" * 31, "g" * 32])
def test_a_damaged_hash_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hex|invalid"):
        RowSums.of(1, text)


def test_this_pyarrow_hashes_bytes_itself() -> None:
    """A change of pyarrow to a release without the function costs throughput: see
    docs/adr/0018-ledger.md."""
    native = row_hash._bytes_hash()
    assert native is not row_hash.numpy_bytes_hash
    rng = np.random.default_rng(3)
    lengths = np.concatenate((rng.integers(0, 40, 5000), np.full(3000, 16), [100_000]))
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    data = rng.integers(0, 256, int(offsets[-1]), np.uint8)
    found, expected = np.empty((2, len(lengths)), np.uint32)
    native(offsets, data, found)
    row_hash.numpy_bytes_hash(offsets, data, expected)
    assert (found == expected).all()
