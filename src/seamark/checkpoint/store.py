"""The checkpoint store: one job's directory, as the protocol's `Records`.

    job.json  lease/<generation>.json  spark/commits/<epoch>
    epochs/<epoch>/started.json  prepared.<generation>.json  sealed.<generation>.json
                   committed.json
    ledger/<last epoch>.json   the sums of decided epochs (`ledger.py`)
    losses/<epoch>.<sink>.json   kept for ever (`accepted_losses.py`)
    wal/<sink>/<epoch>/   a sink's spool, until the epoch is committed (deleted here alone)
    channel-state/<epoch>/   rows read and not written, until no retained epoch refers to them

Invariant: a record, once created, is never changed; it is deleted only when nothing needs it
(`garbage.py`, `forget_generations`).
"""

import contextlib
import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from seamark.api.declarations import SPARK_DIRECTORY
from seamark.checkpoint.accepted_losses import find_loss, write_loss
from seamark.checkpoint.channel_state import CHANNEL_STATE, NO_CHANNEL_STATE, ChannelState
from seamark.checkpoint.envelope import create_record, load_record, read_record
from seamark.checkpoint.lineages import SUPERSEDED_BY
from seamark.checkpoint.sink_epoch import PreparedSinks, SinkEpoch
from seamark.checkpoint.spark_files import unique_ids
from seamark.checkpoint.spark_logs import SparkLogs
from seamark.checkpoint.storage_check import check_storage
from seamark.contracts.spool import spool_directory
from seamark.files import Directory, numbered
from seamark.files.location import encoded
from seamark.model.errors import (
    CheckpointError,
    CorruptRecordError,
    DecisionVoidError,
    FencedError,
    LostTransactionError,
    RecordNotStoredError,
)
from seamark.model.kafka_client import TopicIds
from seamark.model.records import read_as, record_of
from seamark.protocol.accept_loss import Acceptance
from seamark.protocol.ports import EpochRecord
from seamark.protocol.procedures import winner_of
from seamark.protocol.states import Seal

log = logging.getLogger(__name__)

_RECORD = re.compile(r"(prepared|sealed)\.(\d+)\.json")
LEASES = "lease"
LEDGER = "ledger"


StateColumns = Mapping[str, Mapping[str, Sequence[str]]]
"""By Spark's version and an operator's number in Spark, the names of the columns of its key; for an
aggregation also those of what its functions keep."""


@dataclass(frozen=True)
class Known:
    """What a lease has of the job at its driver's start, for the checks of the next one. `topics`
    are those read by Kafka sources, `settings` Spark's by which the same program computes other
    values. Empty where it is not known."""

    topics: TopicIds = field(default_factory=dict)
    state_columns: StateColumns = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobIdentity:
    """The identity of a job, for ever: written once, at the first use of its directory.

    `first_epoch` is 0, or the first epoch to commit after a restored checkpoint, or after the last
    batch of an adopted Spark checkpoint location. `restored_from`: the `path`, `job_id` and `epoch`
    of the restored checkpoint, and `is_savepoint` if it is one. `spark_directory` is the path of
    the Spark checkpoint location below the job's directory, "" for the directory itself.
    `log_directory`, of a data source's location alone, is the path of its log's directory; ""
    before there were such, and for jobs.
    """

    job_id: str
    lineage_id: str
    name: str
    first_epoch: int
    created_at: float = 0.0
    restored_from: Mapping[str, Any] | None = None
    spark_directory: str = SPARK_DIRECTORY
    log_directory: str = ""

    @staticmethod
    def of(body: Mapping[str, Any]) -> "JobIdentity":
        """Read the stored form, which may lack what serves only people; raises TypeError."""
        return read_as(JobIdentity, body, newer=True)


class CheckpointStore(SparkLogs):
    """One job's records below `files`; `spark` is its Spark checkpoint location."""

    def __init__(self, files: Directory, spark: Directory) -> None:
        super().__init__(files, spark)
        self.leaves: Collection[str] = ()
        """Sinks whose transactions are left to their system (`restore/lineage.py`)."""
        self.known = Known()
        """For this driver's lease."""
        self._identity: JobIdentity | None = None
        self._own_of_next: tuple[int, dict[str, Any]] = (-1, {})
        self._own: dict[tuple[int, int], dict[str, Any]] = {}
        """Of the attempts stored here and not sealed yet: a read is dear on an object store."""

    def external_path(self, epoch: int) -> str:
        """Return the name of this epoch's checkpoint for ``job.run(restore=…)``."""
        return f"{self.uri}/epochs/{epoch}"

    def spool_uri(self, sink_uid: str) -> str:
        """Return the directory of this sink's spool, in the form for `open_directory`."""
        return encoded(f"{self.uri}/{spool_directory(sink_uid)}")

    @property
    def channel_state_uri(self) -> str:
        """The directory of the channel state, in the form for `open_directory`."""
        return encoded(f"{self.uri}/{CHANNEL_STATE}")

    # --- the job

    def preflight(self) -> None:
        """Check that the storage can hold records; raises PreflightError."""
        check_storage(self.files)

    def open(self, name: str) -> JobIdentity:
        """Read the job's identity, or write it if this directory is new."""
        try:
            return self.open_existing(name)
        except FileNotFoundError:
            identity = JobIdentity(
                job_id=uuid.uuid4().hex,
                lineage_id=uuid.uuid4().hex,
                name=name,
                first_epoch=self.latest_decision() + 1,
                created_at=time.time(),
                spark_directory=self.spark_directory,
            )
            self.create_identity(identity)
        return self.open_existing(name)

    def open_existing(self, name: str) -> JobIdentity:
        """Read the job's identity; raises FileNotFoundError if this directory is new."""
        self._identity = identity = self.read_identity()
        if identity.name != name:
            raise CheckpointError(
                f"{self.uri} holds the checkpoints of job {identity.name!r}, not of "
                f"{name!r}; use that name, or another storage"
            )
        return identity

    def check_identity(self, identity: JobIdentity) -> None:
        """Raise RecordNotStoredError unless the directory is still this job's. A mount that is away
        looks like an empty directory, and a decided epoch would look undecided."""
        try:
            job_id = self.read_identity().job_id
        except FileNotFoundError:
            job_id = None
        if job_id != identity.job_id:
            raise RecordNotStoredError(
                f"{self.uri} no longer holds job {identity.job_id} (found: {job_id}); is its file "
                "system still mounted? Nothing is lost; make the storage reachable again"
            )

    def create_identity(self, identity: JobIdentity) -> JobIdentity:
        """Give this directory to the job; return the stored identity (the first writer's)."""
        made = self._create("job", "job.json", asdict(identity))
        return identity if made else self.read_identity()

    def read_identity(self) -> JobIdentity:
        """Read job.json; raises FileNotFoundError or CorruptRecordError."""
        with self._blamed("job.json", "read"):
            return load_record(self.files, "job", "job.json", JobIdentity.of)

    # --- protocol.ports.Records

    def generations(self) -> list[int]:
        """Return the generations with a lease, ascending."""
        return numbered(self._list("lease"), ".json")

    def claim_generation(self, generation: int) -> bool:
        """Create the lease; return False if another driver has it."""
        return self._create_lease(generation, self.known)

    def is_last(self, generation: int) -> bool:
        """Return whether this lease ends the lineage. A damaged one does not say so here: a start
        has found that before (`lineages_of`)."""
        with contextlib.suppress(FileNotFoundError, CorruptRecordError):
            return SUPERSEDED_BY in self._open("lease", f"lease/{generation}.json")
        return False

    def end_lineage(self, generation: int, successor: Mapping[str, Any]) -> bool:
        """Create the lineage's last lease; return False if another driver has it."""
        known = self.read_known()  # for a restore of this lineage's checkpoints
        return self._create_lease(generation, known, **{SUPERSEDED_BY: dict(successor)})

    def _create_lease(self, generation: int, known: Known, **more: Any) -> bool:
        holder = {
            "generation": generation,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started_at": time.time(),
            "directory": self.uri,
            **asdict(known),
            **more,
        }
        return self._create("lease", f"lease/{generation}.json", holder)

    def read_known(self) -> Known:
        """Return what the newest lease has of its driver's job; nothing if it is damaged."""
        try:
            lease = self.newest_lease() or {}
        except CorruptRecordError as error:
            log.warning("%s; what it knew, by which a start finds a changed job, is lost", error)
            lease = {}
        return Known(*(lease.get(known.name, {}) for known in fields(Known)))

    def newest_lease(self) -> Mapping[str, Any] | None:
        """Return the newest lease (``generation``, ``host``, ``pid``, ``started_at``,
        ``directory``: missing in older ones), or None."""
        newest = max(self.generations(), default=None)
        return None if newest is None else self._open("lease", f"lease/{newest}.json")

    def forget_generations(self, generations: list[int]) -> None:
        """Delete the leases of settled generations. One that cannot be deleted is settled again by
        the next driver."""
        for generation in generations:
            try:
                self.delete(f"lease/{generation}.json")
            except RecordNotStoredError as error:
                log.warning("%s", error)

    def read_plan(self, epoch: int) -> str | None:
        """See `SparkLogs`. None in real-time mode: Spark plans an epoch at its end."""
        own_of, own = self._own_of_next
        return None if own_of == epoch and "ends" in own else super().read_plan(epoch)

    def prepared_plan(self, epoch: int, generation: int) -> str | None:
        """Return the plan in the attempt's prepared record; None if there is none: the record is
        gone or has none (real-time mode; an older version's record)."""
        return self._plan_in("prepared", _prepared(epoch, generation))

    def claimed_plan(self, epoch: int) -> str | None:
        """Return the plan in the epoch's claim (at-most-once); None if there is none."""
        return self._plan_in("started", _started(epoch))

    def _plan_in(self, kind: str, path: str) -> str | None:
        with contextlib.suppress(FileNotFoundError):
            plan: str | None = self._open(kind, path).get("plan")
            return plan
        return None

    def sealed_decision(self, epoch: int, generation: int) -> str | None:
        """Return the epoch's entry of Spark's commit log as the attempt's seal holds it; None if
        the seal has none: the entry was gone by then, or the seal is of an older version."""
        body = self._open("sealed", f"epochs/{epoch}/sealed.{generation}.json")
        decision: str | None = body.get("decision")
        return decision

    def epochs(self) -> list[int]:
        """Return every epoch with a record, ascending."""
        return numbered(self._list("epochs"))

    def epoch(self, epoch: int) -> EpochRecord:
        """Return one epoch's records. Proves the checksums of seals and committed record."""
        names: Sequence[str] = self._list(f"epochs/{epoch}")
        generations = {"prepared": set[int](), "sealed": set[int]()}
        for name in names:
            if match := _RECORD.fullmatch(name):
                generations[match[1]].add(int(match[2]))
        committed = None
        if "committed.json" in names:
            committed = int(self._open("committed", f"epochs/{epoch}/committed.json")["generation"])
        return EpochRecord(
            prepared=frozenset(generations["prepared"]),
            seals={
                g: Seal(self._open("sealed", f"epochs/{epoch}/sealed.{g}.json")["seal"])
                for g in generations["sealed"]
            },
            committed=committed,
        )

    def first_epoch(self) -> int:
        """Return the first epoch of the job's checkpoints."""
        if self._identity is None:
            raise CheckpointError(f"{self.uri}: the store was used before `open`")
        return self._identity.first_epoch

    def claim_epoch(self, epoch: int, generation: int, plan: str | None) -> bool:
        """Claim the epoch and its plan for `generation`; return False if it is claimed already."""
        body = {"epoch": epoch, "generation": generation, "started_at": time.time(), "plan": plan}
        return self._create("started", _started(epoch), body)

    def write_prepared(
        self, epoch: int, generation: int, parts: Mapping[str, SinkEpoch], plan: str | None
    ) -> None:
        """Store the committables of all sinks, by uid, and the plan, exclusively; of
        `PreparedSinks` the channel state too. Raises FencedError if the record exists."""
        state = parts.channel_state if isinstance(parts, PreparedSinks) else NO_CHANNEL_STATE
        body: dict[str, Any] = {
            "epoch": epoch,
            "generation": generation,
            "sinks": record_of(parts),
        }
        own = self._own_of_next[1] if self._own_of_next[0] == epoch else {}
        body |= own
        if plan is not None:
            body["plan"] = plan
        if state.stages:
            body["channel_state"] = state.to_json()
        if state.event_times:
            body["event_times"] = state.event_times
        if not self._create("prepared", _prepared(epoch, generation), body):
            raise FencedError(
                f"epoch {epoch} was prepared already by a driver of generation {generation}: "
                "two drivers hold the same lease; this one stops"
            )
        self._own[epoch, generation] = own

    def seal(self, epoch: int, generation: int, seal: Seal) -> Seal:
        """Create the attempt's seal unless it has one; return the standing seal.

        Raises DecisionVoidError, with the attempt sealed ABORT, if it was to be sealed COMMIT and
        the decision is not its own.
        """
        path = f"epochs/{epoch}/sealed.{generation}.json"
        void = seal is Seal.COMMIT and not self._is_own_decision(epoch, generation)
        if void and self.seal(epoch, generation, Seal.ABORT) is Seal.ABORT:
            raise DecisionVoidError(
                f"epoch {epoch} was decided by a driver that this one has fenced, and with other "
                "offsets or state than this driver's. That decision is void: nothing was "
                f"committed. Start the job again, and epoch {epoch} runs again"
            )
        body = {"epoch": epoch, "generation": generation, "seal": seal.value}
        if seal is Seal.COMMIT:
            with contextlib.suppress(FileNotFoundError):
                body["decision"] = self._read_log(f"commits/{epoch}")
        if self._create("sealed", path, body):
            return seal
        return Seal(self._open("sealed", path)["seal"])

    def _is_own_decision(self, epoch: int, generation: int) -> bool:
        """Return whether Spark's logs have what the attempt noted by `note_own`.

        A missing entry of the commit log counts as its own: the caller has seen one. Spark deletes
        it after decisions on later epochs, and makes those only after a decision of its own.
        """
        try:
            own = self._own.pop((epoch, generation))
        except KeyError:
            try:
                own = self._open("prepared", _prepared(epoch, generation))
            except FileNotFoundError:
                return True
        if own.get("ends") is not None:
            return bool(self._spark_log(f"offsets/{epoch}")[1:] == own["ends"])
        if (state := own.get("state")) is None:
            return True
        commit = self._spark_log(f"commits/{epoch}")
        return not commit or state["id"] in unique_ids(commit, state["store"])

    def write_committed(self, epoch: int, generation: int) -> None:
        """Record that every sink has committed the epoch, but those in `leaves`."""
        body: dict[str, Any] = {
            "epoch": epoch, "generation": generation, "committed_at": time.time()
        }  # fmt: skip
        if self.leaves:
            body["left"] = sorted(self.leaves)
        self._create("committed", f"epochs/{epoch}/committed.json", body)

    def left(self, epoch: int) -> Collection[str]:
        """Return the uids whose transactions of a committed epoch were left to their system."""
        path = f"epochs/{epoch}/committed.json"
        left: Collection[str] = ()
        with contextlib.suppress(FileNotFoundError):
            left = self._open("committed", path).get("left", ())
        return left

    def write_ledger_page(self, last_epoch: int, body: dict[str, Any]) -> None:
        """Create a page of the ledger (`ledger.py`); a repetition changes nothing."""
        self._create("ledger", f"{LEDGER}/{last_epoch}.json", body)

    def accepted_losses(self, epoch: int, generation: int, uid: str) -> Set[str]:
        """Return the handles of one sink's transactions of an attempt whose loss was accepted."""
        with self._blamed("losses", "read"):
            loss = find_loss(self.files, epoch, uid)
        if loss is None or loss.generation != generation:
            return frozenset()
        log.warning("%s", loss)
        return frozenset(loss.transactions)

    def accept_loss(self, loss: Acceptance, generation: int, lost: LostTransactionError) -> None:
        """Record that the loss of these transactions is accepted; a repetition changes nothing."""
        rows = self.read_prepared(loss.epoch, generation)[loss.uid].rows
        with self._blamed("losses", "written"):
            write_loss(self.files, loss, generation, lost, rows)

    # --- for the coordinator, beside the protocol

    def note_own(self, epoch: int, **own: Any) -> None:
        """Note, for the epoch's prepared record, what tells this attempt's decision from that of a
        fenced driver that wakes up. Called before the attempt is stored.

        `ends`, in real-time mode: the offset at which each source ended, as in Spark's offset log.
        `state`, of a keyed operator in Spark's checkpoint format 2: the unique `id` that its commit
        log has for a `store` (``<operator>/<partition>``).
        """
        self._own_of_next = (epoch, own)

    def read_prepared(self, epoch: int, generation: int) -> PreparedSinks:
        """Return a stored attempt's committables by sink uid, and its channel state."""

        def load(body: dict[str, Any]) -> PreparedSinks:
            sinks = body["sinks"].items()
            prepared = PreparedSinks(
                (uid, read_as(SinkEpoch, part, newer=True)) for uid, part in sinks
            )
            prepared.channel_state = ChannelState.from_json(
                body.get("channel_state", ()), body.get("event_times", ())
            )
            return prepared

        path = _prepared(epoch, generation)
        with self._blamed(path, "read"):
            return load_record(self.files, "prepared", path, load)

    def channel_state(self, epoch: int) -> ChannelState:
        """Return the channel state of a decided epoch; none if it has no records here."""
        if epoch < 0:
            return NO_CHANNEL_STATE
        record = self.epoch(epoch)
        winner = winner_of(record)
        if winner is None:
            return NO_CHANNEL_STATE
        try:
            return self.read_prepared(epoch, winner).channel_state
        except FileNotFoundError:  # a restored job's first epoch
            return NO_CHANNEL_STATE

    def forget_rows(self, sink_uid: str, epoch: int) -> None:
        """Delete the rows kept by a sink for an epoch committed everywhere."""
        self.delete(f"{spool_directory(sink_uid)}/{epoch}")

    def _create(self, kind: str, path: str, body: dict[str, Any]) -> bool:
        with self._blamed(path, "written"):
            return create_record(self.files, kind, path, body)

    def delete(self, path: str) -> None:
        """Delete a file or a directory, if it exists; raises RecordNotStoredError."""
        with self._blamed(path, "deleted"):
            self.files.delete(path)

    def _open(self, kind: str, path: str) -> dict[str, Any]:
        with self._blamed(path, "read"):
            return read_record(self.files, kind, path)

    def _list(self, path: str) -> list[str]:
        with self._blamed(path, "listed"):
            return self.files.list(path)


def _prepared(epoch: int, generation: int) -> str:
    return f"epochs/{epoch}/prepared.{generation}.json"


def _started(epoch: int) -> str:
    return f"epochs/{epoch}/started.json"
