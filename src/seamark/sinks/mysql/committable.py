"""One attempt's transaction: its name, which an xid and a table's comment can hold, and its
committable: one prepared XA transaction or one filled stage table.

The name is the xid (`gtrid`, `bqual`: at most 64 bytes each) in XA mode and a stage table's comment
otherwise. The stage table's own name says which sink it belongs to, so that it is found quickly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from seamark.contracts.attempt_name import AttemptName, digest, random_token
from seamark.contracts.sink import WriterContext
from seamark.model.errors import CorruptRecordError

FORMAT_ID = 0x736D01
"""The xid's format id: ``sm``, version 1."""
STAGE_PREFIX = "_seamark_stage_"
UNKNOWN_ROWS = -1

_JOB = re.compile(r"[A-Za-z0-9]{1,32}")
_OWNER = re.compile(r"seamark/[A-Za-z0-9]{1,32}/[0-9a-f]{16}")
_LONGEST = 64


@dataclass(frozen=True)
class TransactionName(AttemptName):
    """`owner` is the same for all transactions of one job's sink; `branch` is the attempt's."""

    def __post_init__(self) -> None:
        if not _OWNER.fullmatch(self.owner) or len(self.branch) > _LONGEST:
            raise ValueError(f"{self.owner!r}, {self.branch!r} is no transaction of Seamark's")

    @property
    def branch(self) -> str:
        """The name without its owner."""
        return self.encoded()

    @property
    def xid(self) -> str:
        """The xid as SQL."""
        return f"'{self.owner}','{self.branch}',{FORMAT_ID}"

    @property
    def stage_table(self) -> str:
        """The name of the stage table."""
        return stage_prefix(self.owner) + self.token


def owner_of(job_id: str, sink_uid: str) -> str:
    """Return what every transaction of this job's sink begins with."""
    job = job_id if _JOB.fullmatch(job_id) else digest(job_id, 32)
    return f"seamark/{job}/{digest(sink_uid, 16)}"


def new_name(context: WriterContext) -> TransactionName:
    """Return a name that no other attempt has, nor this one a second time."""
    owner = owner_of(context.job_id, context.sink_uid)
    return TransactionName.of(context, owner, random_token(16))


def parse(text: str) -> TransactionName | None:
    """Return the name that `text` is, None if it is something else."""
    try:
        return TransactionName.parse(text)
    except ValueError:
        return None


def from_xid(format_id: int, gtrid_length: int, data: bytes) -> TransactionName | None:
    """Return the name in a row of XA RECOVER; None for another program's, whose ids may be any
    bytes."""
    if format_id != FORMAT_ID or not data.isascii():
        return None
    text = data.decode("ascii")
    return parse(f"{text[:gtrid_length]}/{text[gtrid_length:]}")


def stage_prefix(owner: str) -> str:
    """Return what the names of the owner's stage tables begin with."""
    return f"{STAGE_PREFIX}{digest(owner, 16)}_"


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

    def __post_init__(self) -> None:
        if self.way not in ("xa", "stage") or parse(self.handle) is None:
            raise CorruptRecordError(f"{self} is neither an XA transaction nor a stage")

    @property
    def name(self) -> TransactionName:
        """The transaction's name, which the handle is."""
        name = parse(self.handle)
        assert name is not None, self.handle
        return name
