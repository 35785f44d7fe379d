"""What the committables of most sinks begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.sink import SinkContext, WriterContext

UNKNOWN = -1
C = TypeVar("C", bound="AttemptCommittable")


@dataclass(frozen=True)
class AttemptCommittable:
    """One attempt's transaction. What only its writer knows, `rows` among it, is `UNKNOWN` or empty
    for one that was found by listing."""

    handle: str
    job_id: str
    sink_uid: str
    generation: int
    epoch: int
    rows: int = UNKNOWN

    @classmethod
    def of(cls: type[C], at: WriterContext, handle: object, rows: int, **others: Any) -> C:
        """Return the committable of an attempt that is flushed."""
        fields = (at.job_id, at.sink_uid, at.generation, at.epoch)
        return cls(str(handle), *fields, rows, **others)

    @classmethod
    def found(cls: type[C], at: SinkContext, handle: str, name: AttemptName, **others: Any) -> C:
        """Return the committable of an attempt of this job and sink that was found by its name."""
        return cls(handle, at.job_id, at.sink_uid, name.generation, name.epoch, **others)
