"""``savepoint.json``: the content of a savepoint. docs/FORMAT.md specifies it.

It is written last, by exclusive create: a directory without it is an incomplete savepoint, and is
never restored. `take/export.py` and `edit/` write it, `restore/planner.py` reads it for a restore.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from seamark.checkpoint.envelope import load_record, seal_envelope
from seamark.files import Directory
from seamark.model.errors import CorruptRecordError, SavepointError
from seamark.model.records import read_as, record_of

SAVEPOINT = "savepoint.json"
KIND = "savepoint"
NOT_KNOWN = -1


class SavepointType(str, Enum):
    """How the state is kept: as rows, for any backend and number of partitions; or as files."""

    CANONICAL = "canonical"
    NATIVE = "native"


@dataclass(frozen=True)
class ColumnFamily:
    """The rows of one kind in a store; `bytes` counts keys and values. A native savepoint knows
    neither `rows` nor `bytes`: NOT_KNOWN."""

    name: str
    kind: str
    """``rows`` (an operator of Spark's own), or of a transformWithState: ``value``, ``list``,
    ``map``, ``timer``, or ``index`` (Spark's bookkeeping for timers and for TTL)."""
    key_schema: Any
    value_schema: Any
    key_encoding: Any
    several_values: bool
    """Whether a key may have several values; their order counts."""
    ttl: bool
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Store:
    """One state store of an operator, all partitions together. `path`, below the savepoint, is the
    directory of its rows; in a native savepoint, of the operator's files."""

    name: str
    path: str
    families: tuple[ColumnFamily, ...]


@dataclass(frozen=True)
class Operator:
    """A stateful operator. `index` is Spark's number for it in the saved job."""

    uid: str
    index: int
    name: str
    partitions: int
    keyed: bool
    """Whether rows are spread by their key; an operator without keys has a single partition."""
    properties: Any
    """Of a transformWithState: time mode, output mode and state variables, as Spark has them."""
    stores: tuple[Store, ...]

    @property
    def rows(self) -> int:
        """The rows of all stores; NOT_KNOWN in a native savepoint."""
        return max(NOT_KNOWN, sum(f.rows for store in self.stores for f in store.families))

    @property
    def bytes(self) -> int:
        """The bytes of all keys and values; NOT_KNOWN in a native savepoint."""
        return max(NOT_KNOWN, sum(f.bytes for store in self.stores for f in store.families))


@dataclass(frozen=True)
class Source:
    """A source. `index` is Spark's number for it in the saved job (``sources/<index>``), `offset`
    the content of its lines in the offset log."""

    uid: str
    index: int
    offset: Any
    kind: str = ""
    """Spark's name of its kind, e.g. ``kafka``; "" if unknown."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """Of a Kafka source: the brokers' ids of its topics by name, as far as they are known."""


@dataclass(frozen=True)
class Sink:
    """A sink of the saved job. `type` is its class; `rows` counts those of its `committables`."""

    uid: str
    type: str
    rows: int = 0


@dataclass(frozen=True)
class SavepointRecord:
    """A savepoint of one epoch. `uri` says where it was read or written, and is not in the file."""

    uri: str
    job_id: str
    job_name: str
    epoch: int
    created_at: float
    spark_version: str
    state_backend: str
    partitions: int
    watermark_ms: int
    settings: Mapping[str, str]
    """Spark's settings of the query, from the offset log."""
    sources: tuple[Source, ...]
    source_lines: tuple[int, ...]
    """The sources' numbers, line by line of the offset log: a source has a line for each of its
    places in the plan."""
    operators: tuple[Operator, ...]
    committables: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    """By the sink's uid: the committables decided and not known to be committed."""
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Every other file of the savepoint: bytes and CRC-32."""
    type: SavepointType = SavepointType.CANONICAL
    sinks: tuple[Sink, ...] = ()
    drained: bool = False
    """Whether the job was drained: its windows were closed early. `watermark_ms` is from before."""
    job_directory: str = ""
    """With `committables`: the job's directory. It tells whether they were committed since."""
    earlier: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    """By earlier epoch, in decimal, ascending, if it was decided and some sink had not committed
    it: for each sink's uid, the number of its committables of that epoch, and their rows. In
    `committables` they come before those of the savepoint's epoch, epoch by epoch."""
    offsets_set: bool = False
    """Whether its offsets are not those of its epoch: it is a copy by ``seamark offsets``."""
    values_by: Mapping[str, str] = field(default_factory=dict)
    """Other settings of Spark's, by which the job computed its values; empty if unknown."""

    def operator(self, uid: str) -> Operator:
        """Return the operator with this uid; raises SavepointError."""
        for operator in self.operators:
            if operator.uid == uid:
                return operator
        known = ", ".join(repr(o.uid) for o in self.operators) or "none"
        raise SavepointError(
            f"savepoint {self.uri} has no state of an operator {uid!r}; it has {known}"
        )

    def bytes_of(self, operator: Operator) -> int:
        """Return the bytes of an operator's state: keys and values, or a native one's files."""
        if self.type is SavepointType.CANONICAL:
            return operator.bytes
        paths = tuple(f"{store.path}/" for store in operator.stores)
        return sum(size for path, (size, _) in self.files.items() if path.startswith(paths))

    def row_files(self, store: Store) -> list[str]:
        """Return the URIs of the files with a store's rows, of a canonical savepoint."""
        return [f"{self.uri}/{path}" for path in self.files if path.startswith(f"{store.path}/")]

    def families(self) -> Iterator[tuple[Operator, Store, ColumnFamily]]:
        """Yield every column family."""
        for operator in self.operators:
            for store in operator.stores:
                for family in store.families:
                    yield operator, store, family


def write_savepoint(files: Directory, savepoint: SavepointRecord) -> None:
    """Write ``savepoint.json``: the savepoint is complete. Raises FileExistsError."""
    body = record_of(savepoint)
    del body["uri"]
    files.create(SAVEPOINT, seal_envelope(KIND, body))


def read_savepoint(files: Directory) -> SavepointRecord:
    """Read ``savepoint.json``, and none of the other files. Raises SavepointError if there is no
    savepoint or an incomplete one, CorruptRecordError."""
    try:
        return load_record(files, KIND, SAVEPOINT, partial(_savepoint, files.uri))
    except FileNotFoundError:
        if files.exists(TAKING):
            raise SavepointError(
                f"{files.uri} is not a whole savepoint: it has no {SAVEPOINT}, which is written "
                "last. Taking it was cut off, if no driver is writing it now: take another one, "
                "and delete what there is of it by seamark savepoint dispose --incomplete PATH"
            ) from None
        if files.exists("job.json") or files.exists("committed.json"):
            raise SavepointError(
                f"{files.uri}: a checkpoint is here, no savepoint; seamark checkpoints JOB shows "
                "it, and seamark run -s starts from it"
            ) from None
        remedy = found_below(files) or "check the path"
        raise SavepointError(f"{files.uri}: there is no savepoint here; {remedy}") from None
    except CorruptRecordError as error:
        raise CorruptRecordError(
            f"{error}; put the file back from a copy, or take another savepoint"
        ) from None


def found_below(files: Directory) -> str:
    """Return the remedy for the path of a directory of savepoints; "" if it holds none."""
    below = sorted(name for name in files.list("") if name.startswith("savepoint-"))
    paths = ", ".join(f"{files.uri}/{name}" for name in below[:5])
    return f"give one that it holds: {paths}" if below else ""


def _savepoint(uri: str, body: dict[str, Any]) -> SavepointRecord:
    return read_as(SavepointRecord, {**body, "uri": uri})


# --- a savepoint being written

TAKING = "taking.json"
"""Written first: a directory with it and without ``savepoint.json`` is incomplete."""


@dataclass(frozen=True)
class Taking:
    """The job whose savepoint is being written, or was. `job_directory` is a URI; in a copy with
    other offsets it is the original savepoint's."""

    job_id: str
    job_name: str
    job_directory: str
    epoch: int
    begun_at: float


def write_taking(
    files: Directory, job_id: str, job_name: str, job_directory: str, epoch: int
) -> None:
    """Mark a new directory as an incomplete savepoint; raises FileExistsError."""
    taking = Taking(job_id, job_name, job_directory, epoch, time.time())
    files.create(TAKING, seal_envelope("taking", asdict(taking)))


def require_new(files: Directory, *marked: str) -> None:
    """Raise SavepointError if the directory for a savepoint holds anything else than `marked`."""
    if set(files.list("")).difference(marked):
        raise SavepointError(f"savepoint {files.uri}: the directory is not empty; give a new one")


def read_taking(files: Directory) -> Taking | None:
    """Return the mark of an incomplete savepoint, None if it is missing or damaged."""
    try:
        return load_record(files, "taking", TAKING, Taking)
    except (FileNotFoundError, CorruptRecordError):
        return None
