"""One attempt's data files as a committable: its name, its fields, its bytes.

The handle, ``<job>/<sink>/g<generation>-e<epoch>-p<partition>-a<attempt>-<32 hex digits>``, is the
path of the attempt's record below `pending_files.DIRECTORY`; the digits are in the names of its
data files too.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from seamark.contracts.committables import load_committable
from seamark.contracts.sink import WriterContext
from seamark.model.errors import CorruptRecordError

VERSION = 1
UNKNOWN_ROWS = -1
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HANDLE = re.compile(
    r"([\w.-]+)/([\w.-]+)/g(?P<generation>\d+)-e(?P<epoch>\d+)-p(?P<partition>\d+)-a(?P<attempt>\d+)"
    r"-(?P<unique>[0-9a-f]{32})",
    re.ASCII,
)


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
    listing has no files and `UNKNOWN_ROWS`.
    """

    handle: str
    log_version: int
    records: int
    rows: int
    files: tuple[str, ...]

    @property
    def generation(self) -> int:
        """The driver that the attempt was made under."""
        return int(_parse(self.handle)["generation"])

    @property
    def epoch(self) -> int:
        """The epoch that the rows belong to."""
        return int(_parse(self.handle)["epoch"])

    @property
    def data_files(self) -> list[DataFile]:
        """The files, read from their JSON."""
        return [DataFile(**json.loads(text)) for text in self.files]


def new_handle(context: WriterContext) -> str:
    """Return a handle for this attempt that no other attempt has, nor this one a second time."""
    return (
        f"{owner(context.job_id, context.sink_uid)}/g{context.generation}-e{context.epoch}"
        f"-p{context.partition_id}-a{context.attempt}-{uuid.uuid4().hex}"
    )


def owner(job_id: str, sink_uid: str) -> str:
    """Return what the handles of one sink of one job begin with: two directory names."""
    return f"{_token(job_id)}/{_token(sink_uid)}"


def is_handle(text: str) -> bool:
    """Whether `text` is a handle; one never leads out of the directory it is below."""
    found = _HANDLE.fullmatch(text)
    return found is not None and all(_PLAIN.fullmatch(found[i]) for i in (1, 2))


def file_name(handle: str, number: int) -> str:
    """Return the name of the attempt's data file `number`; it sorts by epoch, and no other file
    ever has it."""
    parts = _parse(handle)
    return (
        f"part-{int(parts['epoch']):08d}-{int(parts['partition']):05d}-{parts['unique']}"
        f"-{number:03d}.parquet"
    )


def dump_file(file: DataFile) -> str:
    """Return the JSON text that `DeltaCommittable.files` holds."""
    return json.dumps(asdict(file), separators=(",", ":"), sort_keys=True)


def load(data: bytes) -> DeltaCommittable:
    """Read what `dump_committable` wrote of one; raises CorruptRecordError."""
    committable = load_committable(DeltaCommittable, data, VERSION)
    if not is_handle(committable.handle):
        raise CorruptRecordError(f"{committable.handle!r} is not a handle of Delta data files")
    return committable


def _parse(handle: str) -> Mapping[str, str]:
    found = _HANDLE.fullmatch(handle)
    if found is None:
        raise CorruptRecordError(f"{handle!r} is not a handle of Delta data files")
    return found.groupdict()


def _token(text: str) -> str:
    """Return `text` if it can be a directory's name, else a digest of it."""
    if _PLAIN.fullmatch(text):
        return text
    return "sha256-" + hashlib.sha256(text.encode()).hexdigest()[:40]
