"""Checks that a checkpoint is whole: every file needed by a start after one epoch, Seamark's and
Spark's, before anything is written.

`require_sound` guards every start of a job. `inspect` serves it and the readers of retained
checkpoints: `savepoints/restore/checkpoint.py` and `savepoints/take/checkpoint.py`.
docs/internals.md says how each fault is found, docs/operations/damaged-checkpoint.md lists the
faults not found.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from seamark.checkpoint.envelope import read_record
from seamark.checkpoint.manifest import Manifest, read_manifest
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.spark_files import (
    METADATA_VERSION,
    StateTree,
    log_paths,
    metadata_at,
    read_log,
    store_directories,
    unique_ids,
    zip_references,
)
from seamark.checkpoint.store import CheckpointStore
from seamark.files import Directory, numbered
from seamark.files.location import local_of
from seamark.model.errors import (
    CheckpointError,
    CorruptRecordError,
    DamagedCheckpointError,
    DecisionMissingError,
    RestoreError,
    UnreadableRecordError,
)
from seamark.protocol.states import Seal

T = TypeVar("T")
_RECORD = re.compile(r"(prepared|sealed)\.(\d+)\.json|(committed|started)\.json")
_TRIES = 5
_MANY = 100
_NO_DECISION = "missing, though every sink has committed this epoch"
RESTORING = "restoring.json"
"""Marks a directory into which a checkpoint is being restored (`savepoints/restore/checkpoint.py`).
"""


@dataclass
class Inspection:
    """The files of one checkpoint, and their faults.

    `files`: Spark's files, below its checkpoint location. `problems`: one line for each damaged or
    missing file, beginning with its path. `uncommitted`: the generation with the decided attempt,
    while the attempt is not recorded as committed to every sink; None if all is committed.
    """

    epoch: int
    files: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    uncommitted: int | None = None
    void: bool = False
    """Every attempt at it is sealed abort: its decision, if there is one, will be taken back."""


def inspect(store: CheckpointStore, epoch: int) -> Inspection:
    """Check every file needed by the checkpoint of one epoch; reads its state to the end."""
    inspection = Inspection(epoch)
    manifest = _records(store, epoch, inspection)
    _logs(store.spark_files, epoch, manifest, inspection)
    _state(store, epoch, manifest, inspection)
    inspection.files = list(dict.fromkeys(inspection.files))
    inspection.problems = list(dict.fromkeys(inspection.problems))
    return inspection


def inspect_records(store: CheckpointStore, epoch: int) -> Inspection:
    """Check Seamark's records of one epoch alone."""
    inspection = Inspection(epoch)
    _records(store, epoch, inspection)
    return inspection


def require_sound(
    store: CheckpointStore,
    find_damaged_rows: Callable[[int, int], list[str]] = lambda epoch, generation: [],
) -> None:
    """Return if the job can go on from its last decided epoch, or is new.

    `find_damaged_rows(epoch, generation)` checks a decided, uncommitted attempt's spools.

    Raises DamagedCheckpointError naming each damaged file and the newest complete checkpoint. An
    older driver may still be at work: epochs it has moved on from meanwhile are checked again.
    """
    if store.files.exists(RESTORING) and not store.files.exists("job.json"):
        path = read_record(store.files, "restoring", RESTORING).get("path")
        raise RestoreError(
            f"{store.uri}: a restore of {path} into this directory was begun and has not ended; "
            f"run the job with restore={path!r} again, or delete the directory"
        )
    _require_one_place(store)
    _require_its_kind(store)
    for attempt in range(_TRIES):
        latest = store.latest_decision()
        epochs = store.epochs()  # an adopted Spark checkpoint is not among them
        problems = _job_records(store)
        if store.files.exists("job.json"):
            if latest in epochs:
                inspection = inspect(store, latest)
                problems += inspection.problems
                if not problems and inspection.uncommitted is not None:
                    problems += find_damaged_rows(latest, inspection.uncommitted)
                if inspection.void:  # the job goes on from the epoch before
                    problems += inspect(store, latest - 1).problems if latest - 1 in epochs else []
            problems += _unsettled(store, latest, epochs)
            problems += _later(store, latest)
        if not problems:
            return
        if attempt and store.latest_decision() == latest:
            break
    raise damaged(store, latest, problems)


def _require_one_place(store: CheckpointStore) -> None:
    """Raise CheckpointError for a job with its records and Spark's files in two directories. An
    older version of Seamark took a ``%41`` in a local path for an ``A``."""
    local = local_of(store.uri) or ""
    other = Path(unquote(local))
    if (
        str(other) != local
        and not store.files.exists("job.json")
        and store.spark_files.list("offsets")
        and (other / "job.json").exists()
    ):
        raise CheckpointError(
            f"{store.uri} holds Spark's files of a job whose records lie in {other}: an older "
            "version of Seamark took the path for another one, and its sinks may lack rows. "
            "Begin it anew under another name or storage; to go on from Spark's files all the "
            f"same, move {other} away"
        )


def _require_its_kind(store: CheckpointStore) -> None:
    """Raise CheckpointError for a directory of sm.Job given to sm.write_stream, or the other way:
    Spark's files would be looked for, or begun anew, in another place."""
    try:
        identity = store.read_identity()
    except (FileNotFoundError, CorruptRecordError, UnreadableRecordError):
        return  # new, or told with all that is damaged
    if identity.spark_directory != store.spark_directory:
        kind, other = ("sm.Job", "sm.write_stream")[:: 1 if identity.spark_directory else -1]
        raise CheckpointError(
            f"{store.uri} holds the checkpoints of job {identity.name!r} of {kind}, where {other} "
            f"cannot go on; use {kind}, or another storage or checkpointLocation"
        )


def damaged(store: CheckpointStore, epoch: int, problems: list[str]) -> DamagedCheckpointError:
    """Return the error naming the files and offering the newest complete checkpoint."""
    shown = problems[:5] + ([f"… and {len(problems) - 5} more files"] if problems[5:] else [])
    other = _complete(store, (e for e in reversed(store.epochs()) if e <= epoch))
    if other is None:
        other = _complete(store, (e for e in store.epochs() if e > epoch))
        path = None if other is None else store.external_path(other)
        offer = "No other checkpoint of this job is complete; put the files back from a backup"
        if path is not None:
            offer = (
                f"No earlier checkpoint of this job is complete, but that of epoch {other} is: "
                f"restore it with job.run(restore={path!r}), or put the files back from a backup"
            )
    else:
        path = store.external_path(other)
        offer = (
            f"The newest complete checkpoint is that of epoch {other}; restore it under another "
            f"job name or storage with job.run(restore={path!r})"
        )
        last = max(e for e in {epoch, *store.epochs()} if e == epoch or _committed(store, e))
        if other < last:
            offer += (
                f". Rows of epochs {other + 1} to {last}, which the sinks hold already, are then "
                "written again"
            )
    newest = max((e for e in store.epochs() if _holds_more_than_seals(store, e)), default=epoch)
    if not store.spark_directory and newest < epoch:
        offer = (
            f"If plain Spark has gone on here after epoch {newest}, delete all names here but its "
            "metadata, offsets, commits, sources and state, and start again "
            f"(docs/write-stream.md#from-plain-spark-and-back). {offer}"
        )
    of_epoch = f"of epoch {epoch} " if epoch >= 0 else ""
    listed = "".join(f"\n  {line}" for line in shown)
    missing = any(_NO_DECISION in line for line in problems)
    return (DecisionMissingError if missing else DamagedCheckpointError)(
        f"the checkpoint {of_epoch}in {store.uri} is damaged; nothing was written. Found:"
        f"{listed}\n{offer}. See docs/operations/damaged-checkpoint.md",
        problems=tuple(problems),
        restore_path=path,
    )


def _complete(store: CheckpointStore, epochs: Iterable[int]) -> int | None:
    """Return the first of `epochs` whose checkpoint has no problem."""
    for epoch in epochs:
        if store.spark_files.exists(f"commits/{epoch}"):
            inspection = inspect(store, epoch)
            if not inspection.problems and not inspection.void:
                return epoch
    return None


def _holds_more_than_seals(store: CheckpointStore, epoch: int) -> bool:
    """Whether a driver of Seamark's has worked at the epoch; a stop seals one that never began."""
    return any(not name.startswith("sealed.") for name in store.files.list(f"epochs/{epoch}"))


def _committed(store: CheckpointStore, epoch: int) -> bool:
    return store.files.exists(f"epochs/{epoch}/committed.json")


# --- Seamark's records


def _job_records(store: CheckpointStore) -> list[str]:
    """Check job.json and the leases against the epochs' records."""
    problems: list[str] = []
    newest = 0
    for epoch in store.epochs()[-3:]:  # a possibly undecided one, the last decided, the one before
        for name in store.files.list(f"epochs/{epoch}"):
            if (match := _RECORD.fullmatch(name)) and match[2]:
                newest = max(newest, int(match[2]))
    leases = store.generations()  # after them: a driver claiming the job now has no records yet
    if not store.files.exists("job.json"):
        if store.epochs() or leases:
            problems.append(f"{store.uri}/job.json: missing, though the job has other records")
    else:
        _open(store.files, "job", "job.json", problems)
    if newest > max(leases, default=0):
        problems.append(
            f"{store.uri}/lease/{newest}.json: missing, though this generation has records"
        )
    return problems


def _records(store: CheckpointStore, epoch: int, inspection: Inspection) -> Manifest | None:
    """Check the epoch's own records; return its manifest."""
    files, problems, at = store.files, inspection.problems, f"epochs/{epoch}"
    names = set(files.list(at))
    bodies = {
        name: _open(files, match[1] or match[3], f"{at}/{name}", problems)
        for name in names
        if (match := _RECORD.fullmatch(name))
    }
    prepared = sorted(int(n.split(".")[1]) for n in names if n.startswith("prepared."))
    committed = bodies.get("committed.json")
    if committed is not None:
        for kind in ("prepared", "sealed"):
            name = f"{kind}.{committed.get('generation')}.json"
            if name not in names:
                problems.append(f"{store.uri}/{at}/{name}: missing")
        if (
            bodies.get(f"sealed.{committed.get('generation')}.json", {}).get("seal", "commit")
            != "commit"
        ):
            problems.append(f"{store.uri}/{at}: committed, and its seal says abort")
    elif "committed.json" not in names:
        if "manifest.json" in names and prepared:
            problems.append(f"{store.uri}/{at}/committed.json: missing")
        elif not prepared and "manifest.json" not in names:
            problems.append(f"{store.uri}/{at}: it holds no record of a complete checkpoint")
        else:
            standing = [
                g
                for g in prepared
                if bodies.get(f"sealed.{g}.json", {}).get("seal") != Seal.ABORT.value
            ]
            inspection.uncommitted = max(standing, default=None)
            inspection.void = bool(prepared) and not standing
    return read_manifest(files, epoch)


def _unsettled(store: CheckpointStore, latest: int, epochs: Collection[int]) -> list[str]:
    """Check the records of decided epochs not known to be committed: they are needed."""
    try:
        first = store.read_identity().first_epoch
    except CorruptRecordError:  # noted already
        return []
    problems: list[str] = []
    epoch = latest
    while epoch >= first and not (epoch in epochs and _committed(store, epoch)):
        if epoch not in epochs:
            problems.append(f"{store.uri}/epochs/{epoch}: missing, though this epoch is decided")
        elif epoch < latest:  # the latest one is inspected as a whole
            problems += inspect_records(store, epoch).problems
        epoch -= 1
        if len(problems) > _MANY:
            break
    return problems


def _later(store: CheckpointStore, latest: int) -> list[str]:
    """Check everything begun after the last decided epoch: it is run again, or taken back."""
    problems: list[str] = []
    for epoch in (e for e in store.epochs() if e > latest):
        names = store.files.list(f"epochs/{epoch}")
        if "committed.json" in names:
            problems.append(f"{store.spark_files.uri}/commits/{epoch}: {_NO_DECISION}")
        for name in names:
            if match := _RECORD.fullmatch(name):
                _open(store.files, match[1] or match[3], f"epochs/{epoch}/{name}", problems)
    for epoch in range(latest + 1, store.latest_planned() + 1):
        path = f"offsets/{epoch}"
        if store.spark_files.exists(path):
            _guard(problems, _whole_log, store.spark_files, path)
            if problems:
                problems[-1] += (
                    f". Epoch {epoch} is not decided: delete this file, and Spark plans it anew"
                )
    return problems


# --- Spark's files


def _logs(spark: Directory, epoch: int, manifest: Manifest | None, inspection: Inspection) -> None:
    expected = dict(manifest.files) if manifest is not None else {}
    paths = [_held(spark, path, epoch) for path in expected]
    if not paths:
        try:
            paths = log_paths(spark, epoch)
        except FileNotFoundError:
            inspection.problems.append(f"{spark.uri}/offsets/{epoch}: missing")
        except CorruptRecordError as error:
            inspection.problems.append(str(error))
    inspection.files += paths
    for path in paths:
        _guard(inspection.problems, _small_file, spark, path, expected.get(path))
    for log in ("offsets", "commits"):
        if f"{log}/{epoch}" in paths:
            _guard(inspection.problems, read_log, spark, f"{log}/{epoch}")


def _held(spark: Directory, path: str, epoch: int) -> str:
    """Return the path, or its substitute for an operator's metadata deleted by Spark. Spark deletes
    the oldest first: where an older file is left, another hand deleted this one."""
    version = METADATA_VERSION.fullmatch(path)
    if version is None or spark.exists(path):
        return path
    numbers = numbered(spark.list(version[1].rstrip("/")))
    if not numbers or min(numbers) < int(version[2]):
        return path
    return metadata_at((f"{version[1]}{number}" for number in numbers), epoch)[0]


def _small_file(spark: Directory, path: str, expected: tuple[int, int] | None) -> None:
    if expected is not None:
        data = spark.read(path)
        if (len(data), zlib.crc32(data)) != expected:
            raise CorruptRecordError(
                f"{spark.uri}/{path}: it holds {len(data)} bytes that differ from the "
                f"{expected[0]} bytes in the checkpoint's manifest"
            )
    if spark.check(path) == 0:
        raise CorruptRecordError(f"{spark.uri}/{path}: the file is empty")


def _whole_log(spark: Directory, path: str) -> None:
    _small_file(spark, path, None)
    read_log(spark, path)


def _state(
    store: CheckpointStore, epoch: int, manifest: Manifest | None, inspection: Inspection
) -> None:
    spark = store.spark_files
    groups = manifest.stores if manifest is not None else _earlier_stores(store, epoch)
    tree = StateTree.read(spark)
    if manifest is None:
        metadata = metadata_at(tree.metadata, epoch)
        inspection.files += metadata
        groups = groups or tuple(tree.groups())
        for path in metadata:
            _guard(inspection.problems, _small_file, spark, path, None)
    if not groups:
        return
    try:
        commit = read_log(spark, f"commits/{epoch}")
    except (FileNotFoundError, CorruptRecordError):
        commit = []  # reported already
    for directory in store_directories(groups):
        needed, missing = tree.chain(directory, epoch + 1, unique_ids(commit, directory))
        inspection.problems += [f"{spark.uri}/{path}: missing" for path in missing]
        sizes: dict[str, int | None] = dict.fromkeys(needed)
        for path in needed:
            if path.endswith(".zip"):
                sizes |= _guard(inspection.problems, zip_references, spark, path) or {}
        for path, size in sizes.items():
            _guard(inspection.problems, _state_file, spark, path, size)
        inspection.files += sizes


def _state_file(spark: Directory, path: str, expected: int | None) -> None:
    size = spark.check(path)
    if size == 0 or (expected is not None and size != expected):
        wanted = f"{expected} are recorded" if expected is not None else "it was not empty"
        raise CorruptRecordError(f"{spark.uri}/{path}: it has {size} bytes; {wanted}")


def _earlier_stores(store: CheckpointStore, epoch: int) -> tuple[tuple[str, str, int], ...]:
    """Return the state stores of the last manifest before `epoch`; none if it has none yet."""
    for earlier in reversed([e for e in store.epochs() if e < epoch][-5:]):
        if (manifest := read_manifest(store.files, earlier)) is not None:
            return manifest.stores
    return ()


# --- both


def _open(files: Directory, kind: str, path: str, problems: list[str]) -> dict[str, object]:
    """Return a record's body. If it is damaged or missing, note the problem and return {}."""
    return _guard(problems, lambda files, path: read_record(files, kind, path), files, path) or {}


def _guard(
    problems: list[str],
    look: Callable[..., T],
    files: Directory,
    path: str,
    *more: object,
) -> T | None:
    """Look at one file; note its fault, and return None then."""
    try:
        return look(files, path, *more)
    except CorruptRecordError as error:
        problems.append(str(error))
    except FileNotFoundError:
        problems.append(f"{files.uri}/{path}: missing")
    return None


# --- transactions in the records


def standing_attempts(store: CheckpointStore, after: int) -> Iterator[Mapping[str, SinkEpoch]]:
    """Yield the parts, by sink, of each stored attempt at the epochs after `after` that is not
    sealed ABORT."""
    for epoch in (e for e in store.epochs() if e > after):
        record = store.epoch(epoch)
        for generation in record.prepared:
            if record.seals.get(generation) is not Seal.ABORT:
                yield store.read_prepared(epoch, generation)


def committables_of(attempts: Iterable[Mapping[str, SinkEpoch]]) -> Counter[str]:
    """Return the number of transactions of each sink."""
    counts = Counter[str]()
    for parts in attempts:
        for uid, part in parts.items():
            counts[uid] += len(part.committables)
    return counts
