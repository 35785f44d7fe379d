"""One attempt's data files in a table's directory as a committable: its name, its fields.

The handle, ``<job>/<sink>/<attempt's name>``, is in the paths of the attempt's records below
`pending_files.DIRECTORY`. The names of its data files contain the attempt's token too.
"""

import json
from dataclasses import dataclass

from seamark.contracts.attempt_name import AttemptName
from seamark.model.errors import CorruptRecordError

STAGED = "_seamark/staged"
"""Where rows to be merged lie, below the table's directory. Readers and the table's maintenance
skip it, as every name with an underscore."""


@dataclass(frozen=True)
class TableCommittable:
    """One attempt's durable data files, not yet named by the table.

    log_version: the outcome can only be in the table's versions after this one.
    records: the number of the attempt's `pending_files`.
    files: a JSON object for each file, with its `path` below the table's directory and its
        `size_bytes`; for rows to be merged also the `keys` and the column `op` ("" is none).

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
    def table(self) -> str:
        """The table's id, where several tables may lie in one directory; else ""."""
        return ""

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each file, by its path."""
        files = [json.loads(text) for text in self.files]
        return {file["path"]: file["size_bytes"] for file in files}

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(self.sizes.values())

    @property
    def merged_by(self) -> tuple[tuple[str, ...], str]:
        """The keys and op of rows to be merged; no keys for files to be appended."""
        first = json.loads(self.files[0]) if self.files else {}
        return tuple(first.get("keys", ())), first.get("op", "")


def dump_file(file: object) -> str:
    """Return a file's JSON text for `TableCommittable.files`."""
    return json.dumps(file, separators=(",", ":"), sort_keys=True)


def file_name(handle: str, number: int) -> str:
    """Return the name of the attempt's data file `number`. Names sort by epoch and are unique."""
    name = parse(handle)
    return f"part-{name.epoch:08d}-{name.partition:05d}-{name.token}-{number:03d}.parquet"


def parse(handle: str) -> AttemptName:
    """Return a handle's attempt name. Raises CorruptRecordError for any other text, so a handle
    never leads out of its directory."""
    name = AttemptName.parse(handle)
    if name is None or name.owner.count("/") != 1:
        raise CorruptRecordError(f"{handle!r} is not a handle of a table's data files")
    return name
