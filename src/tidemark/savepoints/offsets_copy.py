"""Writes a copy of a savepoint in which sources go on from other offsets: the same files, but for
Spark's offset log entry and ``savepoint.json``. `offsets.py` says which offsets.
"""

from __future__ import annotations

import json
import shutil
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.model.errors import DamagedCheckpointError, SavepointError
from tidemark.savepoints.record import Savepoint, write_savepoint, write_taking


def write_copy(
    savepoint: Savepoint,
    offsets: Mapping[str, Any],
    source: CheckpointFiles,
    target: CheckpointFiles,
    copy: Callable[[str], tuple[int, int]],
) -> Savepoint:
    """Write a savepoint into the new directory `target` that is `savepoint`, at `source`, but for
    the offsets of the sources in `offsets` (JSON, by uid); return it. ``savepoint.json`` is written
    last: without it the copy was cut off, and is not restored.

    `copy` copies one file of the savepoint, and returns its bytes and CRC-32. Raises SavepointError
    if `target` is not empty, DamagedCheckpointError if a file is missing or altered.
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


def _with_offsets(data: bytes, savepoint: Savepoint, offsets: Mapping[str, Any]) -> bytes:
    """Return the offset log's entry with other lines for these sources."""
    version, metadata, *lines = data.decode().split("\n")
    uids = {source.index: source.uid for source in savepoint.sources}
    for number, index in enumerate(savepoint.source_lines):
        if uids.get(index) in offsets:
            lines[number] = json.dumps(offsets[uids[index]], separators=(",", ":"))
    return "\n".join([version, metadata, *lines]).encode()


def copier(
    source: CheckpointFiles, target: CheckpointFiles, spark: Callable[[], SparkSession]
) -> Callable[[str], tuple[int, int]]:
    """Return what copies one file, piece by piece, since one of rows may be large; `spark` is
    called, and its file systems are used, unless both directories are local."""
    if all(urlsplit(files.uri).scheme == "file" for files in (source, target)):
        roots = [Path(unquote(urlsplit(files.uri).path)) for files in (source, target)]
        return lambda path: _copy_local(*(root / path for root in roots))
    session = spark()
    return lambda path: _copy_hadoop(session, *(f"{f.uri}/{path}" for f in (source, target)))


def _copy_local(old: Path, new: Path) -> tuple[int, int]:
    new.parent.mkdir(parents=True, exist_ok=True)
    crc = 0
    with old.open("rb") as given, new.open("xb") as made:
        while data := given.read(1 << 20):
            crc = zlib.crc32(data, crc)
            made.write(data)
    shutil.copymode(old, new)
    return new.stat().st_size, crc


def _copy_hadoop(spark: SparkSession, old: str, new: str) -> tuple[int, int]:
    jvm: Any = spark._jvm
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    paths = [jvm.org.apache.hadoop.fs.Path(path) for path in (old, new)]
    given, made = (path.getFileSystem(hadoop) for path in paths)
    if not given.exists(paths[0]):
        raise FileNotFoundError(old)
    seen = jvm.java.util.zip.CRC32()
    reader = jvm.java.util.zip.CheckedInputStream(given.open(paths[0]), seen)
    try:
        writer = made.create(paths[1], False)
        try:
            size = jvm.org.apache.commons.io.IOUtils.copyLarge(reader, writer)
        finally:
            writer.close()
    finally:
        reader.close()
    return int(size), int(seen.getValue())
