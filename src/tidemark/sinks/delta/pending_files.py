"""What an attempt has begun to write: one small record, made before the first data file is.

It is how a data file of a dead attempt is found: data files lie among those of the table. Records
lie below ``_tidemark``, which neither readers nor VACUUM look into. One that is lost with its
machine leaves a file that no log entry names, which VACUUM deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.sinks.delta.committable import UNKNOWN_ROWS, DeltaCommittable, is_handle, owner
from tidemark.sinks.delta.table_files import TableFiles

DIRECTORY = "_tidemark/pending"


def write(files: TableFiles, handle: str, log_version: int, paths: Sequence[str]) -> None:
    """Say which data files the attempt writes; called again, with all of them, for each new one."""
    record = {"log_version": log_version, "paths": list(paths)}
    files.put(f"{DIRECTORY}/{handle}.json", json.dumps(record).encode())


def read_paths(files: TableFiles, handle: str) -> list[str]:
    """Return the data files that the attempt has named; [] if it has no record."""
    return [str(path) for path in _read(files, handle).get("paths", [])]


def delete(files: TableFiles, handles: Sequence[str]) -> None:
    """Forget the attempts; their data files stay."""
    files.delete(f"{DIRECTORY}/{handle}.json" for handle in handles)


def list_pending(files: TableFiles, job_id: str, sink_uid: str) -> Iterator[DeltaCommittable]:
    """Yield every attempt of this job and sink that has a record, committed or not."""
    prefix = owner(job_id, sink_uid)
    for name in sorted(files.names(f"{DIRECTORY}/{prefix}")):
        handle = f"{prefix}/{name.removesuffix('.json')}"
        if is_handle(handle):
            log_version = int(_read(files, handle).get("log_version", 0))
            yield DeltaCommittable(handle, log_version, UNKNOWN_ROWS, ())


def _read(files: TableFiles, handle: str) -> dict[str, Any]:
    """Return the record; {} if it is gone, or torn by a machine's end (it is not fsynced)."""
    try:
        return dict(json.loads(files.read(f"{DIRECTORY}/{handle}.json") or b"{}"))
    except ValueError:
        return {}
