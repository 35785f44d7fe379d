"""Waiting for replicas: what they have acknowledged survives the loss of the primary's machine."""

from __future__ import annotations

from seamark.model.errors import PreCommitError
from seamark.sinks.redis.committable import Keys
from seamark.sinks.redis.server import ANSWER_TIMEOUT_S, Link


def reached(link: Link, keys: Keys, replicas: int) -> int:
    """Return how many replicas have all that was written before this call, by any connection; wait
    until `replicas` have, or for ANSWER_TIMEOUT_S."""
    if replicas == 0:
        return 0
    # WAIT waits for the connection's own last write; replicas get all writes in one order.
    link.call("SET", keys.named("synced"), 1)
    return int(link.call("WAIT", replicas, int(ANSWER_TIMEOUT_S * 1000 / 2)))


def wait(link: Link, keys: Keys, replicas: int) -> None:
    """Raise PreCommitError if not enough replicas have everything in time."""
    found = reached(link, keys, replicas)
    if found < replicas:
        raise PreCommitError(
            f"only {found} of {replicas} replicas have the rows; bring the others back, or lower "
            "replicas= of the sink"
        )
