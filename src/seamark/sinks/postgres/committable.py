"""The committable of the PostgreSQL sink: one prepared transaction or one stage table.

It holds everything needed to end the transaction. So a job still ends old transactions as they were
begun after its `mode`, `table` or `keys` were changed between two runs. It never holds connection
settings.
"""

from dataclasses import dataclass

from seamark.contracts.attempt_name import AttemptName, plain
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.errors import CorruptRecordError
from seamark.sinks.internal.committables import AttemptCommittable


@dataclass(frozen=True)
class PostgresCommittable(AttemptCommittable):
    """One transaction.

    Prepared: `handle` is its gid and `xid` its 64-bit transaction id, used once in the history of
    `system` and `timeline` (0: not known, of a listed one or an older release's); the other fields
    are empty. Staged: `handle` is its key in the ledger; the stage table,
    the table `target` and the ledger are in the schema `place`. `keys` are the target's columns for
    merging rows; without them rows are appended.
    """

    xid: int = 0
    place: str = ""
    stage: str = ""
    target: str = ""
    keys: tuple[str, ...] = ()
    system: int = 0
    timeline: int = 0

    def __post_init__(self) -> None:
        if self.prepared != bool(self.xid):
            raise CorruptRecordError(f"{self} is neither a prepared transaction nor a stage")

    @property
    def prepared(self) -> bool:
        """Whether it is a prepared transaction."""
        return not self.stage


def gid_prefix(context: SinkContext | WriterContext) -> str:
    """Return the common start of one job's sink's gids; no other sink has it."""
    return f"seamark:{plain(context.job_id, 40, 32)}:{plain(context.sink_uid, 40, 32)}:"


def gid(context: WriterContext, token: str) -> str:
    """Return the gid of this attempt's transaction. It is unique because its token is: ``x`` and
    the 64-bit transaction id if prepared, ``s`` and random digits for a stage."""
    return gid_prefix(context) + AttemptName.of(context, token=token).encoded(":")


def from_gid(text: str, context: SinkContext) -> PostgresCommittable | None:
    """Return the committable for a gid of this job's sink; None for any other text."""
    name = AttemptName.parse(text)
    if name is None or name.token[0] != "x" or not text.startswith(gid_prefix(context)):
        return None
    return PostgresCommittable.found(context, text, name, xid=int(name.token[1:]))
