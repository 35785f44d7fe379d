"""The committable: one file whose bytes are durable and whose name no reader sees yet.

The name says whose it is: ``part-<epoch>-<partition>-g<generation>-<owner>-<unique>.<extension>``,
below its partition directories, `owner` standing for the job and the sink: so what lingers is found
by its name alone. No other attempt ever has that name: a file that has it proves its commit.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass

from seamark.contracts.committables import dump_committable, load_committable
from seamark.contracts.sink import WriterContext
from seamark.model.errors import CorruptRecordError

VERSION = 2
UNKNOWN = -1
_NAME = re.compile(
    r"(?:[^/=]+=[^/=]*/)*part-(\d{8,})-\d{5,}-g(\d+)-([0-9a-f]{16})-[0-9a-f]{32}\.[a-z.]+"
)


@dataclass(frozen=True)
class PendingFile:
    """`handle` is the path below the sink's directory that the file will have. `upload_id` and
    `etags` name an S3 upload and its parts, and are empty elsewhere. `rows` and `size_bytes` are
    `UNKNOWN` for one that was found by listing."""

    handle: str
    job_id: str
    sink_uid: str
    generation: int
    epoch: int
    rows: int
    size_bytes: int
    upload_id: str = ""
    etags: tuple[str, ...] = ()


def new_path(context: WriterContext, directory: str, extension: str) -> str:
    """Return a path in `directory` that no other attempt has, nor this one a second time."""
    name = (
        f"part-{context.epoch:08d}-{context.partition_id:05d}-g{context.generation}"
        f"-{_owner(context.job_id, context.sink_uid)}-{uuid.uuid4().hex}.{extension}"
    )
    return f"{directory}/{name}" if directory else name


def found(path: str, job_id: str, sink_uid: str, upload_id: str = "") -> PendingFile | None:
    """Return the committable of a pending file that was found by listing, None if it is not one of
    this job and sink."""
    name = _NAME.fullmatch(path)
    if name is None or name[3] != _owner(job_id, sink_uid):
        return None
    return PendingFile(
        path, job_id, sink_uid, int(name[2]), int(name[1]), UNKNOWN, UNKNOWN, upload_id
    )


def dump(committable: PendingFile) -> bytes:
    """Serialise with a version and a checksum."""
    return dump_committable(committable, VERSION)


def load(data: bytes) -> PendingFile:
    """Read what `dump` wrote; raises CorruptRecordError, also for a path that leads elsewhere."""
    committable = load_committable(PendingFile, data, VERSION)
    if not _NAME.fullmatch(committable.handle):
        raise CorruptRecordError(f"{committable.handle!r} is not the path of a pending file")
    return committable


def _owner(job_id: str, sink_uid: str) -> str:
    return hashlib.sha256(f"{job_id}\0{sink_uid}".encode()).hexdigest()[:16]
