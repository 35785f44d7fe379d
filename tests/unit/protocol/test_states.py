"""The state machine of an attempt: the whole table, pair by pair, and the proofs in stored records.

How: the legal moves are written out here once more, as sentences of the protocol; every other pair
of state and event must raise and name the attempt and the state.
"""

from __future__ import annotations

import itertools

import pytest

from seamark.protocol.states import (
    AttemptEvent,
    AttemptState,
    IllegalTransitionError,
    Seal,
    advance,
    from_evidence,
)

LEGAL = """
    pending       PRE_COMMIT -> pre-committed
    pre-committed STORE      -> prepared
    prepared      DECIDE     -> decided
    decided       SEAL       -> sealed
    sealed        SEAL       -> sealed
    sealed        CONFIRM    -> committed
    committed     CONFIRM    -> committed
    pending       ABORT      -> aborted
    pre-committed ABORT      -> aborted
    prepared      ABORT      -> aborted
    decided       ABORT      -> aborted
    aborted       ABORT      -> aborted
"""
MOVES = {
    (AttemptState(state), AttemptEvent[event]): AttemptState(after)
    for state, event, _, after in (line.split() for line in LEGAL.strip().splitlines())
}


@pytest.mark.parametrize("event", AttemptEvent)
@pytest.mark.parametrize("state", AttemptState)
def test_every_pair_is_legal_or_raises(state: AttemptState, event: AttemptEvent) -> None:
    if (state, event) in MOVES:
        assert advance("epoch 7", state, event) is MOVES[state, event]
    else:
        with pytest.raises(IllegalTransitionError) as raised:
            advance("epoch 7", state, event)
        assert "epoch 7" in str(raised.value)
        assert event.name in str(raised.value)
        assert state.value in str(raised.value)


def test_what_is_sealed_commit_is_never_aborted_and_what_is_aborted_never_moves() -> None:
    reached = {AttemptState.SEALED}
    while more := {MOVES[s, e] for s, e in MOVES if s in reached} - reached:
        reached |= more
    assert reached == {AttemptState.SEALED, AttemptState.COMMITTED}
    assert {after for (state, _), after in MOVES.items() if state is AttemptState.ABORTED} == {
        AttemptState.ABORTED
    }


# stored, decided, seal, confirmed -> state
@pytest.mark.parametrize(
    ("stored", "decided", "seal", "confirmed", "state"),
    [
        (False, False, None, False, AttemptState.PENDING),
        (False, True, None, False, AttemptState.PENDING),  # another generation's decision
        (True, False, None, False, AttemptState.PREPARED),
        (True, True, None, False, AttemptState.DECIDED),
        (True, True, Seal.COMMIT, False, AttemptState.SEALED),
        (True, False, Seal.COMMIT, False, AttemptState.SEALED),  # its decision was deleted
        (True, True, Seal.COMMIT, True, AttemptState.COMMITTED),
        (True, True, None, True, AttemptState.COMMITTED),
        (False, False, Seal.ABORT, False, AttemptState.ABORTED),  # sealed before it was stored
        (True, False, Seal.ABORT, False, AttemptState.ABORTED),
        (True, True, Seal.ABORT, False, AttemptState.ABORTED),  # a void decision
    ],
)
def test_what_the_stored_records_prove(
    stored: bool, decided: bool, seal: Seal | None, confirmed: bool, state: AttemptState
) -> None:
    found = from_evidence(stored=stored, decided=decided, seal=seal, confirmed=confirmed)
    assert found is state


def test_a_seal_decides_whatever_else_is_stored() -> None:
    for stored, decided, confirmed in itertools.product([False, True], repeat=3):
        facts = {"stored": stored, "decided": decided, "confirmed": confirmed}
        assert from_evidence(seal=Seal.ABORT, **facts) is AttemptState.ABORTED
        sealed = AttemptState.COMMITTED if confirmed else AttemptState.SEALED
        assert from_evidence(seal=Seal.COMMIT, **facts) is sealed
