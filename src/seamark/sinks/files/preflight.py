"""Checks the directory before any row is written: `findings` changes nothing; `check` raises the
first error of a start, and tries out what a commit needs."""

import logging
from collections.abc import Iterator
from pathlib import Path

from seamark.contracts.sink import SinkContext
from seamark.file_systems import Directory
from seamark.file_systems.local import LocalDirectory, obstacle
from seamark.model.findings import Finding, FindingCode
from seamark.sinks.files.pending import Pending
from seamark.sinks.internal.servers import tell, usable

_log = logging.getLogger(__name__)
_REMEDY = (
    "give a directory that this user may write, delete and list files in (on a local disk, one "
    "file system), and see docs/sinks/files.md for what a store must allow"
)


def check(directory: Directory, pending: Pending, context: SinkContext, name: str) -> None:
    """Raise PreflightError for the first error. Tries out every operation of a commit or abort."""
    tell(findings(directory, name), _log)
    with usable(name, OSError, _REMEDY):
        pending.preflight(context.job_id, context.sink_uid)


def findings(directory: Directory, name: str) -> Iterator[Finding]:
    """The directory is Spark's own. Raises PreflightError if it cannot be listed, or written; as
    nothing is written here, a missing right to write on a store is not seen."""
    with usable(name, OSError, _REMEDY):
        problem = isinstance(directory, LocalDirectory) and obstacle(Path(directory.uri))
        if problem:
            raise problem
        spark_owns = bool(directory.list("_spark_metadata"))
    if spark_owns:
        yield Finding(
            FindingCode.SV005,
            name,
            "it was written by Spark's own streaming file sink: because of its _spark_metadata, "
            "Spark would not see the files that this job adds",
            "give FileSink another directory",
        )
