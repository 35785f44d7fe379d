"""The envelope of every JSON record stored by Seamark: format, version, body, checksum.

docs/FORMAT.md specifies it; the records themselves are in `store.py`.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model.errors import CorruptRecordError

log = logging.getLogger(__name__)

VERSION = 1
T = TypeVar("T")
_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def seal_envelope(kind: str, body: dict[str, Any], **more: str) -> bytes:
    """Return the bytes of a record of `kind`, with its version and checksum."""
    content = {"format": f"seamark/{kind}", "version": VERSION, "body": body, **more}
    return canonical({**content, "sha256": _digest(content)}) + b"\n"


def open_envelope(kind: str, data: bytes, path: str) -> dict[str, Any]:
    """Return a record's body. Raises CorruptRecordError naming `path` and the fault."""
    try:
        record = json.loads(data)
    except ValueError:
        state = "empty" if not data.strip() else "not JSON: truncated or overwritten"
        raise CorruptRecordError(f"{path}: the record is {state}") from None
    if not isinstance(record, dict) or record.get("format") != f"seamark/{kind}":
        raise CorruptRecordError(f"{path}: this is not a seamark/{kind} record")
    if record.get("version") != VERSION:
        raise CorruptRecordError(
            f"{path}: version {record.get('version')!r} is not one that this Seamark reads "
            f"({VERSION}); use the release that wrote it, or a newer one"
        )
    digest = record.pop("sha256", None)
    if digest != _digest(record) or not isinstance(record.get("body"), dict):
        raise CorruptRecordError(f"{path}: the checksum does not match: the record was altered")
    body: dict[str, Any] = record["body"]
    return body


def create_record(files: CheckpointFiles, kind: str, path: str, body: Mapping[str, Any]) -> bool:
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


def is_there(files: CheckpointFiles, path: str, data: bytes) -> bool:
    """Return whether the file holds these very bytes."""
    try:
        return files.read(path) == data
    except FileNotFoundError:
        return False


def read_record(files: CheckpointFiles, kind: str, path: str) -> dict[str, Any]:
    """Return a record's body. Raises FileNotFoundError, CorruptRecordError naming the file."""
    return open_envelope(kind, files.read(path), f"{files.uri}/{path}")


def load_record(
    files: CheckpointFiles, kind: str, path: str, load: Callable[[dict[str, Any]], T]
) -> T:
    """Return what `load` makes of a record's body. Raises as `read_record`, and CorruptRecordError
    if `load` misses something in it."""
    body = read_record(files, kind, path)
    try:
        return load(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRecordError(f"{files.uri}/{path}: {error!r}") from None


def load_for_people(
    files: CheckpointFiles, kind: str, path: str, load: Callable[[dict[str, Any]], T]
) -> T | None:
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


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(content)).hexdigest()
