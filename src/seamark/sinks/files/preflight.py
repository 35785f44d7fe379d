"""Checks the directory before any row is written."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seamark.contracts.sink import SinkContext
from seamark.files import open_directory
from seamark.files.local import LocalDirectory, obstacle
from seamark.model.errors import CorruptRecordError
from seamark.model.findings import Finding, FindingCode
from seamark.sinks.files.layout import PLACE, Layout, Unfit, require_fit
from seamark.sinks.files.pending import open_pending
from seamark.sinks.internal import stored
from seamark.sinks.internal.servers import Findings, usable

if TYPE_CHECKING:
    from seamark.sinks.files.sink import FileSink

_REMEDY = (
    "give a directory that this user may write, delete and list files in (on a local disk, one "
    "file system), and see docs/sinks/files.md for what a store must allow"
)


def look(sink: "FileSink", context: SinkContext, name: str, *, start: bool) -> Findings:
    """The directory is Spark's own, or has files that are not read together with this program's
    (`layout.py`). A `start` tries out every operation of a commit or abort; else
    nothing is written, so a missing right to write on a store is not seen. Raises PreflightError if
    the directory cannot be listed, or written."""
    settings = context.hadoop.under(sink.hadoop)
    directory = open_directory(sink.path, settings)
    with usable(name, OSError, _REMEDY):
        problem = isinstance(directory, LocalDirectory) and obstacle(Path(str(directory)))
        if problem:
            raise problem
        spark_owns = bool(directory.tree("_spark_metadata"))
    if spark_owns:
        yield Finding(
            FindingCode.SV005,
            name,
            "it was written by Spark's own streaming file sink: because of its _spark_metadata, "
            "Spark would not see the files that this job adds",
            "give FileSink another directory",
        )
    remedy = "give FileSink another directory, or take the table's own sink"
    opened = partial(open_directory, settings=settings)
    if within := stored.table_around(sink.path, opened, name, remedy):
        yield within
    if start:
        with usable(name, OSError, _REMEDY):
            open_pending(sink.path, settings).preflight(context.job_id, context.sink_uid)
    try:
        with usable(name, OSError, _REMEDY):
            layout = Layout.of(sink, context.schema)
            require_fit(directory, layout, record=start and bool(context.schema))
    except Unfit as unfit:
        yield Finding(FindingCode.SV005, name, unfit.found, unfit.remedy)
    except CorruptRecordError as error:
        remedy = f"take that version, or delete the records in {directory}/{PLACE}"
        yield Finding(FindingCode.SV005, name, f"a record of its files: {error}", remedy)
