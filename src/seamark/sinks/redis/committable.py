"""The committable of a staged epoch, and the names of all keys that are Seamark's.

``seamark:<job id>:<sink uid>:`` begins every one of them: ``guard`` (a hash, `scripts.GUARD`),
``stages`` (a hash: each open stage by its handle), ``stage:<handle>`` (a list of blocks),
``committed`` (a sorted set: handles of stages that are applied, by epoch) and ``synced``.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from seamark.contracts.sink import WriterContext

PREFIX = "seamark:"
UNKNOWN = -1


@dataclass(frozen=True)
class RedisCommittable:
    """One stage. `blocks` and `rows` are `UNKNOWN` for one found by listing."""

    handle: str
    job_id: str
    sink_uid: str
    generation: int
    epoch: int
    blocks: int = UNKNOWN
    rows: int = UNKNOWN

    @property
    def keys(self) -> Keys:
        """The keys of the job's sink that made it."""
        return Keys(self.job_id, self.sink_uid)


@dataclass(frozen=True)
class Keys:
    """The names of one sink's own keys."""

    job_id: str
    sink_uid: str

    def named(self, what: str) -> str:
        """Return the key of this kind, e.g. ``guard``."""
        return f"{PREFIX}{self.job_id}:{self.sink_uid}:{what}"

    def stage(self, handle: str) -> str:
        """Return the key of a stage's list."""
        return self.named(f"stage:{handle}")


def new_stage(context: WriterContext) -> RedisCommittable:
    """Return the name of a stage that no other attempt has, nor this one a second time."""
    at = context
    handle = f"{at.generation}.{at.epoch}.{at.partition_id}.{at.attempt}.{uuid.uuid4().hex[:16]}"
    return RedisCommittable(handle, at.job_id, at.sink_uid, at.generation, at.epoch)


def found(keys: Keys, handle: str) -> RedisCommittable:
    """Return the committable of a stage that was found by its handle."""
    generation, epoch, *_ = handle.split(".")
    return RedisCommittable(handle, keys.job_id, keys.sink_uid, int(generation), int(epoch))
