"""The state machine of one attempt (one generation's try at one epoch), as a table.

    PENDING --pre_commit--> PRE_COMMITTED --store--> PREPARED --decide--> DECIDED
       |                        |                       |                  |  |
       +---------abort----------+---------abort---------+----(void)--------+ seal
                                |                                             v
                                v                   COMMITTED <--confirm-- SEALED
                             ABORTED

`Seal` is the tie-break between a driver that goes on to commit and a successor that aborts: one
exclusive create per attempt, made before the first sink commit or the first abort.
"""

from enum import Enum

from seamark.model.errors import SeamarkError


class AttemptState(Enum):
    """How far one attempt at an epoch has come."""

    PENDING = "pending"
    PRE_COMMITTED = "pre-committed"
    PREPARED = "prepared"
    DECIDED = "decided"
    SEALED = "sealed"
    COMMITTED = "committed"
    ABORTED = "aborted"


class AttemptEvent(Enum):
    """The events of an attempt."""

    PRE_COMMIT = "every task has flushed and returned its committables"
    STORE = "the prepared record is durable"
    DECIDE = "Spark's commit log holds the epoch"
    SEAL = "the seal says commit"
    CONFIRM = "every sink has committed and the committed record is durable"
    ABORT = "the seal says abort, or nothing was stored"


class Seal(Enum):
    """The fate of an attempt; the first seal written stands for ever."""

    COMMIT = "commit"
    ABORT = "abort"


TRANSITIONS: dict[tuple[AttemptState, AttemptEvent], AttemptState] = {
    (AttemptState.PENDING, AttemptEvent.PRE_COMMIT): AttemptState.PRE_COMMITTED,
    (AttemptState.PENDING, AttemptEvent.ABORT): AttemptState.ABORTED,
    (AttemptState.PRE_COMMITTED, AttemptEvent.STORE): AttemptState.PREPARED,
    (AttemptState.PRE_COMMITTED, AttemptEvent.ABORT): AttemptState.ABORTED,
    (AttemptState.PREPARED, AttemptEvent.DECIDE): AttemptState.DECIDED,
    (AttemptState.PREPARED, AttemptEvent.ABORT): AttemptState.ABORTED,
    # A decision after a successor's seal is void: the attempt was aborted first.
    (AttemptState.DECIDED, AttemptEvent.ABORT): AttemptState.ABORTED,
    (AttemptState.DECIDED, AttemptEvent.SEAL): AttemptState.SEALED,
    (AttemptState.SEALED, AttemptEvent.CONFIRM): AttemptState.COMMITTED,
    # Idempotent repeats: a recovery may find its own work done.
    (AttemptState.SEALED, AttemptEvent.SEAL): AttemptState.SEALED,
    (AttemptState.COMMITTED, AttemptEvent.CONFIRM): AttemptState.COMMITTED,
    (AttemptState.ABORTED, AttemptEvent.ABORT): AttemptState.ABORTED,
}


class IllegalTransitionError(SeamarkError):
    """A move outside the table: a bug, never a condition of the outside world."""


def advance(name: str, state: AttemptState, event: AttemptEvent) -> AttemptState:
    """Return the state after `event`; raises IllegalTransitionError naming attempt and state."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(
            f"{name}: {event.name} ({event.value}) is not possible in state {state.value}"
        ) from None
