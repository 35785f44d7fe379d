"""The common bases of most sinks and of their committables."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.committables import dump_committable, load_committable
from seamark.contracts.sink import C as AnyCommittable
from seamark.contracts.sink import (
    Committer,
    CommittingWriter,
    SinkContext,
    TwoPhaseCommitSink,
    WriterContext,
)
from seamark.model.findings import Finding
from seamark.sinks.internal.servers import Findings, listed

UNKNOWN = -1
C = TypeVar("C", bound="AttemptCommittable")


@dataclass(frozen=True)
class AttemptCommittable:
    """One attempt's transaction. In a committable found by listing, the fields known only to its
    writer, such as `rows`, are `UNKNOWN` or empty."""

    handle: str
    job_id: str
    sink_uid: str
    generation: int
    epoch: int
    rows: int = UNKNOWN

    @classmethod
    def of(cls: type[C], at: WriterContext, handle: object, rows: int, **others: Any) -> C:
        """Return the committable of a flushed attempt."""
        fields = (at.job_id, at.sink_uid, at.generation, at.epoch)
        return cls(str(handle), *fields, rows, **others)

    @classmethod
    def found(cls: type[C], at: SinkContext, handle: str, name: AttemptName, **others: Any) -> C:
        """Return the committable of an attempt of this job and sink, found by its name."""
        return cls(handle, at.job_id, at.sink_uid, name.generation, name.epoch, **others)


class StagingSink(TwoPhaseCommitSink[AnyCommittable]):
    """A sink of a system that ends no open transaction by itself.

    writer, committer: make a writer and the committer, of the sink and the context.
    committable, format_version: the dataclass of its committables, and the version of its fields.
    """

    writer: ClassVar[Callable[..., CommittingWriter[Any]]]
    committer: ClassVar[Callable[..., Committer[Any]]]
    committable: ClassVar[type[Any]]
    format_version: ClassVar[int] = 1

    @abstractmethod
    def look(self, context: SinkContext, name: str, *, start: bool) -> Findings:
        """Look at the real system, as `Findings` says; `name` is the findings' subject."""

    def inspect(self, context: SinkContext) -> Sequence[Finding]:
        """See `InspectedSink`."""
        name = f"sink `{context.sink_uid}`: {self.describe()}"
        return listed(self.look(context, name, start=False))

    def check_transaction_scope(self, context: SinkContext) -> None:
        """Check nothing: what is staged has no time-out, and its name holds job and sink."""

    def create_writer(self, context: WriterContext) -> CommittingWriter[AnyCommittable]:
        """See `TwoPhaseCommitSink`. It touches nothing before the first row."""
        return self.writer(self, context)

    def create_committer(self, context: SinkContext) -> Committer[AnyCommittable]:
        """See `TwoPhaseCommitSink`. It connects when first needed."""
        return self.committer(self, context)

    def dump(self, committable: AnyCommittable) -> bytes:
        """See `TwoPhaseCommitSink`."""
        return dump_committable(committable, self.format_version)

    def load(self, data: bytes) -> AnyCommittable:
        """See `TwoPhaseCommitSink`."""
        loaded: AnyCommittable = load_committable(self.committable, data, self.format_version)
        return loaded
