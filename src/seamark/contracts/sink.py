"""The two-phase-commit sink contract (as Flink's `SupportsCommitter`, after FLIP-143).

Order within epoch n: pre-commit (writers, in executor tasks) -> committables stored in the
checkpoint -> the decision -> commit (driver). At recovery: the decided epochs' committables are
committed again, every other lingering transaction of an older driver is aborted, and only then is
anything written. `checkpoint/coordinator.py` is the one caller of committers,
`runtime/pre_commit.py` of writers.

The package exports these names (`sm.TwoPhaseCommitSink`, …). A subclass that lacks a method cannot
be built; a class that has all attributes and methods need not be one. docs/write-a-sink.md writes a
whole sink.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

from seamark.file_systems.settings import HadoopSettings
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Schema, quoted

if TYPE_CHECKING:
    import pyarrow as pa


class Committable(Protocol):
    """A small value that names one flushed, still invisible transaction."""

    @property
    def handle(self) -> str:
        """The transaction's id in the external system, unique among this sink's open ones."""
        ...


C = TypeVar("C", bound=Committable)
C_co = TypeVar("C_co", bound=Committable, covariant=True)


class CommitOutcome(Enum):
    """What became of one transaction that the coordinator asked to commit. A record that is silent
    proves LOST only if it would still have the commit; docs/sinks/outcomes.md has every sink's
    answers."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already-committed"  # only with proof tied to that very transaction
    RETRY = "retry"  # not known yet, or the system is away: ask again
    LOST = "lost"  # proved aborted or timed out: its rows are not visible and never will be
    UNKNOWN = "unknown"  # the system has forgotten it: visible or not, it cannot tell any more


class AbortOutcome(Enum):
    """What became of one transaction that the coordinator asked to abort."""

    ABORTED = "aborted"  # proved: it can never become visible any more
    COMMITTED = "committed"  # found committed: the coordinator stops and reads the decision again
    RETRY = "retry"


@dataclass(frozen=True)
class SinkContext:
    """Names one sink of one running driver.

    `generation` counts the drivers of this job, from 1. A transaction may have to stay open for
    `checkpoint_interval_s`, and after that for `checkpoint_timeout_s` until its epoch's decision
    (inf: however long; 0: it is committed before), and for `restart_delay_s` until a job that has
    failed is started again; a system's own time-outs are checked against their sum.
    `schema` is what `select_expressions` was shown; () if the caller knows none. `hadoop` is how
    Spark reaches HDFS and S3, for `seamark.file_systems`. `spool_uri` is this
    sink's spool: a directory in the job's checkpoint, for rows that it puts there itself (made by
    the sink; what lies in ``<spool_uri>/<epoch>/`` is deleted when the epoch has its
    committed record); "" if the caller has none.
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


@dataclass(frozen=True)
class WriterContext:
    """Names one attempt of one task: unique across retries, speculation and driver restarts.

    Every epoch up to `settled_epoch` (-1: none) has its outcome recorded, so ids that were used in
    them may be used again; an id used in a later epoch may not. `hadoop` and `spool_uri` are as in
    `SinkContext`.
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
    """One attempt of one executor task. Owns its sockets and files; never pickled or shared."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take one Arrow batch with the columns of `select_expressions`.

        May block for back-pressure, with a deadline. Raises WriteRefusedError for a refused row.
        The batch's buffers are valid only until the call returns.
        """
        ...

    @abstractmethod
    def prepare_commit(self) -> Sequence[C_co]:
        """Flush. On return every row is durable and still invisible, and survives kill -9 of this
        process and of the server. Returns one committable per transaction, none if no row came.
        Called at most once, after the last `write`."""
        ...

    @abstractmethod
    def abort(self) -> None:
        """Give up this attempt, at any moment, also after `prepare_commit`. Best effort: what it
        leaves behind is lingering and aborted by the driver. Must not raise or hang."""
        ...


@dataclass(frozen=True)
class Lingering(Generic[C]):
    """An open transaction found at the external system, and the driver generation it came from."""

    committable: C
    generation: int


class Committer(Protocol[C]):
    """The driver's side of a sink. Calls are idempotent, may be repeated after any failure, return
    one outcome per committable in order, and come from one thread at a time. No call hangs: a
    system that is away answers RETRY within seconds, and the coordinator keeps the deadline."""

    @abstractmethod
    def preflight(self) -> None:
        """Check the real system before anything is written; raises PreflightError with the remedy.
        Takes ownership of the transaction prefix, if the system needs one, until `close`."""
        ...

    @abstractmethod
    def commit(self, committables: Sequence[C]) -> Sequence[CommitOutcome]:
        """Make the transactions visible: called after the decision, and again at recovery."""
        ...

    @abstractmethod
    def abort(self, committables: Sequence[C]) -> Sequence[AbortOutcome]:
        """Roll the transactions back, provably: after ABORTED a late commit must fail."""
        ...

    @abstractmethod
    def list_lingering(self) -> Iterable[Lingering[C]]:
        """List every open transaction of this job and sink, of any generation and attempt. Raises
        AbortFailedError if the system does not answer within seconds."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Release sockets, threads and the prefix. Called once; the committer is not used again."""
        ...


@runtime_checkable
class TwoPhaseCommitSink(Protocol[C]):
    """Configuration of a sink: validated when built, picklable, holding no open resource.

    `way` says what the sink gives; one whose rows are visible at the flush (`SinkWay.NONE`) still
    follows the contract, with writers that return no committables.
    """

    spool: bool = False
    """Whether rows are spooled: kept in the checkpoint until their commit is confirmed, and written
    again if `Committer.commit` answers LOST. Then a writer returns at most one committable, and
    LOST must be a proof."""

    @property
    def transaction_timeout_s(self) -> float | None:
        """After how many seconds the system ends a transaction that is still open; None: never.
        The metrics show how near it is."""
        return None

    @property
    def spark_formats(self) -> Sequence[str]:
        """The modules of Spark's, not built in, that the expressions need, e.g. ``("avro",)``."""
        return ()

    @property
    def way(self) -> SinkWay:
        """How this sink takes part in the checkpoint."""
        return SinkWay.TWO_PHASE_COMMIT

    @abstractmethod
    def describe(self) -> str:
        """Return one short line for people, e.g. ``Kafka topic orders``; never a secret."""
        ...

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """Return the Spark SQL expressions that make the columns which `write` gets from the
        declared DataFrame: here, each column as it is. Called when the job is built; raises
        ConfigurationError for a schema that this sink cannot take, naming the column, its type and
        what is allowed."""
        return [quoted(column.name) for column in schema]

    @abstractmethod
    def check_transaction_scope(self, context: SinkContext) -> None:
        """Check this configuration against the job's, when the run starts, without any I/O."""
        ...

    @abstractmethod
    def create_writer(self, context: WriterContext) -> CommittingWriter[C]:
        """Called in an executor task, once per attempt and epoch."""
        ...

    @abstractmethod
    def create_committer(self, context: SinkContext) -> Committer[C]:
        """Called in the driver, once per run, before `preflight`."""
        ...

    @abstractmethod
    def dump(self, committable: C) -> bytes:
        """Serialise: self-describing, with a version; never pickle."""
        ...

    @abstractmethod
    def load(self, data: bytes) -> C:
        """Read what this or an older version of `dump` wrote; raises CorruptRecordError."""
        ...
