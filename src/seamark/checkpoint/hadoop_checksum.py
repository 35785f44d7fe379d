"""Hadoop's checksum file of a local file: ``.<name>.crc`` beside ``<name>``.

Hadoop's local file system writes one with every file Spark stores: ``crc`` and a zero byte, the
chunk length as four bytes, then the CRC-32 of each chunk, all big-endian. Hadoop itself checks
chunk by chunk while it reads, and so accepts a file cut at a chunk's end, or emptied; here the
number of chunks counts too. `local_files.py` uses it.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from seamark.model.errors import CorruptRecordError

_MAGIC = b"crc\0"
_CHUNKS_AT_ONCE = 2048


def verify(path: Path) -> int:
    """Compare a file with its checksum file, if it has one; return the file's size in bytes.

    Raises CorruptRecordError naming the file, and FileNotFoundError.
    """
    size = path.stat().st_size
    sidecar = path.parent / f".{path.name}.crc"
    try:
        stored = sidecar.read_bytes()
    except FileNotFoundError:
        return size
    chunk = struct.unpack(">i", stored[4:8])[0] if len(stored) >= 8 else 0
    if stored[:4] != _MAGIC or chunk <= 0 or len(stored) % 4:
        raise CorruptRecordError(
            f"{sidecar}: this checksum file is damaged ({len(stored)} bytes); if {path.name} is "
            "good, delete the checksum file"
        )
    chunks = -(-size // chunk)
    if chunks != (len(stored) - 8) // 4:
        raise CorruptRecordError(
            f"{path}: it has {size} bytes, which does not fit its checksum file {sidecar.name}: "
            "one of the two was truncated or replaced"
        )
    with path.open("rb") as file:
        at = 8
        while block := file.read(chunk * _CHUNKS_AT_ONCE):
            for start in range(0, len(block), chunk):
                crc = zlib.crc32(block[start : start + chunk])
                if crc != int.from_bytes(stored[at : at + 4], "big"):
                    where = (at - 8) // 4 * chunk
                    raise CorruptRecordError(
                        f"{path}: bytes {where} to {min(where + chunk, size)} do not match its "
                        f"checksum file {sidecar.name}: the file was altered"
                    )
                at += 4
    return size
