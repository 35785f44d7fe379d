"""The committable of the PostgreSQL sink: one prepared transaction or one stage table.

It says all that ending it needs, so that a job whose `mode`, `table` or `keys` were changed between
two runs still ends what was left as it was begun. It never holds how to connect.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from seamark.contracts.committables import load_committable
from seamark.contracts.sink import WriterContext
from seamark.model.errors import CorruptRecordError

VERSION = 1
UNKNOWN_ROWS = -1
LONGEST_GID_BYTES = 199
_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,40}")
_GID = re.compile(r"seamark:[^:]+:[^:]+:g(\d+):e(\d+):p(\d+):a(\d+):x(\d+)")


@dataclass(frozen=True)
class PostgresCommittable:
    """One transaction. `rows` is `UNKNOWN_ROWS` for one that was found by listing.

    Prepared: `handle` is its gid and `xid` its 64-bit transaction id, never used twice by a
    cluster; the rest is empty. Staged: `handle` is the ledger's; the stage table, the table
    `target` and the ledger are in the schema `place`; `keys` are the target's columns by which rows
    are merged, none if they are appended.
    """

    handle: str
    job_id: str
    sink_uid: str
    generation: int
    epoch: int
    rows: int
    xid: int = 0
    place: str = ""
    stage: str = ""
    target: str = ""
    keys: tuple[str, ...] = ()

    @property
    def prepared(self) -> bool:
        """Whether it is a prepared transaction."""
        return not self.stage


def gid_prefix(job_id: str, sink_uid: str) -> str:
    """Return what every gid of one job's sink begins with, and no other's."""
    return f"seamark:{_token(job_id)}:{_token(sink_uid)}:"


def gid(context: WriterContext, xid: int) -> str:
    """Return the gid of the transaction `xid` of this attempt: unique, as the xid is."""
    return (
        f"{gid_prefix(context.job_id, context.sink_uid)}g{context.generation}:e{context.epoch}"
        f":p{context.partition_id}:a{context.attempt}:x{xid}"
    )


def from_gid(text: str, job_id: str, sink_uid: str) -> PostgresCommittable | None:
    """Return the committable that a gid of this job's sink names; None for any other text."""
    found = _GID.fullmatch(text)
    if found is None or not text.startswith(gid_prefix(job_id, sink_uid)):
        return None
    generation, epoch, _, _, xid = map(int, found.groups())
    return PostgresCommittable(text, job_id, sink_uid, generation, epoch, UNKNOWN_ROWS, xid)


def load(data: bytes) -> PostgresCommittable:
    """Read what `dump_committable` wrote of one; raises CorruptRecordError."""
    committable = load_committable(PostgresCommittable, data, VERSION)
    if committable.prepared != bool(committable.xid):
        raise CorruptRecordError(f"{committable} is neither a prepared transaction nor a stage")
    return committable


def _token(text: str) -> str:
    """Return `text` if a gid has room for it, else a digest of it."""
    if _TOKEN.fullmatch(text):
        return text
    return "sha256-" + hashlib.sha256(text.encode()).hexdigest()[:32]
