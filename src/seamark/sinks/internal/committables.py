"""The common bases of most sinks and of their committables."""

from dataclasses import dataclass
from typing import Any, TypeVar

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.committables import dump_committable
from seamark.contracts.sink import C as AnyCommittable
from seamark.contracts.sink import SinkContext, TwoPhaseCommitSink, WriterContext

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
    """A sink of a system that ends no open transaction by itself."""

    def check_transaction_scope(self, context: SinkContext) -> None:
        """Check nothing: what is staged has no time-out, and its name holds job and sink."""

    dump = staticmethod(dump_committable)
