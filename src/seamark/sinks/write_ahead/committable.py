"""The committable of a write-ahead sink: one buffer file, and the record that its rows were sent.

Both are written by `contracts/committables.py`; docs/FORMAT.md specifies them.
"""

from __future__ import annotations

from dataclasses import dataclass

from seamark.contracts.committables import dump_committable, load_committable
from seamark.contracts.row_files import RowFile, parse_path
from seamark.model.errors import CorruptRecordError

VERSION = 1
UNKNOWN = -1


@dataclass(frozen=True)
class BufferedRows:
    """One attempt's rows. `handle` is the file's path below `directory`, the buffer directory of
    the job that wrote it: a restored job finds it there. The last three are `UNKNOWN` for one that
    was found by listing."""

    handle: str
    directory: str
    job_id: str
    sink_uid: str
    generation: int
    epoch: int
    rows: int
    size_bytes: int
    crc32: int

    @property
    def file(self) -> RowFile:
        """The file as it was written."""
        return RowFile(self.handle, self.rows, self.size_bytes, self.crc32)


@dataclass(frozen=True)
class Sent:
    """The confirmation: `send` has returned for these handles, with this token."""

    handles: tuple[str, ...]
    token: str


def dump(committable: BufferedRows) -> bytes:
    """Serialise with a version and a checksum."""
    return dump_committable(committable, VERSION)


def load(data: bytes) -> BufferedRows:
    """Read what `dump` wrote; raises CorruptRecordError."""
    committable = load_committable(BufferedRows, data, VERSION)
    if parse_path(committable.handle) != (committable.epoch, committable.generation):
        raise CorruptRecordError(f"{committable.handle!r} is not the handle of a buffer file")
    return committable
