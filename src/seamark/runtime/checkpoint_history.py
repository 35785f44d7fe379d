"""Opens the directory of a job run by another process, and reads its checkpoint history.

Starts Spark only if the storage is not on a local disk.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

from seamark.api.declarations import SPARK_DIRECTORY
from seamark.checkpoint.envelope import open_envelope
from seamark.checkpoint.files_deadline import open_local
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.file_systems.location import local_of
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.errors import CorruptRecordError
from seamark.runtime.hadoop_files import open_files
from seamark.runtime.session import spark_session


def jobs_in(storage: str) -> list[str]:
    """Return the jobs with checkpoints in `storage`; makes no directory."""
    if not exists(storage):
        return []
    root = open_storage(storage)
    return sorted(name for name in root.list("") if root.exists(f"{name}/job.json"))


def exists(uri: str) -> bool:
    """Whether a directory may hold anything: not a missing local one, made by `open_storage`."""
    local = local_of(uri)
    return local is None or Path(local).is_dir()


def read_history(storage: str, job: str) -> CheckpointingStatistics:
    """Return the history of one of `jobs_in(storage)`."""
    return StatisticsStore(open_storage(f"{storage}/{job}")).read()


def open_storage(uri: str) -> CheckpointFiles:
    """Return the files of a directory; a local one needs no Spark."""
    local = local_of(uri)
    return open_local(local) if local is not None else open_files(spark_session("seamark"), uri)


def open_store(
    open_files: Callable[[str], CheckpointFiles], directory: str, new: str = SPARK_DIRECTORY
) -> CheckpointStore:
    """Open a job's directory, a URI. Its job.json names the path of the Spark checkpoint location
    below it; `new` is that path for a directory without a readable job.json."""
    files = open_files(directory)
    below = new
    with contextlib.suppress(FileNotFoundError, CorruptRecordError):
        body = open_envelope("job", files.read("job.json"), f"{directory}/job.json")
        below = str(body.get("spark_directory", SPARK_DIRECTORY))
    return CheckpointStore(files, open_files(f"{directory}/{below}") if below else files)
