"""Reads the checkpoint history of a job run by another process.

Starts Spark only if the storage is not on a local disk.
"""

from __future__ import annotations

from pathlib import Path

from seamark.checkpoint.files_deadline import open_local
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.file_systems.location import local_of
from seamark.model.checkpointing_statistics import CheckpointingStatistics
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
