"""One attempt's transaction (prepared XA, or a filled stage table): its name, and its committable.

In XA mode the name is the xid (`gtrid`, `bqual`: at most 64 bytes each); otherwise it is the stage
table's comment. The stage table's own name holds a digest of its sink, to be found quickly.
"""

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
    """Return the common start of the names of this job's sink's transactions."""
    job = job_id if _JOB.fullmatch(job_id) else digest(job_id, 32)
    return f"seamark/{job}/{digest(sink_uid, 16)}"


def new_name(context: WriterContext) -> TransactionName:
    """Return a name never used by another attempt, nor by this one before."""
    owner = owner_of(context.job_id, context.sink_uid)
    return TransactionName.of(context, owner, random_token(16))


def parse(text: str) -> TransactionName | None:
    """Return the name written as `text`, None for any other text."""
    try:
        return TransactionName.parse(text)
    except ValueError:
        return None


def from_xid(format_id: int, gtrid_length: int, data: bytes) -> TransactionName | None:
    """Return the name in a row of XA RECOVER; None for others' xids, which may hold any bytes."""
    if format_id != FORMAT_ID or not data.isascii():
        return None
    text = data.decode("ascii")
    return parse(f"{text[:gtrid_length]}/{text[gtrid_length:]}")


def stage_prefix(owner: str) -> str:
    """Return the common start of the names of the owner's stage tables."""
    return f"{STAGE_PREFIX}{digest(owner, 16)}_"


@dataclass(frozen=True)
class MySQLCommittable:
    """`way` is ``xa`` or ``stage``; both kinds can be ended whatever the sink's current mode.

    A stage's rows go into `columns` of `table`; `types` are their Spark types, none in an older
    release's. With `keys`, a row replaces the row with the same keys. A committable found by
    listing has `UNKNOWN_ROWS` as `rows`, and its other fields are empty.
    """

    handle: str
    way: str
    database: str
    table: str = ""
    columns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    rows: int = UNKNOWN_ROWS
    types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.way not in ("xa", "stage") or parse(self.handle) is None:
            raise CorruptRecordError(f"{self} is neither an XA transaction nor a stage")

    @property
    def name(self) -> TransactionName:
        """The transaction's name, parsed from the handle."""
        name = parse(self.handle)
        assert name is not None, self.handle
        return name
