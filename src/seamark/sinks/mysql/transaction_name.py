"""The name of one attempt's transaction: carries job, sink, generation and attempt.

It is the xid (`gtrid`, `bqual`: at most 64 bytes each) in XA mode and a stage table's comment
otherwise. The stage table's own name says which sink it belongs to, so that it is found quickly.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass

from seamark.contracts.sink import WriterContext

FORMAT_ID = 0x736D01
"""The xid's format id: ``sm``, version 1."""
STAGE_PREFIX = "_seamark_stage_"

_JOB = re.compile(r"[A-Za-z0-9]{1,32}")
_OWNER = re.compile(r"seamark/[A-Za-z0-9]{1,32}/[0-9a-f]{16}")
_BRANCH = re.compile(r"g(\d{1,9})-e(\d{1,12})-p(\d{1,7})-a(\d{1,12})-([0-9a-f]{16})")


@dataclass(frozen=True)
class TransactionName:
    """`owner` is the same for all transactions of one job's sink; `branch` is the attempt's."""

    owner: str
    branch: str

    def __post_init__(self) -> None:
        if not _OWNER.fullmatch(self.owner) or not _BRANCH.fullmatch(self.branch):
            raise ValueError(f"{self.owner!r}, {self.branch!r} is no transaction of Seamark's")

    def __str__(self) -> str:
        return f"{self.owner}/{self.branch}"

    @property
    def generation(self) -> int:
        """The driver's generation."""
        return int(self._part(1))

    @property
    def epoch(self) -> int:
        """The epoch."""
        return int(self._part(2))

    @property
    def xid(self) -> str:
        """The xid as SQL."""
        return f"'{self.owner}','{self.branch}',{FORMAT_ID}"

    @property
    def stage_table(self) -> str:
        """The name of the stage table."""
        return stage_prefix(self.owner) + self._part(5)

    def _part(self, number: int) -> str:
        found = _BRANCH.fullmatch(self.branch)
        assert found is not None
        return found[number]


def owner_of(job_id: str, sink_uid: str) -> str:
    """Return what every transaction of this job's sink begins with."""
    job = job_id if _JOB.fullmatch(job_id) else _digest(job_id, 32)
    return f"seamark/{job}/{_digest(sink_uid, 16)}"


def new_name(context: WriterContext) -> TransactionName:
    """Return a name that no other attempt has, nor this one a second time."""
    at = context
    branch = (
        f"g{at.generation}-e{at.epoch}-p{at.partition_id}-a{at.attempt}-{uuid.uuid4().hex[:16]}"
    )
    return TransactionName(owner_of(at.job_id, at.sink_uid), branch)


def parse(text: str) -> TransactionName | None:
    """Return the name that `text` is, None if it is something else."""
    owner, _, branch = text.rpartition("/")
    try:
        return TransactionName(owner, branch)
    except ValueError:
        return None


def from_xid(format_id: int, gtrid_length: int, data: bytes) -> TransactionName | None:
    """Return the name in a row of XA RECOVER; None for another program's, whose ids may be any
    bytes."""
    if format_id != FORMAT_ID:
        return None
    try:
        text = data.decode("ascii")
        return TransactionName(text[:gtrid_length], text[gtrid_length:])
    except ValueError:
        return None


def stage_prefix(owner: str) -> str:
    """Return what the names of the owner's stage tables begin with."""
    return f"{STAGE_PREFIX}{_digest(owner, 16)}_"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
