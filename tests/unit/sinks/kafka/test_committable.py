"""The stored form of a committable: a written committable is read, and nothing else is."""

from __future__ import annotations

import json
import zlib

import pytest

from seamark.model.errors import CorruptRecordError
from seamark.sinks.kafka.committable import KafkaCommittable, dump, load

ONE = KafkaCommittable("p-job-0123456789ab-g1-0123456789ab-1", 42, 7, {"örders": {0: 5, 11: 6}})


def forged(**changes: object) -> bytes:
    """A record with a right checksum and wrong content."""
    content = {**json.loads(dump(ONE)), **changes}
    content.pop("crc32")
    text = json.dumps(content, separators=(",", ":")).encode()
    content["crc32"] = zlib.crc32(text)
    return json.dumps(content, separators=(",", ":")).encode()


def test_round_trip() -> None:
    assert load(dump(ONE)) == ONE
    assert ONE.handle == ONE.transactional_id
    assert load(forged()) == ONE


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"[]", b"null", b"\x80\x04N.", b"{",
        forged(producer_id="42"), forged(producer_epoch=-1), forged(producer_epoch=True),
        forged(rows=[]), forged(rows={"t": {"x": 1}}), forged(rows={"t": {"0": -1}}),
        forged(transactional_id=7), forged(extra=1), forged(transaction_version=None),
    ],
)  # fmt: skip
def test_anything_odd_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        load(data)


def test_a_newer_version_is_named() -> None:
    with pytest.raises(CorruptRecordError, match="version is 2 and this program reads 1"):
        load(forged(version=2))
