"""What an attempt has begun to write: small records, each made before the data files it names.

They are how a data file of a dead attempt is found: data files lie among those of the table.
Records lie below ``_tidemark``, which neither readers nor VACUUM look into. An attempt has one for
each time that it meets new partitions: ``<handle>.<number>.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.file_systems import Directory
from tidemark.sinks.delta import store
from tidemark.sinks.delta.committable import UNKNOWN_ROWS, DeltaCommittable, is_handle, owner

DIRECTORY = "_tidemark/pending"


def write(
    files: Directory, handle: str, number: int, log_version: int, paths: Sequence[str]
) -> None:
    """Say which data files the attempt will write next."""
    record = {"log_version": log_version, "paths": list(paths)}
    store.write(files, _path(handle, number), json.dumps(record).encode())


def delete(files: Directory, handle: str, records: int) -> None:
    """Delete the records of one attempt; its data files stay."""
    for number in range(records):
        files.delete(_path(handle, number))


def data_paths(files: Directory, handle: str, records: int) -> list[str]:
    """Return the data files that the records of one attempt name."""
    return [
        str(path)
        for number in range(records)
        for path in _read(files, _path(handle, number)).get("paths", [])
    ]


def find(files: Directory, job_id: str, sink_uid: str) -> Iterator[DeltaCommittable]:
    """Yield every attempt of this job and sink that has a record, committed or not."""
    records: dict[str, int] = {}
    for path in files.list(f"{DIRECTORY}/{owner(job_id, sink_uid)}"):
        handle, _, number = path.removeprefix(f"{DIRECTORY}/").removesuffix(".json").rpartition(".")
        if is_handle(handle) and number.isdigit():
            records[handle] = max(records.get(handle, 0), int(number) + 1)
    for handle, count in sorted(records.items()):
        first = _read(files, _path(handle, 0))
        yield DeltaCommittable(handle, int(first.get("log_version", 0)), count, UNKNOWN_ROWS, ())


def _path(handle: str, number: int) -> str:
    return f"{DIRECTORY}/{handle}.{number}.json"


def _read(files: Directory, path: str) -> dict[str, Any]:
    """Return the record; {} if it is gone, or torn because its writer died over it: then the data
    files that it was to name were not begun."""
    try:
        return dict(json.loads(store.read(files, path) or b"{}"))
    except ValueError:
        return {}
