"""The partitioner against the values of Java's own tests, and against murmur2 written plainly."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from seamark.sinks.kafka.partitioner import LONGEST_KEY, Partitioner, layout, murmur2


def plain_murmur2(key: bytes) -> int:
    """Kafka's `Utils.murmur2`, line by line."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    for i in range(0, len(key) - len(key) % 4, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if rest := key[len(key) - len(key) % 4 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def hashed(keys: list[bytes]) -> list[int]:
    starts, lengths, data = layout(pa.array(keys, pa.binary()))
    return [int(h) for h in murmur2(np.append(data, np.zeros(4, np.uint8)), starts, lengths)]


@pytest.mark.parametrize(
    ("key", "expected"),  # from Kafka's UtilsTest
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert hashed([key]) == [expected % 2**32]


def test_keys_of_all_lengths_in_one_batch() -> None:
    shuffle = random.Random(1)
    keys = [shuffle.randbytes(shuffle.randrange(70)) for _ in range(3000)]
    assert hashed(keys) == [plain_murmur2(key) for key in keys]


def test_slices_nulls_and_large_offsets() -> None:
    keys = [b"skipped", b"one", None, b"", b"three", b"skipped too"]
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array(keys, kind).slice(1, 4)
        found = Partitioner(5, range(5)).of(array)
        assert found is not None
        for key, partition in zip(array.to_pylist(), found, strict=True):
            if key is None:
                assert 0 <= partition < 5
            else:
                assert partition == (plain_murmur2(key) & 0x7FFFFFFF) % 5


def test_rows_without_a_key_are_spread_evenly_in_runs_over_partitions_that_have_a_leader() -> None:
    partitioner = Partitioner(8, [0, 2, 5])
    found = partitioner.of(pa.nulls(30_000, pa.binary()))
    assert found is not None
    counts = {int(p): int((found == p).sum()) for p in np.unique(found)}
    assert counts == {0: 10_000, 2: 10_000, 5: 10_000}
    assert np.count_nonzero(np.diff(found)) == 2
    # Small batches go whole to one partition each, and in turn.
    small = [partitioner.of(pa.nulls(10, pa.binary())) for _ in range(6)]
    assert all(some is not None and len(set(some.tolist())) == 1 for some in small)
    assert len({int(some[0]) for some in small if some is not None}) == 3


def test_very_long_keys_are_left_to_librdkafka() -> None:
    keys = pa.array([b"short", b"x" * (LONGEST_KEY + 1)], pa.binary())
    assert Partitioner(3, range(3)).of(keys) is None
