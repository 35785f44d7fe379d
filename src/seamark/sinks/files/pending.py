"""The place of undecided files: how they are published, or made impossible to publish.

**Local disks and HDFS** (`RenamedFiles`): a pending file lies in ``_seamark/pending/``; a rename
publishes it. Rename and deletion are atomic and exclude each other, in the kernel or in the
NameNode. If one driver commits and another aborts, exactly one succeeds; no further fencing is
needed. Readers that list the directory (Spark, pyarrow, pandas) skip names beginning with ``_``. A
reader of every ``*.parquet`` at any depth (DuckDB's ``**``) finds none: pending names end with
``.pending``.

**S3** (`Uploads`): a pending file is a multipart upload under its final name; its completion
publishes it. S3 has no rename. But the parts of an upload are durable and hidden from listings and
readers. Any process with the upload's id can complete it in one request, however large the file is:
nothing is copied. An upload ends once, by completion or by abortion. So an aborted upload without
an object can never appear, and an existing object proves its completion. Some stores let a running
completion survive an abortion; the seal never asks for both.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seamark.contracts.attempt_name import plain
from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.files import HadoopSettings, RenamingDirectory, open_directory
from seamark.files.local import LocalDirectory
from seamark.files.s3 import S3Directory
from seamark.model import failpoints
from seamark.model.errors import WriteRefusedError
from seamark.sinks.files.pending_file import PendingFile, Stream, found
from seamark.sinks.internal.staged_files import require_shared

log = logging.getLogger(__name__)

PLACE = "_seamark/pending"
SUFFIX = ".pending"


class RenamedFiles:
    """Files renamed when they are published."""

    at_once = 1

    def __init__(self, directory: RenamingDirectory) -> None:
        self._directory = directory

    def preflight(self, job_id: str, sink_uid: str) -> None:
        """Create the directories and try a rename."""
        name = f"probe-{uuid.uuid4().hex}"
        pending = f"{_place(job_id, sink_uid)}/{name}"
        self._directory.begin(pending).close()
        self._directory.rename(pending, f"_{name}")
        self._directory.remove(f"_{name}")

    def begin(self, path: str, job_id: str, sink_uid: str) -> Stream:
        """Begin the file that will be `path`. Raises WriteRefusedError if this machine does not see
        the driver's directory, or no rename leads to where the file is to be."""
        if isinstance(self._directory, LocalDirectory):
            require_shared(pending := Path(str(self._directory), PLACE))
            into = Path(str(self._directory), path).parent
            if into.exists() and into.stat().st_dev != pending.stat().st_dev:
                raise WriteRefusedError(
                    f"{into} is on another file system than {pending}, and a rename is what "
                    "publishes a file: put both on one, or give the sink a path there"
                )
        file = self._directory.begin(f"{_place(job_id, sink_uid)}/{path}{SUFFIX}")

        def finish() -> tuple[str, tuple[str, ...]]:
            file.close()
            return "", ()

        return Stream(path, file.write, finish, file.discard)

    def publish(self, file: PendingFile) -> CommitOutcome:
        """Rename the file. LOST: it is torn. UNKNOWN: it is neither pending nor published; it may
        have been published, and removed since."""
        pending, name = _pending(file), f"{self._directory}: pending file {file.handle}"
        try:
            size = self._directory.size(pending)
            if size is not None and size != file.size_bytes:
                log.error(
                    "%s is damaged: it has %d bytes, %d were written", name, size, file.size_bytes
                )
                return CommitOutcome.LOST
            self._directory.rename(pending, file.handle)
        except FileNotFoundError:
            if self._directory.size(file.handle) is not None:
                return CommitOutcome.ALREADY_COMMITTED
            log.error("%s is gone", name)
            return CommitOutcome.UNKNOWN
        failpoints.reached("file-renamed")
        return CommitOutcome.COMMITTED

    def discard(self, file: PendingFile) -> AbortOutcome:
        """Delete the file; a later rename finds it missing."""
        self._directory.remove(_pending(file))
        published = self._directory.size(file.handle) is not None
        return AbortOutcome.COMMITTED if published else AbortOutcome.ABORTED

    def since(self, files: Sequence[PendingFile]) -> list[float | None]:
        """Return when each file was written."""
        return [self._directory.modified(_pending(file)) for file in files]

    def settle(self, files: Sequence[PendingFile], *, answers: bool) -> None:
        """Sync the directories, and remove those used for pending files alone, unless the file
        system has just not answered."""
        self._require_mounted()
        for file in files:
            if answers and "/" in file.handle:
                self._directory.prune(_pending(file), below=_place(file.job_id, file.sink_uid))
        self._directory.sync([name for file in files for name in (file.handle, _pending(file))])

    def list(self, job_id: str, sink_uid: str) -> Iterator[PendingFile]:
        """List this sink's part of the pending area."""
        self._require_mounted()
        place = _place(job_id, sink_uid)
        for path in sorted(self._directory.tree(place)):
            name = path.removeprefix(f"{place}/").removesuffix(SUFFIX)
            if (file := found(name, job_id, sink_uid)) is not None:
                yield file

    def _require_mounted(self) -> None:
        """Raise OSError without the directory that the preflight has made: where the disk is not
        mounted now, a missing file proves nothing."""
        here = isinstance(self._directory, LocalDirectory)
        if here and not (place := Path(str(self._directory), PLACE)).is_dir():
            raise FileNotFoundError(f"{place} is gone, which is made at each start: not mounted?")


def _pending(file: PendingFile) -> str:
    return f"{_place(file.job_id, file.sink_uid)}/{file.handle}{SUFFIX}"


def _place(job_id: str, sink_uid: str) -> str:
    return f"{PLACE}/{plain(job_id)}/{plain(sink_uid)}"


class Uploads:
    """Multipart uploads, completed when they are published."""

    at_once = 16

    def __init__(self, directory: S3Directory) -> None:
        self._directory = directory

    def preflight(self, job_id: str, sink_uid: str) -> None:
        """Complete an upload, abort one, list them. Needs PutObject, GetObject, DeleteObject,
        AbortMultipartUpload and ListBucketMultipartUploads."""
        name = f"_seamark/probe-{uuid.uuid4().hex}"
        upload = self._directory.begin_upload(name)
        etags = upload.finish()
        next(self._directory.uploads(), None)
        self._directory.complete_upload(name, upload.upload_id, etags)
        self._directory.remove(name)
        other = self._directory.begin_upload(name)
        self._directory.abort_upload(name, other.upload_id)

    def begin(self, path: str, job_id: str, sink_uid: str) -> Stream:
        """Begin the upload, in a single try. A try with a lost answer may have begun an upload, and
        a second try would begin another under the same name. So the attempt fails, and its upload
        is lingering."""
        upload = self._directory.begin_upload(path)
        return Stream(
            path, upload.write, lambda: (upload.upload_id, tuple(upload.finish())), upload.abort
        )

    def publish(self, file: PendingFile) -> CommitOutcome:
        """Complete the upload. UNKNOWN: it has ended and there is no object; it was aborted, or the
        object has been removed since."""
        # Ask first: S3 answers a repeated completion as if it were the first one.
        if self._directory.size(file.handle) is not None:
            return CommitOutcome.ALREADY_COMMITTED
        try:
            self._directory.complete_upload(file.handle, file.upload_id, file.etags)
        except FileNotFoundError:
            if self._directory.size(file.handle) is not None:
                return CommitOutcome.ALREADY_COMMITTED
            log.error("%s: the upload of %s is gone", self._directory, file.handle)
            return CommitOutcome.UNKNOWN
        failpoints.reached("upload-completed")
        return CommitOutcome.COMMITTED

    def discard(self, file: PendingFile) -> AbortOutcome:
        """Abort the upload."""
        self._directory.abort_upload(file.handle, file.upload_id)
        published = self._directory.size(file.handle) is not None
        return AbortOutcome.COMMITTED if published else AbortOutcome.ABORTED

    def since(self, files: Sequence[PendingFile]) -> list[float | None]:
        """Return when each upload was begun. One listing."""
        begun = {upload.upload_id: upload.begun for upload in self._directory.uploads()}
        return [begun.get(file.upload_id) for file in files]

    def settle(self, files: Sequence[PendingFile], *, answers: bool) -> None:
        """Do nothing: S3 stores before it answers."""

    def list(self, job_id: str, sink_uid: str) -> Iterator[PendingFile]:
        """List the uploads below the directory with this sink's names."""
        for upload in self._directory.uploads():
            if (file := found(upload.path, job_id, sink_uid, upload.upload_id)) is not None:
                yield file


Pending = RenamedFiles | Uploads
"""The place of undecided files; any process may call. If the file system cannot be reached, a call
raises OSError or returns RETRY. `at_once` files may be published or discarded in parallel."""


def open_pending(uri: str, settings: HadoopSettings) -> Pending:
    """Return the implementation for the file system of `uri`."""
    directory: Any = open_directory(uri, settings)
    return Uploads(directory) if isinstance(directory, S3Directory) else RenamedFiles(directory)
