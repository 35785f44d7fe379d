"""Checks the database before any row is written: `findings` changes nothing; `check` raises the
first error of a start, and makes what the job needs."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from seamark.contracts.sink import SinkContext
from seamark.file_systems.local import make_directory, obstacle
from seamark.model.findings import Finding, FindingCode
from seamark.sinks.internal.servers import tell, usable
from seamark.sinks.internal.staged_files import staging_directory
from seamark.sinks.sqlite import database
from seamark.sinks.sqlite.database import Target

_log = logging.getLogger(__name__)


def check(target: Target, root: Path, context: SinkContext, name: str) -> None:
    """Raise PreflightError for the first error. Creates database, ledger and staging area."""
    tell(findings(target, context, name), _log)
    with _usable(name):
        database.prepare(target.path)
        make_directory(staging_directory(root, context))


def findings(target: Target, context: SinkContext, name: str) -> Iterator[Finding]:
    """The directory is missing or not to be written, or the table does not fit the rows. Raises
    PreflightError if the database cannot be read."""
    directory = Path(target.path).parent
    if not directory.is_dir():
        found = f"the directory {directory} does not exist"
        yield Finding(FindingCode.SV004, name, found, "make it, or change SQLiteSink path")
        return
    if problem := obstacle(directory):
        yield Finding(FindingCode.SV003, name, str(problem), "allow it, or change SQLiteSink path")
        return
    with _usable(name):
        misfits = list(database.misfits(target, context.schema)) if context.schema else []
    for why, remedy in misfits:
        yield Finding(FindingCode.SV005, f"sink {context.sink_uid!r}", why, remedy)


def _usable(name: str) -> AbstractContextManager[None]:
    return usable(
        name,
        (database.driver_errors(), OSError),
        "give a SQLite database that this user may write and that no program keeps locked",
        FindingCode.SV002,
    )
