"""The bytes of a simple committable: a dataclass whose fields are texts and whole numbers.

The format is ``<version> <CRC-32 in hex> <JSON>``; docs/FORMAT.md specifies it. A sink's `dump` and
`load` may call these two, or keep a format of their own.
"""

from __future__ import annotations

import binascii
import dataclasses
import json
from typing import Any, TypeVar, get_type_hints

from tidemark.model.errors import CorruptRecordError

T = TypeVar("T")


def dump_committable(committable: Any, version: int = 1) -> bytes:
    """Serialise a dataclass whose fields are str or int; `version` is that of its fields."""
    fields = dataclasses.asdict(committable)
    body = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    return b"%d %08x %s" % (version, binascii.crc32(body), body)


def load_committable(kind: type[T], data: bytes, version: int = 1) -> T:
    """Read what `dump_committable` wrote of a `kind`; raises CorruptRecordError for anything else,
    one altered bit included."""
    found, _, rest = bytes(data).partition(b" ")
    checksum, _, body = rest.partition(b" ")
    if found != b"%d" % version:
        raise CorruptRecordError(
            f"{kind.__name__}: version {found[:20]!r}, this program reads {version}; it is damaged "
            "or from a newer version of the sink"
        )
    if checksum != b"%08x" % binascii.crc32(body):
        raise CorruptRecordError(
            f"{kind.__name__}: checksum {checksum[:20]!r} does not match its {len(body)} bytes; "
            "the record is damaged"
        )
    fields = json.loads(body)
    if {key: type(value) for key, value in fields.items()} != get_type_hints(kind):
        raise CorruptRecordError(f"{kind.__name__}: unexpected fields {fields!r}")
    return kind(**fields)
