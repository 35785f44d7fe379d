"""The committable of `SqlSink`: one attempt's rows in a stage table.

It holds everything needed to move the rows. So a job still ends old transactions as they were begun
after its `mode`, `table` or `keys` were changed between two runs. It never holds the URL.
"""

from dataclasses import dataclass
from pathlib import Path

from seamark.contracts.attempt_name import AttemptName, plain
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.errors import CorruptRecordError
from seamark.sinks.internal.committables import AttemptCommittable

HANDLE, ROW = "_seamark_handle", "_seamark_row"
"""The stage's own columns: the transaction, and the order in which its rows came."""
LONGEST_HANDLE = 200
"""Characters: with four bytes each they fit into the keys of Firebird and MySQL."""


@dataclass(frozen=True)
class SqlCommittable(AttemptCommittable):
    """Rows of the table `stage` for `columns` of the table `target`, both in the schema `place` (""
    for the connection's own); of DuckDB, `stage` is the path of a file. `types` are the columns'
    Spark types, none in an older release's. With `keys` a row replaces
    that of its key; `op` is the stage's column that tells what a row does, "" if it has none."""

    place: str = ""
    stage: str = ""
    target: str = ""
    columns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    op: str = ""
    types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if AttemptName.parse(self.handle) is None or not self.stage:
            raise CorruptRecordError(f"{self!r} names no rows in a stage")

    @property
    def file(self) -> Path | None:
        """The file that is the stage, if it is no table."""
        return Path(self.stage) if self.stage.endswith(".parquet") else None

    @property
    def owner(self) -> str:
        """The common start of the handles of its job's sink."""
        return self.handle.rpartition("/")[0]


def owner_of(at: SinkContext | WriterContext) -> str:
    """Return the common start of the handles of one job's sink."""
    return f"{plain(at.job_id, 40, 32)}/{plain(at.sink_uid, 40, 32)}"
