"""`EphemeralStorage`: checkpoints that do not outlive the program, for tests and trials."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EphemeralStorage:
    """Checkpoints in a local temporary directory that is deleted at the end of the program.

    The value of `CheckpointConfig.storage` for tests and trials (Flink: JobManager checkpoint
    storage). A program that ends or dies leaves nothing to go on from, so no guarantee holds across
    programs; `explain` says so. A job that is restarted within the program does go on.
    """
