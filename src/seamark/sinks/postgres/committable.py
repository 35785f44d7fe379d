"""The committable of the PostgreSQL sink: one prepared transaction or one stage table.

It says all that ending it needs, so that a job whose `mode`, `table` or `keys` were changed between
two runs still ends what was left as it was begun. It never holds how to connect.
"""

from __future__ import annotations

from dataclasses import dataclass

from seamark.contracts.attempt_name import AttemptName, plain
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.errors import CorruptRecordError
from seamark.sinks.internal.committables import AttemptCommittable

LONGEST_GID_BYTES = 199


@dataclass(frozen=True)
class PostgresCommittable(AttemptCommittable):
    """One transaction.

    Prepared: `handle` is its gid and `xid` its 64-bit transaction id, never used twice by a
    cluster; the rest is empty. Staged: `handle` is the ledger's; the stage table, the table
    `target` and the ledger are in the schema `place`; `keys` are the target's columns by which rows
    are merged, none if they are appended.
    """

    xid: int = 0
    place: str = ""
    stage: str = ""
    target: str = ""
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.prepared != bool(self.xid):
            raise CorruptRecordError(f"{self} is neither a prepared transaction nor a stage")

    @property
    def prepared(self) -> bool:
        """Whether it is a prepared transaction."""
        return not self.stage


def gid_prefix(context: SinkContext | WriterContext) -> str:
    """Return what every gid of one job's sink begins with, and no other's."""
    return f"seamark:{plain(context.job_id, 40, 32)}:{plain(context.sink_uid, 40, 32)}:"


def gid(context: WriterContext, token: str) -> str:
    """Return the gid of this attempt's transaction: unique, as the token is, which for a prepared
    one is ``x`` and its 64-bit id, and for a stage ``s`` and random digits."""
    return gid_prefix(context) + AttemptName.of(context, token=token).encoded(":")


def from_gid(text: str, context: SinkContext) -> PostgresCommittable | None:
    """Return the committable that a gid of this job's sink names; None for any other text."""
    name = AttemptName.parse(text)
    if name is None or name.token[0] != "x" or not text.startswith(gid_prefix(context)):
        return None
    return PostgresCommittable.found(context, text, name, xid=int(name.token[1:]))
