"""The committable of a write-ahead sink (one spool file), and the record of sent rows.

`contracts/committables.py` writes both; docs/FORMAT.md specifies them.
"""

from __future__ import annotations

from dataclasses import dataclass

from seamark.contracts.spool import SpoolFile, parse_path
from seamark.model.errors import CorruptRecordError
from seamark.sinks.internal.committables import UNKNOWN, AttemptCommittable


@dataclass(frozen=True)
class SpooledRows(AttemptCommittable):
    """One attempt's rows.

    handle: the spool file's path below `directory`.
    directory: the spool of the job that wrote the file; a restored job finds it there.
    """

    directory: str = ""
    size_bytes: int = UNKNOWN
    crc32: int = UNKNOWN

    def __post_init__(self) -> None:
        name = parse_path(self.handle)
        if name is None or (name.epoch, name.generation) != (self.epoch, self.generation):
            raise CorruptRecordError(f"{self.handle!r} is not the handle of a spool file")

    @property
    def file(self) -> SpoolFile:
        """The spool file as it was written."""
        return SpoolFile(self.directory, self.handle, self.rows, self.size_bytes, self.crc32)


@dataclass(frozen=True)
class Sent:
    """The confirmation: `send` has returned for these handles, with this token."""

    handles: tuple[str, ...]
    token: str
