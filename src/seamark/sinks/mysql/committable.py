"""The committable: one prepared XA transaction or one filled stage table, and its stored form."""

from __future__ import annotations

from dataclasses import dataclass

from seamark.contracts.committables import load_committable
from seamark.model.errors import CorruptRecordError
from seamark.sinks.mysql.transaction_name import TransactionName, parse

VERSION = 1
UNKNOWN_ROWS = -1


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


def load(data: bytes) -> MySQLCommittable:
    """Read what `dump_committable` wrote of one; raises CorruptRecordError."""
    committable = load_committable(MySQLCommittable, data, VERSION)
    if committable.way not in ("xa", "stage") or parse(committable.handle) is None:
        raise CorruptRecordError(f"{committable} is neither an XA transaction nor a stage")
    return committable
