"""The place of a restore: a new job's directory, or the next lineage of a job that is there.

A restore under the name of a job supersedes the job's current lineage: it takes that over as its
next driver, settles it, makes the next lineage whole, and names it in the old one's last lease
(docs/adr/0021-lineages.md). Nothing of the old lineage is deleted or moved.
"""

import contextlib
import logging
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from seamark.checkpoint.checkpointed_job import QueryRun
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.envelope import load_for_people
from seamark.checkpoint.inspection import RESTORING, committables_of, standing_attempts
from seamark.checkpoint.ledger import read_ledger
from seamark.checkpoint.lineages import begun_lineages, lineage_directory, lineages_of
from seamark.checkpoint.spool import load
from seamark.checkpoint.store import CheckpointStore
from seamark.files import Directory
from seamark.files.location import same_place
from seamark.jobs.job_transactions import checkpointed_job
from seamark.jobs.registry import driver_state
from seamark.model import failpoints
from seamark.model.errors import CorruptRecordError, FencedError, RestoreError
from seamark.protocol.procedures import supersede, unsettled
from seamark.protocol.verdicts import DriverState
from seamark.savepoints.restore.options import NewJob
from seamark.savepoints.restore.origin import Origin, open_job
from seamark.savepoints.restore.plan import Superseded
from seamark.savepoints.restore.target import is_restored_from
from seamark.spark.function_session import function_sessions
from seamark.spark.hadoop_files import open_files
from seamark.spark.state_backend import clone_session

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where a restore makes its job: `target`, the lineage `number`. `current` is the lineage that
    it supersedes, None for a new job, and `decided` the epoch decided there when this place was
    found; `earlier` are the lineages before that one, oldest first."""

    target: CheckpointStore
    number: int
    current: CheckpointStore | None = None
    earlier: Sequence[CheckpointStore] = ()
    decided: int = -1

    def restored_from(self, path: str) -> CheckpointStore | None:
        """Return the newest lineage that was restored from `path`; None if there is none."""
        lineages = [] if self.current is None else [self.current, *reversed(self.earlier)]
        return next((each for each in lineages if is_restored_from(each, path)), None)


def find_place(spark: SparkSession, path: str, job: NewJob, *, anew: bool = False) -> Place:
    """Return the place of a restore of `path`. A restore that was cut off has the same one again,
    unless the lineage to be superseded has gone on meanwhile: its newest checkpoint is another one.
    `anew`: a further lineage in any case.

    Raises CheckpointError if the directory holds a job of another name.
    """

    def lineage(number: int) -> CheckpointStore:
        at = f"{job.directory}/{lineage_directory(number)}".rstrip("/")
        return open_job(spark, at, job.spark_directory)

    files = open_files(spark, job.directory, make=False)
    chain, begun = lineages_of(files), begun_lineages(files)
    current = lineage(chain[-1])
    try:
        identity = current.open_existing(job.name)
    except FileNotFoundError:
        return Place(current, chain[-1])
    earlier = [each for each in map(lineage, chain[:-1]) if each.files.exists("job.json")]
    latest = current.latest_decision()
    for number in () if anew else begun:
        at = f"{lineage_directory(number)}/{RESTORING}"
        decided = load_for_people(files, "restoring", at, dict) or {}
        what = decided.get("supersedes"), decided.get("supersedes_epoch")
        mine = what == (identity.job_id, latest)
        if number not in chain and mine and same_place(decided["path"], path):
            return Place(lineage(number), number, current, earlier, latest)
    number = max([*chain, *begun]) + 1
    return Place(lineage(number), number, current, earlier, latest)


def superseded(
    current: CheckpointStore, origin: Origin, earlier: Sequence[CheckpointStore] = ()
) -> Superseded:
    """Describe the lineage for the plan of a restore of `origin`; `earlier` are those before."""
    chain = [(store, store.read_identity()) for store in (*earlier, current)]
    again: list[tuple[CheckpointStore, range]] = []
    begun = False  # the origin's lineage, after its epoch, and all of each later one
    for store, identity in chain:
        restored = (identity.restored_from or {}).get("epoch", identity.first_epoch - 1)
        first = (restored if begun else origin.epoch) + 1
        begun |= identity.job_id == origin.job_id
        if begun and (epochs := range(first, store.latest_decision() + 1)):
            again.append((store, epochs))
    rows: int | None = None if origin.offsets_set else 0
    if again and rows is not None:
        rows = _rows(*again[0]) if again[0][0] is current else None
    return Superseded(
        chain[-1][1].job_id,
        current.uri,
        current.latest_decision(),
        (min(e[0] for _, e in again), max(e[-1] for _, e in again)) if again else None,
        rows,
        origin.offsets_set,
    )


def _rows(store: CheckpointStore, epochs: range) -> int | None:
    """Return the rows of these epochs, over all sinks; None if the ledger does not tell."""
    entries = {entry.epoch: entry for entry in read_ledger(store).entries}
    if any(epoch not in entries for epoch in epochs):
        return None
    return sum(part.rows for epoch in epochs for part in entries[epoch].sinks.values())


def driver_of(job: NewJob, current: CheckpointStore) -> DriverState:
    """Return the state of this lineage's newest driver."""
    storage, _, name = job.directory.rpartition("/")
    return driver_state(storage, name + current.uri.removeprefix(job.directory), current)


def warnings(current: CheckpointStore, driver: DriverState) -> Iterator[str]:
    """Yield a warning if the driver is on another machine, and nobody can tell whether it runs."""
    with contextlib.suppress(CorruptRecordError):
        lease = current.newest_lease()
        if driver is DriverState.UNKNOWN and lease and lease["host"] != socket.gethostname():
            yield (
                f"the job's last driver, process {lease['pid']} on {lease['host']}, has recorded "
                "no end and cannot be asked from here; if it still runs, the restore ends it"
            )


def problems(job: NewJob, current: CheckpointStore, driver: DriverState) -> Iterator[str]:
    """Yield why this lineage cannot be superseded: its driver runs, or the program lacks a sink
    that must be settled."""
    if driver is DriverState.LIVES:
        yield (
            f"job {job.name!r} is running; a restore under its name begins when it has ended: "
            f"seamark stop -p {job.name}"
        )
    if not job.allow_non_restored_state:
        for uid, count in _left(job, current).items():
            other = f"a {job.sinks[uid]}, of another type" if uid in job.sinks else "no such sink"
            yield (
                f"sink {uid!r} has {count} unsettled transactions of the job that is superseded, "
                f"and the program has {other}; declare it as it was once more, or leave them to "
                "their system: -n, allow_non_restored_state=True"
            )


def _left(job: NewJob, current: CheckpointStore) -> Mapping[str, int]:
    """Return the number of unsettled transactions of each sink that the program lacks, or has as
    one of another type, which cannot read them."""
    assert job.declared is not None
    settled, _ = unsettled(current.latest_decision(), current)
    attempts = list(standing_attempts(current, settled))
    sinks = {uid: declared.sink for uid, declared in job.declared.sinks.items()}

    def reads(uid: str) -> bool:
        try:
            for parts in attempts:
                for data in parts[uid].committables if uid in parts else ():
                    load(sinks[uid], data)
        except Exception as error:  # a sink of the user's may raise anything
            log.info("sink %s: %s", uid, error)
            return False
        return True

    return {
        uid: count
        for uid, count in committables_of(attempts).items()
        if count and not (uid in sinks and reads(uid))
    }


class _Settling(QueryRun):
    """A run without a query."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def open_files(self, uri: str) -> Directory:
        """See `QueryRun`."""
        return open_files(self._spark, uri, make=False)


def settle(spark: SparkSession, job: NewJob, place: Place) -> int:
    """Take the lineage over, commit what it has decided, and abort the rest, with the program's
    sinks; return the generation that did so. Raises as a start does, and RestoreError if
    transactions stay open: no later start of this lineage would end them; or if a driver has
    decided an epoch since the place was found."""
    current = place.current
    assert job.declared is not None and current is not None
    left = _left(job, current)
    for uid, count in left.items():
        log.warning(
            "restore: %d unsettled transactions of sink %r, which the program lacks or has with "
            "another type, are left to their system: nobody commits or aborts them", count, uid,
        )  # fmt: skip
    current.leaves = left
    sessions = function_sessions(spark, clone_session(spark), job.declared, {})
    own = checkpointed_job(spark, job.declared, current, sessions=sessions, left=left)
    sinks = {uid: sink for uid, sink in own.sinks.items() if uid not in left}
    # It keeps all it has, however little the program retains: this may be restored, now or later.
    keeping = replace(own.checkpoint, storage=current.uri, num_retained=sys.maxsize)
    coordinator = Coordinator(replace(own, sinks=sinks, checkpoint=keeping), _Settling(spark))
    coordinator.start()
    coordinator.finish()
    if coordinator.left_open:
        raise RestoreError(
            f"restore: {current.uri} has transactions that could not be aborted (the log says at "
            "which sink); run the same command again when its system answers"
        )
    if (decided := coordinator.restored_epoch) > place.decided:
        raise RestoreError(
            f"restore: while it was planned, {current.uri} went on from epoch {place.decided} to "
            f"{decided}, whose rows would be written again; it has ended now, and goes on by a "
            "plain run. To restore all the same, run the same command again"
        )
    failpoints.reached("lineage-settled")
    return coordinator.generation


def end_lineage(place: Place, generation: int, restored_from: Mapping[str, Any]) -> None:
    """Let the job go on in the target, which is whole, for ever. `generation` has settled the
    current lineage. Raises RestoreError if another driver has taken that over meanwhile."""
    assert place.current is not None
    successor = {
        "lineage": place.number,
        "job_id": place.target.read_identity().job_id,
        "path": restored_from["path"],
        "epoch": restored_from["epoch"],
    }
    try:
        failpoints.drive(supersede(generation, successor, place.current))
    except FencedError as error:
        raise RestoreError(
            f"restore: {place.current.uri} goes on as it was, for another driver has taken it over "
            f"meanwhile ({error}). End that one, and run the same command again"
        ) from error
    log.warning(
        "%s is superseded by %s, restored from %s; it stays readable, and is never written again",
        place.current.uri, place.target.uri, restored_from["path"],
    )  # fmt: skip
