"""The state machine of an attempt: the whole table, pair by pair, and the proofs in stored records.

How: the legal moves are written out here once more, as sentences of the protocol; every other pair
of state and event must raise and name the attempt and the state.
"""

from __future__ import annotations

import pytest

from seamark.protocol.ports import EpochRecord
from seamark.protocol.procedures import winner_of
from seamark.protocol.states import (
    AttemptEvent,
    AttemptState,
    IllegalTransitionError,
    Seal,
    advance,
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


# stored, seal, committed -> whether the attempt is the epoch's
@pytest.mark.parametrize(
    ("stored", "seal", "committed", "wins"),
    [
        (False, None, False, False),  # another generation's decision
        (True, None, False, True),
        (True, Seal.COMMIT, False, True),
        (True, Seal.COMMIT, True, True),
        (True, None, True, True),
        (False, Seal.ABORT, False, False),  # sealed before it was stored
        (True, Seal.ABORT, False, False),  # a void decision
    ],
)
def test_what_the_stored_records_prove(
    stored: bool, seal: Seal | None, committed: bool, wins: bool
) -> None:
    record = EpochRecord(
        prepared=frozenset({3} if stored else ()),
        seals={} if seal is None else {3: seal},
        committed=3 if committed else None,
    )
    assert winner_of(record) == (3 if wins else None)


def test_the_newest_attempt_that_is_not_aborted_wins() -> None:
    stored = frozenset({1, 2, 4})
    assert winner_of(EpochRecord(stored)) == 4
    assert winner_of(EpochRecord(stored, {4: Seal.ABORT})) == 2
    assert winner_of(EpochRecord(stored, {4: Seal.ABORT}, committed=1)) == 1
    assert winner_of(EpochRecord(stored, dict.fromkeys(stored, Seal.ABORT))) is None
