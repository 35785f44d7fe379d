"""`FailedCheckpoint`: one epoch that failed, when and why; `runtime/failures.py` tells why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class CheckpointFailureReason(Enum):
    """Why an epoch failed (Flink: `CheckpointFailureReason`): what `tolerable_failed_checkpoints`
    counts."""

    EXPIRED = "it was not decided within the timeout"
    PRE_COMMIT = "a sink did not take its rows"
    STORAGE = "the checkpoint storage refused a write"


@dataclass(frozen=True)
class FailedCheckpoint:
    """An epoch that failed and runs again under the same number.

    `failed_at` is in seconds since 1970, for people.
    """

    epoch: int
    failed_at: float
    reason: CheckpointFailureReason
    message: str

    def __str__(self) -> str:
        return f"epoch {self.epoch}, {self.reason.name}: {self.message}"
