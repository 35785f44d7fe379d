"""The tables of answers and states: each state shown by a real broker, and its lookalikes.
`tests/integration/kafka/test_sink_answers.py` sees the same answers on the real one."""

from __future__ import annotations

import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.end_transaction import Answer, Description, answer, fate

OURS = KafkaCommittable("id", 10, 4, {})


@pytest.mark.parametrize(
    ("state", "epoch", "expected"),
    [
        ("Ongoing", 4, Fate.OPEN),
        ("PrepareCommit", 4, Fate.COMMITTED),
        ("PrepareCommit", 5, Fate.COMMITTED),
        ("CompleteCommit", 4, Fate.COMMITTED),
        ("CompleteCommit", 5, Fate.COMMITTED),
        ("CompleteAbort", 4, Fate.ABORTED),
        ("CompleteAbort", 5, Fate.ABORTED),
        ("PrepareAbort", 5, Fate.ABORTED),
        ("Empty", 4, Fate.ABORTED),
        # Later uses of the id say nothing about ours.
        ("CompleteCommit", 6, Fate.NOT_PROVED),
        ("CompleteAbort", 6, Fate.NOT_PROVED),
        ("Ongoing", 5, Fate.NOT_PROVED),
        ("Empty", 6, Fate.NOT_PROVED),
        ("CompleteCommit", 3, Fate.NOT_PROVED),
        ("SomethingNew", 4, Fate.NOT_PROVED),
    ],
)
def test_fate(state: str, epoch: int, expected: Fate) -> None:
    assert fate(OURS, Description(state, 10, epoch)) is expected
    assert fate(OURS, Description(state, 11, epoch)) is Fate.NOT_PROVED


def test_an_unknown_id_is_gone() -> None:
    assert fate(OURS, None) is Fate.GONE


def test_every_fate_has_an_outcome_and_only_proof_ends_the_asking() -> None:
    assert all(fate.of_commit and fate.of_abort for fate in Fate)
    for unproved in (Fate.OPEN, Fate.NOT_PROVED):
        assert unproved.of_commit is CommitOutcome.RETRY
        assert unproved.of_abort is AbortOutcome.RETRY
    assert [f for f in Fate if f.of_commit is CommitOutcome.ALREADY_COMMITTED] == [Fate.COMMITTED]


def test_codes_that_nobody_has_listed_prove_nothing() -> None:
    assert answer(0) is Answer.DONE
    for code in (1, -1, 36, 999):
        assert answer(code) is Answer.UNPROVED
