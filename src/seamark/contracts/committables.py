"""The bytes of a committable: a dataclass of texts, whole numbers and tuples of texts.

The format is ``<version> <CRC-32 in hex> <JSON>``, specified in docs/FORMAT.md. A sink's `dump` and
`load` may call these two functions, or keep a format of their own.
"""

import binascii
import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

from seamark.model.errors import CorruptRecordError

T = TypeVar("T")
_OTHERS = (
    "it is of another kind of sink that had this uid (declare that one once more, and let the job "
    "commit what it has decided), of a newer version of this one, or damaged"
)
_types: Callable[[type], dict[str, Any]] = functools.cache(get_type_hints)


def dump_committable(committable: Any, version: int = 1) -> bytes:
    """Serialise a dataclass with fields of ``str``, ``int`` or ``tuple[str, ...]``.

    `version` is the version of its fields.
    """
    fields = dataclasses.asdict(committable)
    body = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    return b"%d %08x %s" % (version, binascii.crc32(body), body)


def load_committable(kind: type[T], data: bytes, version: int = 1) -> T:
    """Read a `kind` from the bytes of `dump_committable`. A missing field has its default, so that
    a later release may add one.

    Raises CorruptRecordError for any other bytes, even with one bit altered.
    """
    written, _, rest = bytes(data).partition(b" ")
    checksum, _, body = rest.partition(b" ")
    if written != b"%d" % version:
        raise CorruptRecordError(
            f"{kind.__name__}: version {written[:20]!r}, this program reads {version}; {_OTHERS}"
        )
    if checksum != b"%08x" % binascii.crc32(body):
        raise CorruptRecordError(
            f"{kind.__name__}: checksum {checksum[:20]!r} does not match its {len(body)} bytes; "
            "the record is damaged"
        )
    fields, wanted = json.loads(body), _types(kind)
    values = {name: getattr(kind, name) for name in wanted if hasattr(kind, name)}
    values |= {n: _value(v) for n, v in fields.items()} if isinstance(fields, dict) else {}
    if values.keys() != wanted.keys() or not all(_fits(values[n], wanted[n]) for n in wanted):
        raise CorruptRecordError(f"{kind.__name__}: unexpected fields {fields!r}; {_OTHERS}")
    return kind(**values)


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _fits(value: Any, wanted: Any) -> bool:
    if wanted == tuple[str, ...]:
        return type(value) is tuple and all(type(part) is str for part in value)
    return type(value) is wanted
