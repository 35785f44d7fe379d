"""Deletes the files of a savepoint, and nothing else: a user may have put files of his own beside
them, or the directory may not be what he took it for."""

from __future__ import annotations

import re
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.contracts.spool import SPOOLS, parse_path
from seamark.savepoints.claims import CLAIMED
from seamark.savepoints.record import SAVEPOINT, TAKING

_AT_ONCE = 8
_WRITTEN = re.compile(
    r"spark/(offsets|commits)/\d+"
    r"|spark/sources/\d+/[\w.-]+"
    r"|spark/state/\d+/(\d+/([\w-]+/)?)?(_metadata|_stateSchema)/[\w/.-]+"
    r"|state/\d+/[\w-]+/part-\d{5}-[0-9a-f-]{36}\.snappy\.parquet"
    r"|state/\d+/([\w-]+/)*\d+([_-][\w-]+)?\.(delta|snapshot|zip|changelog|sst|log)(\.crc)?"
)
"""What is written into one (docs/FORMAT.md), whether or not its record came to list it."""
_BESIDE = re.compile(r"\.(?P<name>.+)\.(crc|[0-9a-f]{16}\.tmp)")
"""Hadoop's checksum of a file on a local disk; and a file of ours that was not finished."""


def remove_savepoint(files: CheckpointFiles, listed: Collection[str] = ()) -> list[str]:
    """Delete the savepoint in `files`, whose record lists these files, if it has one; return what
    else there is in its directory, which stays then.

    Cut off, it can be called again: ``savepoint.json`` goes first, and it is no savepoint then, and
    ``taking.json``, which says what it was, last. Raises OSError.
    """
    found = files.tree()
    own = [path for path in found if _is_own(path, listed)]
    first = [path for path in own if path == SAVEPOINT]
    last = [path for path in own if path in (TAKING, CLAIMED)]
    for path in first:
        files.remove(path)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(files.remove, set(own).difference(first, last)))
    for path in last:
        files.remove(path)
    files.remove_empty()
    return sorted(set(found).difference(own))


def _is_own(path: str, listed: Collection[str]) -> bool:
    above, slash, name = path.rpartition("/")
    if beside := _BESIDE.fullmatch(name):
        path = above + slash + beside["name"]
    return (
        path in (SAVEPOINT, TAKING, CLAIMED)
        or path in listed
        or _WRITTEN.fullmatch(path) is not None
        or (path.startswith(f"{SPOOLS}/") and parse_path(path.split("/", 2)[-1]) is not None)
    )
