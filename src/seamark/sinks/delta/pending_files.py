"""Records of the data files an attempt has begun, each written before the files it names.

Data files lie among those of the table, so only records find the files of a dead attempt. Records
lie below ``_seamark``, skipped by readers and by VACUUM. An attempt writes one each time it meets
new partitions: ``<handle>.v<log version>.<number>.json``.
"""

import json
import re
from collections.abc import Iterator, Sequence

from seamark.contracts.attempt_name import AttemptName, owner_path
from seamark.contracts.sink import SinkContext
from seamark.file_systems import Directory
from seamark.sinks.delta import store
from seamark.sinks.delta.committable import DeltaCommittable
from seamark.sinks.internal.committables import UNKNOWN

DIRECTORY = "_seamark/pending"
_RECORD = re.compile(rf"{DIRECTORY}/(.+)\.v(\d+)\.(\d+)\.json")


def write(
    files: Directory, handle: str, log_version: int, number: int, paths: Sequence[str]
) -> None:
    """Record the data files to be written next by the attempt."""
    path = f"{DIRECTORY}/{handle}.v{log_version}.{number}.json"
    store.write(files, path, json.dumps(list(paths)).encode())


def records(committable: DeltaCommittable) -> list[str]:
    """Return the paths of the attempt's records."""
    handle, log_version = committable.handle, committable.log_version
    return [f"{DIRECTORY}/{handle}.v{log_version}.{n}.json" for n in range(committable.records)]


def data_paths(files: Directory, committable: DeltaCommittable) -> list[str]:
    """Return every data file begun, or possibly begun, by the attempt."""
    paths = {file.path for file in committable.data_files}
    for record in records(committable):
        try:
            paths.update(map(str, json.loads(store.read(files, record) or b"[]")))
        except ValueError:  # torn: its writer died before it created the files
            continue
    return sorted(paths)


def find(files: Directory, context: SinkContext) -> Iterator[DeltaCommittable]:
    """Yield every attempt of this job and sink with a record, committed or not. One listing."""
    counts: dict[tuple[str, int], int] = {}
    owner = owner_path(context)
    for path in files.list(f"{DIRECTORY}/{owner}"):
        found = _RECORD.fullmatch(path)
        name = AttemptName.parse(found[1]) if found else None
        if found and name is not None and name.owner == owner:
            key = found[1], int(found[2])
            counts[key] = max(counts.get(key, 0), int(found[3]) + 1)
    for (handle, log_version), count in sorted(counts.items()):
        yield DeltaCommittable(handle, log_version, count, UNKNOWN, ())
