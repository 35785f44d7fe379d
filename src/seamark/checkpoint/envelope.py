"""The envelope of every JSON record stored by Seamark: format, version, body, checksum.

docs/FORMAT.md specifies it; the records themselves are in `store.py`.
"""

import contextlib
import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from seamark.files import Directory
from seamark.model.errors import CorruptRecordError, RecordNotStoredError, SeamarkError
from seamark.model.records import read_as

log = logging.getLogger(__name__)

VERSION = 1
T = TypeVar("T")
_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def seal_envelope(kind: str, body: dict[str, Any], made: str = "") -> bytes:
    """Return the bytes of a record of `kind`, with its version and checksum; `made` tells it from
    another record of the same body."""
    content = {"format": f"seamark/{kind}", "version": VERSION, "body": body}
    if made:
        content["made"] = made
    text = canonical(content)
    # Encoded once, as a record of a thousand tasks has megabytes: the keys' order puts the checksum
    # before the version, which is the last.
    last = b',"version":%d}' % VERSION
    checksum = hashlib.sha256(text).hexdigest().encode()
    return text.removesuffix(last) + b',"sha256":"' + checksum + b'"' + last + b"\n"


def open_envelope(kind: str, data: bytes, path: str) -> dict[str, Any]:
    """Return a record's body. Raises CorruptRecordError naming `path` and the fault."""
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        state = "empty" if not data.strip() else "not JSON: truncated or overwritten"
        raise CorruptRecordError(f"{path}: the record is {state}") from None
    if not isinstance(record, dict) or record.get("format") != f"seamark/{kind}":
        raise CorruptRecordError(f"{path}: this is not a seamark/{kind} record")
    if record.get("version") != VERSION:
        raise CorruptRecordError(
            f"{path}: version {record.get('version')!r} is not one that this Seamark reads "
            f"({VERSION}); use the release that wrote it, or a newer one"
        )
    stored = record.pop("sha256", None)
    found = hashlib.sha256(canonical(record)).hexdigest()
    if stored != found or not isinstance(record.get("body"), dict):
        raise CorruptRecordError(f"{path}: the checksum does not match: the record was altered")
    body: dict[str, Any] = record["body"]
    return body


@contextlib.contextmanager
def storage_faults(uri: str, path: str, done: str) -> Iterator[None]:
    """Raise RecordNotStoredError for a storage's refusal of what is `done` to `path`. Lets pass
    Seamark's own errors, FileExistsError, and FileNotFoundError of what is to be ``"read"``."""
    try:
        yield
    except (FileExistsError, SeamarkError):
        raise
    except Exception as error:  # OSError, or any error of the file system behind Spark
        if isinstance(error, FileNotFoundError) and done == "read":
            raise
        remedy = "check the address, and that its server runs and can be reached from here"
        if done in ("written", "deleted"):
            remedy = "make room, or make the storage writable and reachable"
        raise RecordNotStoredError(
            f"checkpoint storage {uri}: {path} cannot be {done}: {type(error).__name__}: "
            f"{error}. Nothing is lost; {remedy}"
        ) from error


def create_record(files: Directory, kind: str, path: str, body: Mapping[str, Any]) -> bool:
    """Store a record exclusively; return False if there is another one at `path`.

    A client that has lost an answer repeats its request, and is refused because of its own record.
    So a refusal is looked into: no two calls make the same bytes.
    """
    data = seal_envelope(kind, dict(body), made=secrets.token_hex(16))
    try:
        files.create(path, data)
    except FileExistsError:
        return is_there(files, path, data)
    return True


def is_there(files: Directory, path: str, data: bytes) -> bool:
    """Return whether the file holds these very bytes."""
    try:
        return files.read(path) == data
    except FileNotFoundError:
        return False


def read_record(files: Directory, kind: str, path: str) -> dict[str, Any]:
    """Return a record's body. Raises FileNotFoundError, CorruptRecordError naming the file."""
    return open_envelope(kind, files.read(path), f"{files.uri}/{path}")


Load = type[T] | Callable[[dict[str, Any]], T]
"""Makes a value of a record's body: a dataclass, by its fields (`read_as`), or a function."""


def load_record(files: Directory, kind: str, path: str, load: Load[T]) -> T:
    """Return what `load` makes of a record's body. Raises as `read_record`, and CorruptRecordError
    if `load` misses something in it."""
    body = read_record(files, kind, path)
    try:
        return read_as(load, body) if isinstance(load, type) else load(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRecordError(f"{files.uri}/{path}: {error!r}") from None


def load_for_people(files: Directory, kind: str, path: str, load: Load[T]) -> T | None:
    """Do as `load_record`; return None if there is no such record, or with a warning, if it cannot
    be read: nothing depends on it."""
    try:
        return load_record(files, kind, path, load)
    except FileNotFoundError:  # just being made, or deleted
        return None
    except Exception as error:
        log.warning("%s/%s is left out: %s", files.uri, path, error)
        return None


def canonical(value: dict[str, Any]) -> bytes:
    """Return the canonical form of a JSON object: stored, summed and signed in this form alone."""
    return _encoder.encode(value).encode()
