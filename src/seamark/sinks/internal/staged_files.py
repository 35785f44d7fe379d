"""One task attempt's rows as one file in a staging area: its name, its value, its listing.

The staging area of a sink is ``<root>/<job>/<sink>/``, and a file's name in it says which attempt
wrote it: ``g<generation>-e<epoch>-p<partition>-a<attempt>-<uuid>.<extension>``. The path below
`root` is the transaction handle. A file counts only once a committable names it, and a committable
exists only after the file's fsync: a torn file is lingering, never committed.
"""

from __future__ import annotations

import hashlib
import re
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from seamark.contracts.committables import dump_committable, load_committable
from seamark.contracts.sink import WriterContext
from seamark.file_systems.local import make_directory
from seamark.model.errors import CorruptRecordError, WriteRefusedError

VERSION = 1
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME = re.compile(r"g(\d+)-e(\d+)-p(\d+)-a(\d+)-([0-9a-f]{32})\.(\w+)")
UNKNOWN_ROWS = -1


@dataclass(frozen=True)
class StagedFile:
    """A committable: one durable file of rows that no reader sees yet.

    `rows` is `UNKNOWN_ROWS` for one that was found by listing.
    """

    handle: str
    job_id: str
    sink_uid: str
    generation: int
    epoch: int
    rows: int
    size_bytes: int


def staging_directory(root: Path, job_id: str, sink_uid: str) -> Path:
    """Return where the files of one sink of one job are staged, below `root`."""
    return root / _token(job_id) / _token(sink_uid)


def new_handle(context: WriterContext, extension: str) -> str:
    """Return a handle for this attempt that no other attempt has, nor this one a second time."""
    name = (
        f"g{context.generation}-e{context.epoch}-p{context.partition_id}-a{context.attempt}"
        f"-{uuid.uuid4().hex}.{extension}"
    )
    return f"{_token(context.job_id)}/{_token(context.sink_uid)}/{name}"


def create_staged(root: Path, handle: str) -> BinaryIO:
    """Create a new handle's file, for writing.

    Raises WriteRefusedError where `root`, which the driver makes before it starts, is missing: what
    is staged on a machine that the driver does not see could never be committed.
    """
    if not root.is_dir():
        raise WriteRefusedError(
            f"{root} was made by the driver and does not exist on {socket.gethostname()}; give the "
            "sink a path on a file system that the driver and all executors share"
        )
    path = root / handle
    make_directory(path.parent)
    return path.open("xb")


def list_staged(root: Path, job_id: str, sink_uid: str) -> Iterator[StagedFile]:
    """Yield every file that any attempt of this job and sink has staged, whole or torn."""
    directory = staging_directory(root, job_id, sink_uid)
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        found = _NAME.fullmatch(path.name)
        if found is None:
            continue
        try:
            size = path.stat().st_size
        except FileNotFoundError:  # committed or aborted since it was listed
            continue
        handle = path.relative_to(root).as_posix()
        yield StagedFile(handle, job_id, sink_uid, int(found[1]), int(found[2]), UNKNOWN_ROWS, size)


def dump(committable: StagedFile) -> bytes:
    """Serialise with a version and a checksum."""
    return dump_committable(committable, VERSION)


def load(data: bytes) -> StagedFile:
    """Read what `dump` wrote; raises CorruptRecordError."""
    committable = load_committable(StagedFile, data, VERSION)
    job, _, rest = committable.handle.partition("/")
    sink, _, name = rest.partition("/")
    # It must not lead out of the staging area.
    if not (_PLAIN.fullmatch(job) and _PLAIN.fullmatch(sink) and _NAME.fullmatch(name)):
        raise CorruptRecordError(f"{committable.handle!r} is not the handle of a staged file")
    return committable


def _token(text: str) -> str:
    """Return `text` if it can be a directory's name, else a digest of it."""
    if _PLAIN.fullmatch(text):
        return text
    return "sha256-" + hashlib.sha256(text.encode()).hexdigest()[:40]
