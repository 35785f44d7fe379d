"""The bytes of committables: a written committable is read, and nothing else is."""

from __future__ import annotations

import binascii
from dataclasses import dataclass

import pytest

from seamark.contracts.committables import dump_committable, load_committable
from seamark.model.errors import CorruptRecordError


@dataclass(frozen=True)
class Hold:
    handle: str
    rows: int
    keys: tuple[str, ...] = ()


ONE = Hold("hölds/1", -1, ("id", "day"))


def with_checksum(body: bytes) -> bytes:
    return b"1 %08x %s" % (binascii.crc32(body), body)


@pytest.mark.parametrize("one", [ONE, Hold("", 2**63)])
def test_what_is_written_is_read(one: Hold) -> None:
    assert load_committable(Hold, dump_committable(one)) == one


def test_the_bytes_are_those_of_the_stored_format() -> None:
    body = b'{"handle":"h","keys":["id"],"rows":3}'
    assert dump_committable(Hold("h", 3, ("id",))) == with_checksum(body)


def test_a_field_added_later_has_its_default_in_older_bytes() -> None:
    assert load_committable(Hold, with_checksum(b'{"handle":"h","rows":3}')) == Hold("h", 3)


@pytest.mark.parametrize(
    "body",
    [
        b'{"handle":"h","keys":[]}',
        b'{"handle":"h","keys":[],"rows":3,"more":1}',
        b'{"handle":"h","keys":[],"rows":"3"}',
        b'{"handle":"h","keys":[],"rows":true}',
        b'{"handle":"h","keys":[1],"rows":3}',
        b'{"handle":"h","keys":"id","rows":3}',
        b'{"handle":["h"],"keys":[],"rows":3}',
        b"[]",
    ],
)
def test_other_fields_are_refused(body: bytes) -> None:
    with pytest.raises(CorruptRecordError, match=r"Hold: unexpected fields .*another kind of sink"):
        load_committable(Hold, with_checksum(body))


def test_another_version_is_named() -> None:
    with pytest.raises(
        CorruptRecordError, match=r"Hold: version b'2', this program reads 1; .*of sink"
    ):
        load_committable(Hold, dump_committable(ONE, 2))
