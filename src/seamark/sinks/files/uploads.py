"""S3: a pending file is a multipart upload under its final name; its completion publishes it.

S3 has no rename. But the parts of an upload are durable and hidden from listings and readers. Any
process with the upload's id can complete it in one request, however large the file is: nothing is
copied. An upload ends once, by completion or by abortion. So an aborted upload without an object
can never appear, and an existing object proves its completion. Some stores let a running completion
survive an abortion; the seal never asks for both.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.file_systems.s3 import S3Directory
from seamark.model import failpoints
from seamark.sinks.files.pending_file import PendingFile, Stream, found

log = logging.getLogger(__name__)


class Uploads:
    """See `Pending`."""

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
        self._directory.delete(name)
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
            log.error("%s: the upload of %s is gone", self._directory.uri, file.handle)
            return CommitOutcome.UNKNOWN
        failpoints.reached("upload-completed")
        return CommitOutcome.COMMITTED

    def discard(self, file: PendingFile) -> AbortOutcome:
        """Abort the upload."""
        self._directory.abort_upload(file.handle, file.upload_id)
        published = self._directory.size(file.handle) is not None
        return AbortOutcome.COMMITTED if published else AbortOutcome.ABORTED

    def settle(self, files: Sequence[PendingFile]) -> None:
        """Do nothing: S3 stores before it answers."""

    def list(self, job_id: str, sink_uid: str) -> Iterator[PendingFile]:
        """List the uploads below the directory with this sink's names."""
        for upload in self._directory.uploads():
            if (file := found(upload.path, job_id, sink_uid, upload.upload_id)) is not None:
                yield file
