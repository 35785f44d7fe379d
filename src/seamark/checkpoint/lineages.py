"""The lineages of one job, and which of them goes on under its name.

    <job>/                 lineage 1
    <job>/lineages/<k>/    lineage k, from 2, begun by a restore; laid out as the first one

The last lease of a superseded lineage names its successor (`procedures.supersede`), and nothing is
written into it afterwards. So the leases are a chain from the first lineage to the current one. A
directory outside of the chain is of a restore that was cut off, or that lost a race.
"""

import re

from seamark.checkpoint.envelope import read_record, storage_faults
from seamark.files import Directory, numbered
from seamark.model.errors import CheckpointError, CorruptRecordError

LINEAGES = "lineages"
SUPERSEDED_BY = "superseded_by"
"""In a last lease: the successor's number, `lineage`, its `job_id`, and the restored `path` and
`epoch`."""
_BELOW = re.compile(rf"/{LINEAGES}/\d+$")


def lineage_directory(number: int) -> str:
    """Return the directory of a lineage, below the job's own."""
    return "" if number == 1 else f"{LINEAGES}/{number}"


def job_directory(uri: str) -> str:
    """Return the directory of the job whose lineage lies at `uri`."""
    return _BELOW.sub("", uri)


def begun_lineages(files: Directory) -> list[int]:
    """Return the numbers of all lineages in the job's directory but the first, ascending. Raises
    RecordNotStoredError."""
    return numbered(_list(files, LINEAGES))


def _list(files: Directory, path: str) -> list[str]:
    with storage_faults(files.uri, path, "listed"):
        return files.list(path)


def lineages_of(files: Directory) -> list[int]:
    """Return the chain of lineages of the job in `files`: the first and each one's successor. The
    last one goes on under the job's name; its directory is empty if its checkpoints were deleted.

    Raises CorruptRecordError if a damaged lease hides whether a lineage was superseded,
    CheckpointError if a lineage in the middle is gone, and RecordNotStoredError.
    """
    chain, begun = [1], begun_lineages(files)
    while (successor := _successor(files, chain[-1], begun)) is not None:
        chain.append(successor)
    current = lineage_directory(chain[-1])
    if current and not _list(files, f"{current}/lease"):
        later = [lineage_directory(each) for each in begun if each > chain[-1]]
        if lost := [each for each in later if _list(files, f"{each}/lease")]:
            raise CheckpointError(
                f"{files.uri}/{current} is gone, and with it the way to the job's later lineage "
                f"{lost[0]}. Put its job.json and lease/ back"
            )
    return chain


def _successor(files: Directory, number: int, begun: list[int]) -> int | None:
    leases = f"{lineage_directory(number)}/lease".lstrip("/")
    while True:
        newest = max(numbered(_list(files, leases), ".json"), default=None)
        if newest is None:
            return None
        path = f"{leases}/{newest}.json"
        try:
            with storage_faults(files.uri, path, "read"):
                superseded_by = read_record(files, "lease", path).get(SUPERSEDED_BY)
            return None if superseded_by is None else int(superseded_by["lineage"])
        except FileNotFoundError:  # settled meanwhile: there is a newer one
            continue
        except CorruptRecordError as error:
            could_be = [lineage_directory(each) for each in begun if each > number]
            if not any(files.exists(f"{each}/job.json") for each in could_be):
                return None  # a successor is whole before its predecessor's last lease
            raise CorruptRecordError(
                f"{error}. It may be the last lease of its lineage, and name the one that goes on "
                f"under the job's name ({', '.join(could_be)}): put it back"
            ) from None
