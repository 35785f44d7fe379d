"""Opens the directory of a job run by another process, and reads its checkpoint history.

Starts Spark only for a store that has no client without a JVM.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

from pyspark import SparkContext

from seamark.api.declarations import SPARK_DIRECTORY
from seamark.checkpoint.batch_log import BELOW_CHECKPOINT
from seamark.checkpoint.envelope import open_envelope
from seamark.checkpoint.lineages import lineage_directory, lineages_of
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.store import CheckpointStore
from seamark.files import Directory, in_threads, open_without_spark
from seamark.files.deadline import open_local, with_deadlines
from seamark.files.location import local_of
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.errors import CorruptRecordError
from seamark.spark.hadoop_files import open_files
from seamark.spark.session import spark_session

READ_AT_ONCE = 16
"""Jobs of a storage asked for at a time: on an object store each costs some round trips."""


def jobs_in(storage: str) -> list[str]:
    """Return the directories of the jobs with checkpoints in `storage`; makes none. A query of
    ``format("seamark")`` may have its own in its checkpoint location."""
    if not exists(storage):
        return []
    root = open_storage(storage)

    def place(name: str) -> str:
        places = (name, f"{name}/{BELOW_CHECKPOINT}")
        return next((at for at in places if root.exists(f"{at}/job.json")), "")

    return sorted(filter(None, in_threads(place, root.list(""), READ_AT_ONCE)))


def lineages_in(storage: str, job: str) -> list[str]:
    """Return the directories in `storage` of the lineages of a job, given its own directory there.
    The last one goes on under the job's name; the others are superseded. Makes no directory."""
    if not exists(f"{storage}/{job}"):
        return [job]
    chain = lineages_of(open_storage(f"{storage}/{job}"))
    return [f"{job}/{lineage_directory(number)}".rstrip("/") for number in chain]


def current_directory(storage: str, job: str) -> str:
    """Return the directory, in `storage`, of the lineage that goes on under the job's name."""
    return lineages_in(storage, job)[-1]


def exists(uri: str) -> bool:
    """Whether a directory may hold anything: not a missing local one, made by `open_storage`."""
    local = local_of(uri)
    return local is None or Path(local).is_dir()


def read_history(storage: str, job: str) -> CheckpointingStatistics:
    """Return the history of a lineage of a job: of one of `lineages_in(storage, …)`."""
    return StatisticsStore(open_storage(f"{storage}/{job}")).read()


def open_storage(uri: str) -> Directory:
    """Return the files of a directory: through Spark's JVM if this process has one, or if the store
    has no client without."""
    local = local_of(uri)
    if local is not None:
        return open_local(local)
    if SparkContext._active_spark_context is None and (storage := open_without_spark(uri)):
        return with_deadlines(storage)
    return open_files(spark_session("seamark"), uri)


def open_store(
    open_files: Callable[[str], Directory], directory: str, new: str = SPARK_DIRECTORY
) -> CheckpointStore:
    """Open a job's directory, a URI. Its job.json names the path of the Spark checkpoint location
    below it; `new` is that path for a directory without a readable job.json."""
    files = open_files(directory)
    below = new
    with contextlib.suppress(FileNotFoundError, CorruptRecordError):
        body = open_envelope("job", files.read("job.json"), f"{directory}/job.json")
        below = str(body.get("spark_directory", SPARK_DIRECTORY))
    return CheckpointStore(files, open_files(f"{directory}/{below}") if below else files)
