"""S3, and other stores with its protocol, through boto3.

An object exists whole or not at all; it appears with one answer of the store. Besides a
`Directory`'s calls there are multipart uploads. Their parts are durable at S3, and invisible to
readers and listings until any process completes the upload (`sinks/files/pending.py`).
"""

import contextlib
import functools
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from seamark.files.directory import NewFile, RowDirectory, visible
from seamark.files.s3_options import S3Options
from seamark.files.settings import HadoopSettings
from seamark.model.ignored import clean
from seamark.model.packages import load_driver

PART_BYTES = 8 << 20
"""The size of every part but the last: some stores want equal parts. S3 takes at least 5 MiB."""
MOST_PARTS = 10_000
"""S3's limit; it bounds a file to 78 GiB."""
_TOKEN = "seamark-create"
"""The metadata of a record that tells its maker; `spark/hadoop_files.py` writes it too."""
_CONFLICT_TRIES = 5
_MISSING = {"404", "NoSuchKey", "NoSuchUpload", "NoSuchBucket", "NotFound"}
_DENIED = {"401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"}


@dataclass(frozen=True)
class FoundUpload:
    """A multipart upload found neither completed nor aborted."""

    path: str
    upload_id: str
    begun: float
    """In seconds since 1970, by the store's clock."""


class ConflictError(OSError):
    """Another client changes the same key at this moment."""


class S3Directory(RowDirectory):
    """See `RowDirectory`. Exclusive create is a write on condition."""

    def __init__(self, uri: str, settings: HadoopSettings) -> None:
        self.uri = uri.rstrip("/")
        self._bucket, _, self._prefix = self.uri.partition("://")[2].partition("/")
        self._options = S3Options.of(self._bucket, settings)
        _boto3()

    def create(self, path: str, data: bytes) -> None:
        """Write an object on condition that its key is free. The client repeats a write after a
        lost answer, and then finds its own object: known by a token."""
        token = secrets.token_hex(16)
        for left in reversed(range(_CONFLICT_TRIES)):
            try:
                self._put(path, data, IfNoneMatch="*", Metadata={_TOKEN: token})
            except ConflictError:  # another client writes or deletes this key; ask again
                if not left:
                    raise
            except FileExistsError:
                head = self._head(path)
                if head is None or head.get("Metadata", {}).get(_TOKEN) != token:
                    raise
                return
            else:
                return

    def begin(self, path: str) -> "_S3File":
        """Begin a new object."""
        return _S3File(self, path)

    def open(self, path: str) -> BinaryIO:
        """Return an object for reading; its bytes are fetched from the store on demand."""
        return self._call(path, "get_object", Key=self._key(path))["Body"]  # type: ignore[no-any-return]

    def read(self, path: str) -> bytes:
        """Return the whole object."""
        with _os_errors(f"{self.uri}/{path}"):
            return super().read(path)

    def check(self, path: str) -> int:
        """Read the object through."""
        with _os_errors(f"{self.uri}/{path}"):
            return super().check(path)

    def exists(self, path: str) -> bool:
        """Whether there is such an object, or one below."""
        return bool(path and self._head(path)) or any(self._keys(path, MaxKeys=1))

    def stat(self, path: str) -> tuple[int, float] | None:
        """Return bytes and time."""
        if (head := self._head(path)) is None:
            return None
        return int(_whole(head, "ContentLength")), float(_whole(head, "LastModified").timestamp())

    def _head(self, path: str) -> Any:
        try:
            return self._call(path, "head_object", Key=self._key(path))
        except FileNotFoundError:
            return None

    def list(self, path: str) -> list[str]:
        """Return the names one level below `path`."""
        keys = self._keys(path, Delimiter="/")
        return visible(key.rstrip("/").rpartition("/")[2] for key, _ in keys if key != f"{path}/")

    def tree(self, path: str = "") -> dict[str, int]:
        """Return all objects below `path`, without the markers of Hadoop and of consoles: they
        stand for directories."""
        return {key: n for key, n in self._keys(path) if not f"/{key}".endswith("/")}

    def delete(self, path: str) -> None:
        """Delete an object, and all below it."""
        self.remove(path)
        for key, _ in [*self._keys(path)]:
            self.remove(key)

    def remove(self, path: str) -> None:
        """Delete an object."""
        self._call(path, "delete_object", Key=self._key(path))

    def remove_empty(self) -> None:
        """Delete the markers of directories without objects."""
        keys = [key for key, _ in self._keys("")]
        for marker in (key for key in keys if f"/{key}".endswith("/")):
            if all(f"/{key}".endswith("/") for key in keys if key.startswith(marker)):
                self._call(marker, "delete_object", Key=f"{self._prefix}/{marker}".lstrip("/"))

    def _keys(self, path: str, **arguments: Any) -> Iterator[tuple[str, int]]:
        """Yield the keys below `path` with their bytes; with a delimiter, the directories too."""
        for page in self._pages(path, "list_objects_v2", **arguments):
            for entry in page.get("Contents", ()):
                yield self._path(entry["Key"]), int(entry["Size"])
            for entry in page.get("CommonPrefixes", ()):
                yield self._path(entry["Prefix"]), 0

    # --- multipart uploads

    def begin_upload(self, path: str) -> "S3Upload":
        """Begin an upload; `path` is the name of the completed object.

        Tried once. After a ConnectionError (no answer, or busy) the upload may have begun.
        """
        with _os_errors(f"{self.uri}/{path}"):
            answer = _client(self._options, tries=1).create_multipart_upload(
                Bucket=self._bucket, Key=self._key(path), **self._encryption()
            )
        return S3Upload(self, path, _whole(answer, "UploadId"))

    def complete_upload(self, path: str, upload_id: str, etags: Sequence[str]) -> None:
        """Make the object of its parts, in one step.

        Raises FileNotFoundError if the upload has ended, completed or aborted.
        """
        parts = [{"PartNumber": n, "ETag": f'"{etag}"'} for n, etag in enumerate(etags, start=1)]
        answer = self._call(
            path, "complete_multipart_upload", Key=self._key(path), UploadId=upload_id,
            MultipartUpload={"Parts": parts},
        )  # fmt: skip
        _whole(answer, "ETag")  # S3 begins with 200, and may end with an error

    def abort_upload(self, path: str, upload_id: str) -> None:
        """Delete the parts: the upload can no longer be completed. An ended one is fine."""
        with contextlib.suppress(FileNotFoundError):
            self._call(path, "abort_multipart_upload", Key=self._key(path), UploadId=upload_id)

    def uploads(self) -> Iterator[FoundUpload]:
        """Yield every open upload below this directory."""
        for page in self._pages("", "list_multipart_uploads"):
            for upload in page.get("Uploads", ()):
                begun = float(upload["Initiated"].timestamp())
                yield FoundUpload(self._path(upload["Key"]), upload["UploadId"], begun)

    def _upload_part(self, path: str, upload_id: str, number: int, data: bytes) -> str:
        answer = self._call(
            path, "upload_part", Key=self._key(path), UploadId=upload_id, PartNumber=number,
            Body=data,
        )  # fmt: skip
        return str(_whole(answer, "ETag")).strip('"')

    def _put(self, path: str, data: bytes, **condition: Any) -> None:
        self._call(
            path, "put_object", Key=self._key(path), Body=data, **self._encryption(), **condition
        )

    def _encryption(self) -> dict[str, str]:
        algorithm, key = self._options.encryption, self._options.encryption_key
        given = {"ServerSideEncryption": algorithm} if algorithm else {}
        return {**given, "SSEKMSKeyId": key} if key and "kms" in algorithm else given

    def _call(self, path: str, operation: str, **arguments: Any) -> Any:
        with _os_errors(f"{self.uri}/{path}"):
            return getattr(_client(self._options), operation)(Bucket=self._bucket, **arguments)

    def _pages(self, path: str, operation: str, **arguments: Any) -> Iterator[Any]:
        key = self._key(path)
        arguments["Prefix"] = f"{key}/" if key else ""
        with _os_errors(f"{self.uri}/{path}"):
            pages = _client(self._options).get_paginator(operation)
            for page in pages.paginate(Bucket=self._bucket, **arguments):
                _whole(page, "IsTruncated")
                yield page

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path) if part)

    def _path(self, key: str) -> str:
        return key[len(self._prefix) + 1 :] if self._prefix else key


class S3Upload:
    """A multipart upload being written."""

    def __init__(self, directory: S3Directory, path: str, upload_id: str) -> None:
        self._directory, self._path = directory, path
        self._buffer = bytearray()
        self.upload_id = upload_id
        self.size = 0
        """The bytes so far."""
        self.etags: list[str] = []

    def write(self, data: Any, /) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        self._buffer += view
        self.size += view.nbytes
        while len(self._buffer) >= PART_BYTES:
            self._send(bytes(self._buffer[:PART_BYTES]))
            del self._buffer[:PART_BYTES]
        return view.nbytes

    def finish(self) -> Sequence[str]:
        """Send the remaining bytes and return the parts' ETags; every byte is durable then."""
        if self._buffer or not self.etags:
            self._send(bytes(self._buffer))
            self._buffer.clear()
        return self.etags

    def abort(self) -> None:
        """Give up; never raises."""
        with contextlib.suppress(OSError):
            self._directory.abort_upload(self._path, self.upload_id)

    def _send(self, data: bytes) -> None:
        number = len(self.etags) + 1
        if number > MOST_PARTS:
            raise OSError(
                f"{self._directory.uri}/{self._path}: more than {MOST_PARTS} parts of {PART_BYTES} "
                "bytes, which S3 does not take; let more tasks write it"
            )
        part = self._directory._upload_part(self._path, self.upload_id, number, data)
        self.etags.append(part)


class _S3File(NewFile):
    """A `NewFile`: one request for a small object, an upload for a larger one."""

    def __init__(self, directory: S3Directory, path: str) -> None:
        self._directory, self._path = directory, path
        self._buffer = bytearray()
        self._upload: S3Upload | None = None

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        if self._upload is None:
            self._buffer += view
            if len(self._buffer) >= PART_BYTES:
                self._upload = self._directory.begin_upload(self._path)
                self._upload.write(self._buffer)
                self._buffer = bytearray()
        else:
            self._upload.write(view)
        return view.nbytes

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._upload is None:
            self._directory._put(self._path, bytes(self._buffer))
        else:
            etags = self._upload.finish()
            try:
                self._directory.complete_upload(self._path, self._upload.upload_id, etags)
            except FileNotFoundError:  # completed already, if its answer was lost
                if self._directory.size(self._path) != self._upload.size:
                    raise

    def discard(self) -> None:
        self.closed = True
        steps = [self._upload.abort] if self._upload is not None else []
        steps.append(partial(self._directory.remove, self._path))
        clean(steps, f"the end of {self._directory.uri}/{self._path}")


@functools.cache
def _boto3() -> Any:
    return load_driver("boto3", "the S3 client is not installed", "s3")


@functools.lru_cache(maxsize=16)
def _client(options: S3Options, tries: int = 3) -> Any:
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.handlers import add_expect_header

    boto3 = _boto3()
    config = Config(
        connect_timeout=options.timeout_s / 2,
        read_timeout=options.timeout_s,
        retries={"mode": "standard", "total_max_attempts": tries},
        max_pool_connections=32,
        signature_version=UNSIGNED if options.anonymous else None,
        s3={"addressing_style": "path" if options.path_style else "auto"},
        # Many stores with S3's protocol do not know newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # A session of our own: the default one is not thread-safe.
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=options.endpoint or None,
        region_name=options.region or None,
        aws_access_key_id=options.access_key or None,
        aws_secret_access_key=options.secret_key or None,
        aws_session_token=options.session_token or None,
        config=config,
    )
    # Its answer to half a "100 Continue" would be awaited for ever (botocore/awsrequest.py).
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return client


def _whole(answer: Any, name: str) -> Any:
    """Return a part of an answer. The client takes one cut off behind its status for a whole one;
    for it raises ConnectionError."""
    if name not in answer:
        raise ConnectionError(f"half an answer of S3's has come, without {name}")
    return answer[name]


_KINDS: dict[int, type[OSError]] = {409: ConflictError, 412: FileExistsError}


@contextlib.contextmanager
def _os_errors(name: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        kind = _KINDS.get(status, ConnectionError if status >= 500 else OSError)
        kind = FileNotFoundError if code in _MISSING else kind
        kind = PermissionError if code in _DENIED else kind
        raise kind(f"{name}: {error}") from error
    except BotoCoreError as error:
        raise ConnectionError(f"{name}: {error}") from error
