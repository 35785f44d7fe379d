"""One attempt's data files as a committable: its name, its fields, its bytes.

The handle, ``<job>/<sink>/<attempt's name>``, begins the paths of the attempt's records below
`pending_files.DIRECTORY`. The names of its data files contain the attempt's token too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from seamark.contracts.attempt_name import AttemptName
from seamark.model.errors import CorruptRecordError

STAGED = "_seamark/staged"
"""Where rows to be merged lie. Readers and VACUUM skip it, as every name with an underscore."""


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
class DeltaCommittable:
    """One attempt's durable data files, not yet named by any log entry.

    log_version: the outcome can only be in log entries from this version on.
    records: the number of the attempt's `pending_files`.
    files: a JSON object for each `DataFile`.

    A committable found by listing has no files and `UNKNOWN` rows.
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
        """The attempt's driver generation."""
        return parse(self.handle).generation

    @property
    def epoch(self) -> int:
        """The epoch of the rows."""
        return parse(self.handle).epoch

    @property
    def data_files(self) -> list[DataFile]:
        """The files, parsed from their JSON."""
        return [DataFile(**json.loads(text)) for text in self.files]

    @property
    def merged_by(self) -> tuple[tuple[str, ...], str]:
        """The keys and op of rows to be merged; no keys for files to be appended."""
        files = self.data_files
        return (tuple(files[0].keys), files[0].op) if files else ((), "")


def file_name(handle: str, number: int) -> str:
    """Return the name of the attempt's data file `number`. Names sort by epoch and are unique."""
    name = parse(handle)
    return f"part-{name.epoch:08d}-{name.partition:05d}-{name.token}-{number:03d}.parquet"


def dump_file(file: DataFile) -> str:
    """Return a file's JSON text for `DeltaCommittable.files`."""
    found = asdict(file)
    if not file.keys:
        del found["keys"], found["op"]
    return json.dumps(found, separators=(",", ":"), sort_keys=True)


def parse(handle: str) -> AttemptName:
    """Return a handle's attempt name. Raises CorruptRecordError for any other text, so a handle
    never leads out of its directory."""
    name = AttemptName.parse(handle)
    if name is None or name.owner.count("/") != 1:
        raise CorruptRecordError(f"{handle!r} is not a handle of Delta data files")
    return name
