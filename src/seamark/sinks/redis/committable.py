"""The committable of a staged epoch, and the names of all of Seamark's own keys.

Every key begins with ``seamark:<job id>:<sink uid>:`` and ends with one of: ``guard`` (a hash, see
`scripts.py`), ``stages`` (a hash: each open stage by its handle), ``stage:<handle>`` (a list of
blocks), ``committed`` (a sorted set: handles of applied stages, by epoch), ``synced``.
"""

from dataclasses import dataclass

from seamark.sinks.internal.committables import UNKNOWN, AttemptCommittable

PREFIX = "seamark:"


@dataclass(frozen=True)
class RedisCommittable(AttemptCommittable):
    """One stage. Its handle is the attempt's name."""

    blocks: int = UNKNOWN

    @property
    def keys(self) -> "Keys":
        """The keys of the stage's own job and sink."""
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
