"""Transactional ids: they name a transaction's job, sink, driver generation and worker.

    <prefix>-<job>-<owner>-g<generation>-<worker>-<slot>

`job` is the start of the job id, for people. `owner` is a hash of the whole job id and the sink
uid, so two jobs with one prefix never share an id, nor do two sinks of one job. The driver reads
the generation back from the ids found at the broker (`committer.py`: `list_lingering`).
"""

import hashlib
import re
import secrets
from dataclasses import dataclass

from seamark.contracts.places import LONGEST_PREFIX

# The prefix may hold anything.
_ID = re.compile(r"(.*)-([^-]{1,8}-[0-9a-f]{12})-g(\d+)-([0-9a-f]{12})-(\d+)", re.DOTALL)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]")


def capped(prefix: str) -> str:
    """Return `prefix`, or for a very long prefix its start and a hash of all of it."""
    if len(prefix) <= LONGEST_PREFIX:
        return prefix
    return f"{prefix[:40]}~{_hash(prefix)}"


def owner(job_id: str, sink_uid: str) -> str:
    """Return the part of an id for one sink of one job, e.g. ``3f2a91c0-0c9e41d2aa07``."""
    return f"{_UNSAFE.sub('_', job_id[:8]) or '_'}-{_hash(f'{len(job_id)}:{job_id}{sink_uid}')}"


def new_worker() -> str:
    """Return a token for a Python worker process; the ids of two workers never meet."""
    return secrets.token_hex(6)


@dataclass(frozen=True)
class TransactionalId:
    """The parts of one transactional id."""

    prefix: str
    owner: str
    generation: int
    worker: str
    slot: int

    def __str__(self) -> str:
        return f"{self.prefix}-{self.owner}-g{self.generation}-{self.worker}-{self.slot}"


def parse(text: str) -> TransactionalId | None:
    """Split an id into its parts; None for an id not made by Seamark."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    prefix, owner, generation, worker, slot = match.groups()
    return TransactionalId(prefix, owner, int(generation), worker, int(slot))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
