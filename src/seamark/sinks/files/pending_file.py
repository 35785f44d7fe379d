"""The committable: one file with durable bytes and a name no reader sees yet.

The name shows its owner: ``part-<epoch>-<partition>-g<generation>-<owner>-<unique>.<extension>``,
below its partition directories. `owner` stands for the job and the sink, so lingering files are
found by name alone. No other attempt ever has that name: a file under it proves its commit.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seamark.contracts.attempt_name import digest, random_token
from seamark.contracts.sink import WriterContext
from seamark.model.errors import CorruptRecordError
from seamark.sinks.internal.committables import UNKNOWN, AttemptCommittable

VERSION = 2
_NAME = re.compile(
    r"(?:[^/=]+=[^/=]*/)*part-(\d{8,})-\d{5,}-g(\d+)-([0-9a-f]{16})-[0-9a-f]{32}\.[a-z.]+"
)


@dataclass(frozen=True)
class PendingFile(AttemptCommittable):
    """One attempt's durable file, not yet visible.

    handle: the file's future path below the sink's directory.
    upload_id, etags: an S3 upload and its parts; empty elsewhere.
    """

    size_bytes: int = UNKNOWN
    upload_id: str = ""
    etags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.handle):  # it must not lead elsewhere
            raise CorruptRecordError(f"{self.handle!r} is not the path of a pending file")


def new_path(context: WriterContext, directory: str, extension: str) -> str:
    """Return a path in `directory`, never used by any attempt, this one included."""
    at, owner = context, _owner(context.job_id, context.sink_uid)
    name = f"part-{at.epoch:08d}-{at.partition_id:05d}-g{at.generation}-{owner}-{random_token()}"
    name = f"{name}.{extension}"
    return f"{directory}/{name}" if directory else name


def found(path: str, job_id: str, sink_uid: str, upload_id: str = "") -> PendingFile | None:
    """Return the committable of a pending file found by listing, None if another sink's."""
    name = _NAME.fullmatch(path)
    if name is None or name[3] != _owner(job_id, sink_uid):
        return None
    return PendingFile(path, job_id, sink_uid, int(name[2]), int(name[1]), upload_id=upload_id)


def _owner(job_id: str, sink_uid: str) -> str:
    return digest(f"{job_id}\0{sink_uid}", 16)


@dataclass(eq=False)
class Stream:
    """A file for pyarrow's writers. Only `finish` and `abort` end it.

    finish: makes every byte durable, and the file findable by listing. Returns its upload id and
        ETags, if it has them. From then on any process can publish the file.
    abort: gives up, also after `finish`. Never raises.
    """

    path: str
    _write: Callable[[Any], int]
    finish: Callable[[], tuple[str, tuple[str, ...]]]
    abort: Callable[[], None]
    size_bytes: int = 0
    closed = False

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        written = self._write(data)
        self.size_bytes += written
        return written

    def flush(self) -> None:
        """Do nothing: `finish` counts."""

    def close(self) -> None:
        """Do nothing: `finish` counts."""
