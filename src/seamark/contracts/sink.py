"""The two-phase-commit sink contract (as Flink's `SupportsCommitter`, after FLIP-143).

Order within epoch n: pre-commit (writers, in executor tasks) -> committables stored in the
checkpoint -> the decision -> commit (driver). Recovery commits the decided epochs' committables
again, aborts every other lingering transaction of an older driver, and only then writes anything.
`checkpoint/coordinator.py` is the one caller of committers, `run/pre_commit.py` of writers.

The package exports these names (`sm.TwoPhaseCommitSink`, …). Python refuses to build a subclass
without all methods; a class with all attributes and methods need not be a subclass.
docs/write-a-sink.md writes a whole sink.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from seamark.files.settings import HadoopSettings
from seamark.model.findings import Finding
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Schema, quoted

OUTPUT_MODES = ("append", "update", "complete")


class Committable(Protocol):
    """A small value naming one flushed, still invisible transaction."""

    @property
    def handle(self) -> str:
        """The transaction's id in the external system, unique among this sink's open ones."""


C = TypeVar("C", bound=Committable)
C_co = TypeVar("C_co", bound=Committable, covariant=True)
C_contra = TypeVar("C_contra", bound=Committable, contravariant=True)


class CommitOutcome(Enum):
    """The outcome of one transaction after a request to commit.

    A silent record proves LOST only if it would still hold the commit (docs/sinks/outcomes.md).
    """

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already-committed"  # only with proof for this very transaction
    RETRY = "retry"  # unknown yet, or the system is away: ask again
    LOST = "lost"  # proved aborted or timed out: its rows never become visible
    UNKNOWN = "unknown"  # the system forgot it, and cannot tell whether it is visible


class AbortOutcome(Enum):
    """The outcome of one transaction after a request to abort."""

    ABORTED = "aborted"  # proved: it can never become visible
    COMMITTED = "committed"  # found committed: the coordinator stops and reads the decision again
    RETRY = "retry"


@dataclass(frozen=True)
class SinkContext:
    """Names one sink of one running driver.

    generation: counts the drivers of this job, from 1.
    checkpoint_interval_s, checkpoint_timeout_s, restart_delay_s: in seconds. A transaction may have
        to stay open for their sum, and a sink checks its system's own time-outs against it: the
        interval, then the time until the epoch's decision (inf: no limit; 0: committed before),
        then the time until a failed job is started again.
    schema: the schema given to `select_expressions`; () if the caller knows none.
    hadoop: Spark's way to HDFS and S3, for `seamark.files`.
    tasks: the least number of tasks that write an epoch, each with a transaction of its own; 0: not
        known.
    open_epochs: the number of epochs with open transactions at the same time.
    spool_uri: this sink's spool, a directory in the job's checkpoint for rows put there by the
        sink; "" if the caller has none. The sink makes it. ``<spool_uri>/<epoch>/`` is deleted once
        the epoch has its committed record.
    session: enters, for an epoch, the sink's own clone of the job's Spark session, on a thread that
        is used for nothing else; None if the caller has none.
    """

    job_id: str
    job_name: str
    sink_uid: str
    generation: int
    checkpoint_interval_s: float
    schema: Schema = ()
    hadoop: HadoopSettings = field(default=HadoopSettings())
    spool_uri: str = ""
    checkpoint_timeout_s: float = 0.0
    restart_delay_s: float = 0.0
    tasks: int = 0
    open_epochs: int = 2
    session: Callable[[int], AbstractContextManager[Any]] | None = None


@dataclass(frozen=True)
class WriterContext:
    """Names one attempt of one task: unique across retries, speculation and driver restarts.

    Every epoch up to `settled_epoch` (-1: none) has a recorded outcome. A writer may use ids of
    those epochs again, but no id used in a later epoch. `hadoop`, `spool_uri`: see `SinkContext`.
    """

    job_id: str
    sink_uid: str
    generation: int
    epoch: int
    partition_id: int
    attempt: int
    settled_epoch: int
    hadoop: HadoopSettings = field(default=HadoopSettings())
    spool_uri: str = ""


class CommittingWriter(Protocol[C_co]):
    """One attempt of one executor task. It owns its sockets and files; never pickled or shared."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take one Arrow batch with the columns of `select_expressions`.

        May block for back-pressure, with a deadline. Raises WriteRefusedError for a refused row.
        The batch's buffers are valid only until the call returns. It has `PART_BYTES` at most, or
        one row (`record_batches.py`).
        """

    @abstractmethod
    def prepare_commit(self) -> Sequence[C_co]:
        """Flush, and return one committable per transaction; none if no row came.

        On return every row is durable and still invisible, and survives kill -9 of this process and
        of the server. Called at most once, after the last `write`.
        """

    @abstractmethod
    def abort(self) -> None:
        """Give up this attempt, at any moment, also after `prepare_commit`.

        Best effort: the driver finds and aborts lingering transactions. Must not raise or hang.
        """


@dataclass(frozen=True)
class Lingering(Generic[C]):
    """An open transaction found at the external system, with the generation of its driver."""

    committable: C
    generation: int


class Committer(Protocol[C]):
    """The driver's side of a sink.

    Calls are idempotent and may be repeated after any failure. They return one outcome per
    committable, in order, and come from one thread at a time. No call hangs: if the system is away,
    raise or answer RETRY within seconds; the coordinator keeps the deadline. An exception proves
    nothing of the call's transactions: all are asked for again. An error of `seamark.model.errors`
    ends the job instead.
    """

    @abstractmethod
    def preflight(self) -> None:
        """Check the real system before anything is written; PreflightError has the remedy."""

    @abstractmethod
    def commit(self, committables: Sequence[C]) -> Sequence[CommitOutcome]:
        """Make the transactions visible: called after the decision, and again at recovery."""

    @abstractmethod
    def abort(self, committables: Sequence[C]) -> Sequence[AbortOutcome]:
        """Roll the transactions back, provably: after ABORTED a late commit must fail."""

    @abstractmethod
    def list_lingering(self) -> Iterable[Lingering[C]]:
        """List every open transaction of this job and sink, of any generation and attempt.

        Raises the driver's own error if the system does not answer within seconds.
        """

    @abstractmethod
    def close(self) -> None:
        """Release sockets and threads. Called once; the committer is not used again."""


@runtime_checkable
class TwoPhaseCommitSink(Protocol[C]):
    """Configuration of a sink: validated when built, picklable, holding no open resource.

    `way` names the sink's part in the checkpoint. A sink with rows visible at the flush
    (`SinkWay.NONE`) still follows the contract; its writers return no committables.
    """

    spool: bool = False
    """Whether rows are spooled: kept in the checkpoint until their commit is confirmed, and written
    again if `Committer.commit` answers LOST. Then a writer returns at most one committable, and
    LOST must be a proof."""

    real_time: bool = False
    """Whether writers send each batch at once, even of one row. Such a sink fits
    ``job.run(execution="real-time")``."""

    @property
    def transaction_timeout_s(self) -> float | None:
        """The system's time-out for an open transaction, in seconds; None: never.

        The metrics show the time left.
        """
        return None

    @property
    def places(self) -> Sequence[str]:
        """The places written, each equal to another sink's place there (`contracts/places.py`).

        () if unknown. Never a secret: they are stored and shown.
        """
        return ()

    @property
    def output_modes(self) -> Sequence[str]:
        """Spark's output modes in which this sink has each row of the result once.

        In ``"update"`` mode a row of an aggregation comes again with each change, in ``"complete"``
        mode all rows come in each epoch. By default a sink that writes by key
        (`SinkWay.IDEMPOTENT`) takes every mode, any other ``"append"`` alone. A sink of your own
        that replaces rows, or passes each change on, names the modes in an attribute of its class.
        """
        return OUTPUT_MODES if self.way is SinkWay.IDEMPOTENT else OUTPUT_MODES[:1]

    @property
    def spark_formats(self) -> Sequence[str]:
        """The Spark modules needed by the expressions and not built in, e.g. ``("avro",)``."""
        return ()

    @property
    def way(self) -> SinkWay:
        """The sink's part in the checkpoint."""
        return SinkWay.TWO_PHASE_COMMIT

    @abstractmethod
    def describe(self) -> str:
        """Return one short line for people, e.g. ``Kafka topic orders``; never a secret."""

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """Return Spark SQL expressions from the declared DataFrame to the columns for `write`.

        The default passes each column as it is. Called when the job is built. For a schema unfit
        for this sink, raises ConfigurationError with the column, its type and the allowed ones.
        """
        return [quoted(column.name) for column in schema]

    @abstractmethod
    def check_transaction_scope(self, context: SinkContext) -> None:
        """Check this configuration against the job's, at the start of the run, without any I/O."""

    @abstractmethod
    def create_writer(self, context: WriterContext) -> CommittingWriter[C]:
        """Return a writer; called in an executor task, once per attempt and epoch."""

    @abstractmethod
    def create_committer(self, context: SinkContext) -> Committer[C]:
        """Return the committer; called in the driver, once per run, before `preflight`."""

    @abstractmethod
    def dump(self, committable: C) -> bytes:
        """Serialise: self-describing, with a version; never pickle."""

    @abstractmethod
    def load(self, data: bytes) -> C:
        """Read the bytes of this or an older version's `dump`; raises CorruptRecordError."""


# --- optional parts


@runtime_checkable
class FileSizeSink(Protocol):
    """A sink of files that may ask for their size. Its committables have `size_bytes`, the bytes of
    their files."""

    @property
    def target_file_size(self) -> int | str | None:
        """The wanted bytes of a file; None: any."""


@runtime_checkable
class FilesSink(Protocol):
    """A sink of plain files, which Spark's file source may read, the job's own included."""

    @property
    def example_file(self) -> str:
        """A file as one that the sink may write, a path or URI; a directory for any value of a
        partition column is ``<column>=*``."""


@runtime_checkable
class InspectedSink(Protocol):
    """A sink that can look at its system, for ``explain --preflight``."""

    def inspect(self, context: SinkContext) -> Sequence[Finding]:
        """Ask the real system and return every finding, without a secret; change nothing.

        Called in the driver's process, maybe while the job runs elsewhere; returns within tens of
        seconds, with a finding if the system does not answer. `context.generation` is 0.
        """


@dataclass(frozen=True)
class HeldUp:
    """Readers waiting for a transaction's end, at one place: of Kafka a topic's partition.

    `rows`: records beyond the last one seen by read_committed readers, other transactions' too.
    `first`: whether this transaction is the oldest open one there; None if not told.
    `groups`: how many records each known group of readers has yet to read before it waits too;
    None if not told.
    """

    place: str
    rows: int
    first: bool | None
    groups: Mapping[str, int] | None = None


@dataclass(frozen=True)
class OpenFacts:
    """One open transaction. Times are in seconds since 1970, by the system's clock; None where the
    system does not tell. `expires_at` is None also without a time-out."""

    started_at: float | None = None
    expires_at: float | None = None
    held_up: tuple[HeldUp, ...] = ()


@runtime_checkable
class DescribesTransactions(Protocol[C_contra]):
    """A committer with more facts of its open transactions, for ``seamark txn``: no decision rests
    on them."""

    def describe_open(self, committables: Sequence[C_contra]) -> Sequence[OpenFacts]:
        """Return the facts of each, in order; empty facts for an ended one.

        Raises the driver's own error if the system does not answer within seconds.
        """
