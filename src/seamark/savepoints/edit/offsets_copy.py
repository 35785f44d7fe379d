"""Writes a copy of a savepoint in which sources go on from other offsets: the same files, but for
Spark's offset log entry and ``savepoint.json``. `edit/offsets.py` says which offsets.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model.errors import DamagedCheckpointError, SavepointError
from seamark.savepoints.record import SavepointRecord, write_savepoint, write_taking


def write_copy(
    savepoint: SavepointRecord,
    offsets: Mapping[str, Any],
    source: CheckpointFiles,
    target: CheckpointFiles,
    copy: Callable[[str], tuple[int, int]],
) -> SavepointRecord:
    """Write a savepoint into the new directory `target` that is `savepoint`, at `source`, but for
    the offsets of the sources in `offsets` (JSON, by uid); return it. ``savepoint.json`` is written
    last: without it the copy was cut off, and is not restored.

    `copy` copies one file (`state/copies.py`), and returns its bytes and CRC-32. Raises
    SavepointError if `target` is not empty, DamagedCheckpointError if a file is missing or altered.
    """
    if target.list(""):
        raise SavepointError(f"savepoint {target.uri}: the directory is not empty; give a new one")
    write_taking(
        target,
        job_id=savepoint.job_id,
        job_name=savepoint.job_name,
        job_directory=savepoint.uri,
        epoch=savepoint.epoch,
    )
    log = f"spark/offsets/{savepoint.epoch}"
    files = dict(savepoint.files)
    for path, known in savepoint.files.items():
        data = b""
        try:
            if path == log:
                data = source.read(path)
                found = len(data), zlib.crc32(data)
            else:
                found = copy(path)
        except FileNotFoundError:
            found = -1, 0
        if found != tuple(known):
            raise DamagedCheckpointError(
                f"savepoint {savepoint.uri} is damaged: {path} is missing, or not as it was "
                f"written. What is copied of it, {target.uri}, is to be deleted",
                problems=(f"{savepoint.uri}/{path}",),
            )
        if path == log:
            data = _with_offsets(data, savepoint, offsets)
            target.create(path, data)
            files[path] = len(data), zlib.crc32(data)
    changed = replace(
        savepoint,
        uri=target.uri,
        created_at=time.time(),
        sources=tuple(
            replace(s, offset=offsets[s.uid]) if s.uid in offsets else s for s in savepoint.sources
        ),
        files=files,
    )
    write_savepoint(target, changed)
    return changed


def _with_offsets(data: bytes, savepoint: SavepointRecord, offsets: Mapping[str, Any]) -> bytes:
    """Return the offset log's entry with other lines for these sources."""
    version, metadata, *lines = data.decode().split("\n")
    uids = {source.index: source.uid for source in savepoint.sources}
    for number, index in enumerate(savepoint.source_lines):
        if uids.get(index) in offsets:
            lines[number] = json.dumps(offsets[uids[index]], separators=(",", ":"))
    return "\n".join([version, metadata, *lines]).encode()
