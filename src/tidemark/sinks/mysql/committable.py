"""The committable: one prepared XA transaction or one filled stage table, and its stored form."""

from __future__ import annotations

import binascii
import json
from dataclasses import asdict, dataclass

from tidemark.model.errors import CorruptRecordError
from tidemark.sinks.mysql.transaction_name import TransactionName, parse

VERSION = 1
UNKNOWN_ROWS = -1
_FIELDS = {
    "handle": str, "way": str, "database": str, "table": str, "columns": list, "keys": list,
    "rows": int,
}  # fmt: skip


@dataclass(frozen=True)
class MySQLCommittable:
    """`way` is ``xa`` or ``stage``; both kinds can be ended whatever the sink's mode is now.

    A stage's rows go into `columns` of `table`, as they are or, if there are `keys`, over the row
    with the same ones. `rows` is `UNKNOWN_ROWS`, and the rest empty, for one found by listing.
    """

    handle: str
    way: str
    database: str
    table: str = ""
    columns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    rows: int = UNKNOWN_ROWS

    @property
    def name(self) -> TransactionName:
        """The transaction's name, which the handle is."""
        name = parse(self.handle)
        assert name is not None, self.handle
        return name


def dump(committable: MySQLCommittable) -> bytes:
    """Serialise as ``<version> <CRC-32 in hex> <JSON>``."""
    body = json.dumps(asdict(committable), separators=(",", ":"), sort_keys=True).encode()
    return b"%d %08x %s" % (VERSION, binascii.crc32(body), body)


def load(data: bytes) -> MySQLCommittable:
    """Read what `dump` wrote; raises CorruptRecordError."""
    version, _, rest = bytes(data).partition(b" ")
    checksum, _, body = rest.partition(b" ")
    if version != b"%d" % VERSION:
        raise CorruptRecordError(
            f"MySQL committable: version {version[:20]!r}, this Tidemark reads {VERSION}; it is "
            "damaged or from a newer Tidemark"
        )
    if checksum != b"%08x" % binascii.crc32(body):
        raise CorruptRecordError(
            f"MySQL committable: checksum {checksum[:20]!r} does not match its {len(body)} bytes; "
            "the record is damaged"
        )
    fields = json.loads(body)
    found = {k: type(v) for k, v in fields.items()} if isinstance(fields, dict) else None
    if found != _FIELDS or fields["way"] not in ("xa", "stage") or parse(fields["handle"]) is None:
        raise CorruptRecordError(f"MySQL committable: unexpected fields {fields!r}")
    lists = {name: tuple(fields[name]) for name in ("columns", "keys")}
    return MySQLCommittable(**{**fields, **lists})
