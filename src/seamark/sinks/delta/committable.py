"""One attempt's data files as a committable: its name, its fields, its bytes.

The handle, ``<job>/<sink>/<attempt's name>``, is the path of the attempt's record below
`pending_files.DIRECTORY`; the name's token is in the names of its data files too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from seamark.contracts.attempt_name import AttemptName
from seamark.model.errors import CorruptRecordError


@dataclass(frozen=True)
class DataFile:
    """One Parquet file: what an ``add`` action of the log says of it.

    path: below the table's directory, not encoded. partition_values: by column; None is null.
    statistics: the JSON text of the Delta protocol's per-file statistics.
    """

    path: str
    size_bytes: int
    partition_values: Mapping[str, str | None]
    statistics: str
    modified_ms: int


@dataclass(frozen=True)
class DeltaCommittable:
    """One attempt's durable data files, which no log entry names yet.

    What becomes of it can only stand in log entries from `log_version` on. `records` is how many
    `pending_files` it has. `files` holds a JSON object for each `DataFile`. One that was found by
    listing has no files and `UNKNOWN` rows.
    """

    handle: str
    log_version: int
    records: int
    rows: int
    files: tuple[str, ...]

    def __post_init__(self) -> None:
        parse(self.handle)

    @property
    def generation(self) -> int:
        """The driver that the attempt was made under."""
        return parse(self.handle).generation

    @property
    def epoch(self) -> int:
        """The epoch that the rows belong to."""
        return parse(self.handle).epoch

    @property
    def data_files(self) -> list[DataFile]:
        """The files, read from their JSON."""
        return [DataFile(**json.loads(text)) for text in self.files]


def file_name(handle: str, number: int) -> str:
    """Return the name of the attempt's data file `number`; it sorts by epoch, and no other file
    ever has it."""
    name = parse(handle)
    return f"part-{name.epoch:08d}-{name.partition:05d}-{name.token}-{number:03d}.parquet"


def dump_file(file: DataFile) -> str:
    """Return the JSON text that `DeltaCommittable.files` holds."""
    return json.dumps(asdict(file), separators=(",", ":"), sort_keys=True)


def parse(handle: str) -> AttemptName:
    """Return the name that a handle is, which never leads out of the directory it is below; raises
    CorruptRecordError for any other text."""
    name = AttemptName.parse(handle)
    if name is None or name.owner.count("/") != 1:
        raise CorruptRecordError(f"{handle!r} is not a handle of Delta data files")
    return name
