"""Records of the data files an attempt has begun, each written before the files it names.

Data files lie among those of the table, so only records find the files of a dead attempt. Records
lie below ``_seamark``, skipped by readers and by VACUUM. An attempt writes one each time it meets
new partitions: ``[<table>/]<handle>.v<log version>.<number>.json``.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from seamark.contracts.attempt_name import AttemptName, owner_path
from seamark.contracts.sink import SinkContext
from seamark.files import RowDirectory
from seamark.sinks.internal import stored
from seamark.sinks.internal.committables import UNKNOWN
from seamark.sinks.internal.table_committable import TableCommittable

DIRECTORY = "_seamark/pending"
_RECORD = re.compile(r"(.+)\.v(\d+)\.(\d+)\.json")
C = TypeVar("C", bound=TableCommittable)


def write(files: RowDirectory, committable: TableCommittable, paths: Sequence[str]) -> None:
    """Write the attempt's last record, of the data files to be written next."""
    stored.write(files, records(committable)[-1], json.dumps(list(paths)).encode())


def records(committable: TableCommittable) -> list[str]:
    """Return the paths of the attempt's records."""
    below, version = _below(committable.table), committable.log_version
    attempt = f"{below}/{committable.handle}.v{version}"
    return [f"{attempt}.{number}.json" for number in range(committable.records)]


def data_paths(files: RowDirectory, committable: TableCommittable) -> list[str]:
    """Return every data file begun, or possibly begun, by the attempt."""
    paths = set(committable.sizes)
    for record in records(committable):
        try:
            paths.update(map(str, json.loads(stored.read(files, record) or b"[]")))
        except ValueError:  # torn: its writer died before it created the files
            continue
    return sorted(paths)


def find(
    files: RowDirectory,
    context: SinkContext,
    kind: Callable[[str, int, int, int, tuple[str, ...]], C],
    table: str = "",
) -> Iterator[C]:
    """Yield every attempt of this job and sink with a record, committed or not, as a `kind`. One
    listing. `table` is as in `TableCommittable`."""
    counts: dict[tuple[str, int], int] = {}
    owner, below = owner_path(context), _below(table)
    for path in files.tree(f"{below}/{owner}"):
        match = _RECORD.fullmatch(path.removeprefix(f"{below}/"))
        name = AttemptName.parse(match[1]) if match else None
        if match and name is not None and name.owner == owner:
            key = match[1], int(match[2])
            counts[key] = max(counts.get(key, 0), int(match[3]) + 1)
    for (handle, log_version), count in sorted(counts.items()):
        yield kind(handle, log_version, count, UNKNOWN, ())


def _below(table: str) -> str:
    return f"{DIRECTORY}/{table}" if table else DIRECTORY
