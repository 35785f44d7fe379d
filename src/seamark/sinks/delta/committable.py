"""One attempt's data files as a committable, and a file's facts for the log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from seamark.sinks.internal import table_committable
from seamark.sinks.internal.table_committable import TableCommittable

LOG = "_delta_log"


@dataclass(frozen=True)
class DataFile:
    """One Parquet file, as described by an ``add`` action of the log.

    path: below the table's directory, not encoded.
    partition_values: by column; None is null.
    statistics: the JSON text of the Delta protocol's per-file statistics.
    keys, op: of rows to be merged, which the log never names: the key columns, and the column that
        says what a row does ("" is none). Without keys the file is appended.
    """

    path: str
    size_bytes: int
    partition_values: Mapping[str, str | None]
    statistics: str
    modified_ms: int
    keys: Sequence[str] = ()
    op: str = ""


@dataclass(frozen=True)
class DeltaCommittable(TableCommittable):
    """One attempt's durable data files, not yet named by any log entry: `log_version` is the
    table's own."""

    @property
    def data_files(self) -> list[DataFile]:
        """The files, parsed from their JSON."""
        return [DataFile(**json.loads(text)) for text in self.files]


def dump_file(file: DataFile) -> str:
    """Return a file's JSON text for `DeltaCommittable.files`."""
    facts = asdict(file)
    if not file.keys:
        del facts["keys"], facts["op"]
    return table_committable.dump_file(facts)
