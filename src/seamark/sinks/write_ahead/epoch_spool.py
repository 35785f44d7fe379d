"""One epoch in the spool of a write-ahead sink.

A spool file goes through these names in ``<spool>/<epoch>/``:

    g…-….arrow            flushed; may be aborted
    g…-….arrow.claimed    being sent; cannot be aborted any more
    <unique>.sent         a record with every handle of one returned `send`

Object stores have no rename and so no claim. There only the protocol's seals keep a commit and an
abort apart: an abort needs a seal before it comes here.
"""

import json
import logging
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from seamark.contracts import spool
from seamark.contracts.committables import dump_committable, load_committable
from seamark.contracts.spool import SpoolFile, parse_path
from seamark.files import HadoopSettings, RowDirectory, open_directory
from seamark.model.errors import CorruptRecordError
from seamark.sinks.internal.committables import UNKNOWN, AttemptCommittable

log = logging.getLogger(__name__)
CLAIMED = ".claimed"
SENT = ".sent"
_COMMITTED = re.compile(r"epochs/(\d+)/committed\.json")


@dataclass(frozen=True)
class SpooledRows(AttemptCommittable):
    """One attempt's rows.

    handle: the spool file's path below `directory`.
    directory: the spool of the job that wrote the file; a restored job finds it there.
    """

    directory: str = ""
    size_bytes: int = UNKNOWN
    crc32: int = UNKNOWN

    def __post_init__(self) -> None:
        name = parse_path(self.handle)
        if name is None or (name.epoch, name.generation) != (self.epoch, self.generation):
            raise CorruptRecordError(f"{self.handle!r} is not the handle of a spool file")

    @property
    def file(self) -> SpoolFile:
        """The spool file as it was written."""
        return SpoolFile(self.directory, self.handle, self.rows, self.size_bytes, self.crc32)


@dataclass(frozen=True)
class Sent:
    """The confirmation: `send` has returned for these handles, with this token."""

    handles: tuple[str, ...]
    token: str


@dataclass(frozen=True)
class EpochSpool:
    """One epoch's files, as just listed. Calls raise OSError when the storage does not answer."""

    directory: RowDirectory
    hadoop: HadoopSettings
    epoch: int
    files: frozenset[str]
    settled: bool = False
    """Whether the epoch is committed, according to the job that wrote the files."""
    forgotten: bool = False
    """Whether another job wrote the files, and neither they nor its records are left."""

    @classmethod
    def find(
        cls, files: Sequence[SpooledRows], own_uri: str, hadoop: HadoopSettings
    ) -> "EpochSpool":
        """Look where the files of one attempt were written, then in the running job's own spool.
        The whole checkpoint may have been moved since. Or the files have come with a savepoint, and
        their job's directory may be gone or out of reach."""
        written, epoch = files[0].directory, files[0].epoch
        own = cls.listed(own_uri, hadoop, epoch) if own_uri and own_uri != written else None
        try:
            first = cls.listed(written, hadoop, epoch)
            if first.files or own is None:
                return first
            settled = _is_committed(files[0], hadoop)
            spool = own if own.files else first
            return replace(spool, settled=settled, forgotten=not (spool.files or settled))
        except OSError as error:
            if own is None or not own.files:
                raise
            log.info("%s cannot be looked into: %s", written, error)
            return own

    @classmethod
    def listed(cls, uri: str, hadoop: HadoopSettings, epoch: int) -> "EpochSpool":
        """Return one epoch of a spool, listed now."""
        directory = open_directory(uri, hadoop)
        return cls(directory, hadoop, epoch, frozenset(directory.tree(str(epoch))))

    def has_changed(self) -> bool:
        """Return whether the epoch has other files by now than those listed."""
        return frozenset(self.directory.tree(str(self.epoch))) != self.files

    def sent(self) -> set[str]:
        """Return the handles recorded as sent."""
        return read_sent(self.directory, self.files)

    def unsent(self, files: Sequence[SpooledRows]) -> list[SpooledRows]:
        """Return the files not known to be at the target."""
        sent = self.sent()
        return [] if self.settled else [f for f in files if f.handle not in sent]

    def problem(self, rows: SpooledRows) -> str:
        """Read a file, and return its fault as a line; "" if it has none."""
        file = replace(rows.file, path=self.path(rows.handle))
        problem = spool.problem(self.directory, file)
        return f"{self.directory}/{file.path}: {problem}" if problem else ""

    def claim(self, handle: str) -> bool:
        """Claim a file, so that it cannot be aborted. Return False if it was aborted."""
        rename = getattr(self.directory, "rename", None)
        if rename is None or handle + CLAIMED in self.files:
            return True
        try:
            rename(handle, handle + CLAIMED)
        except FileNotFoundError:
            return self.directory.size(handle + CLAIMED) is not None  # another driver was first
        return True

    def read(self, handles: Sequence[str], session: Any) -> "SpooledBatches":
        """Return the batches of claimed files, to be read in the Spark session, if there is one."""
        suffix = CLAIMED if hasattr(self.directory, "rename") else ""
        return SpooledBatches(self.directory, self.hadoop, [h + suffix for h in handles], session)

    def record(self, sent: Sent) -> None:
        """Make the confirmation durable."""
        with self.directory.begin(f"{self.epoch}/{uuid.uuid4().hex}{SENT}") as file:
            file.write(dump_committable(sent))

    def path(self, handle: str) -> str:
        """Return a file's current name."""
        return handle + CLAIMED if handle + CLAIMED in self.files else handle


class SpooledBatches(Iterator[pa.RecordBatch]):
    """The batches of one epoch, with their location and the session for a sender that reads them in
    executors."""

    def __init__(
        self, directory: RowDirectory, hadoop: HadoopSettings, paths: list[str], session: Any
    ) -> None:
        self.directory, self.hadoop, self.paths, self.session = directory, hadoop, paths, session
        self._batches = (batch for path in paths for batch in spool.read(directory, path))

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def schema(self) -> pa.Schema:
        """Return the schema of the first batch."""
        return next(spool.read(self.directory, self.paths[0])).schema


def read_sent(directory: RowDirectory, paths: frozenset[str]) -> set[str]:
    """Return the handles named by the records among `paths`."""
    handles: set[str] = set()
    for path in paths:
        if not path.endswith(SENT):
            continue
        try:
            with directory.open(path) as file:
                handles.update(load_committable(Sent, file.read()).handles)
        except FileNotFoundError:  # deleted since it was listed
            continue
        except CorruptRecordError as error:  # a driver died while writing it
            log.warning("%s/%s says nothing: %s", directory, path, error)
    return handles


def _is_committed(rows: SpooledRows, hadoop: HadoopSettings) -> bool:
    """Whether the job that wrote a file has committed its epoch to all sinks, by its records; it
    has then deleted its files. False if nothing is there, or a job of another id."""
    job = open_directory(rows.directory.rpartition(f"/{spool.SPOOLS}/")[0], hadoop)
    try:
        with job.open("job.json") as file:
            if json.load(file)["body"]["job_id"] != rows.job_id:
                return False
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return False
    committed = (_COMMITTED.fullmatch(path) for path in job.tree("epochs"))
    return any(match is not None and int(match[1]) >= rows.epoch for match in committed)
