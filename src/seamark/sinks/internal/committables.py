"""The common base of most sinks' committables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.sink import SinkContext, WriterContext

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
