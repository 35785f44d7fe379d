"""EndTxn sent by another process: tables of the broker's answers, and the proof of an outcome.

A transaction is named by (transactional id, producer id, epoch); any process with these three can
end it. There is one transaction per epoch (`producer_pool.py`), so an answer is never about another
transaction. Seen on Kafka 4.3 (transaction version 2, EndTxn v5; `test_sink_answers.py` checks them
again), where e is the writer's epoch:

    transaction                EndTxn(commit)   EndTxn(abort)   DescribeTransactions
    flushed                    0                0               Ongoing, e
    committed                  0                48              CompleteCommit, e+1
    aborted                    48               0               CompleteAbort, e+1
    timed out                  48               0               CompleteAbort, e+1
    its id initialised again   90               90              Empty, e+2
    its id unknown             49               49              error 105

While markers are being written (PrepareCommit, PrepareAbort) any of them may answer 51. EndTxn v4,
used where the cluster has transaction version 1, leaves the epoch at e, and answers 90 after a
time-out; there the id's next transaction is at e+1, so its end looks like that of ours. Nobody asks
for ours then: an id is used again only once the outcome is recorded.

Answer 0 to a commit is proof. After any other answer, unless it plainly means "ask again", the
committer asks the broker for the transaction's state. Only this state proves an outcome, with the
same producer id and an epoch of ours.
"""

from dataclasses import dataclass, field
from enum import Enum

from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.kafka.committable import KafkaCommittable

_GONE = Fate.GONE
"""An open transaction never expires; an ended id is forgotten after transactional.id.expiration,
however it ended."""
_FATES: dict[str, Fate] = {
    "Ongoing": Fate.OPEN,
    "PrepareCommit": Fate.COMMITTED,
    "CompleteCommit": Fate.COMMITTED,
    "PrepareAbort": Fate.ABORTED,
    "CompleteAbort": Fate.ABORTED,
    "PrepareEpochFence": Fate.ABORTED,
    "Dead": _GONE,
    # Nothing was ever added to it, as long as the epoch is still the writer's.
    "Empty": Fate.ABORTED,
}
_ENDED_MOVES_EPOCH = {"PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"}


class Answer(Enum):
    """The meaning of an error code of EndTxn."""

    DONE = "done"
    ASK_AGAIN = "ask again"
    COORDINATOR_MOVED = "find the coordinator again, then ask again"
    REFUSED = "the credentials do not allow it"
    UNPROVED = "see what became of the transaction"


ANSWERS: dict[int, Answer] = {
    0: Answer.DONE,
    7: Answer.ASK_AGAIN,  # REQUEST_TIMED_OUT
    14: Answer.COORDINATOR_MOVED,  # COORDINATOR_LOAD_IN_PROGRESS
    15: Answer.COORDINATOR_MOVED,  # COORDINATOR_NOT_AVAILABLE
    16: Answer.COORDINATOR_MOVED,  # NOT_COORDINATOR
    29: Answer.REFUSED,  # TOPIC_AUTHORIZATION_FAILED
    31: Answer.REFUSED,  # CLUSTER_AUTHORIZATION_FAILED
    53: Answer.REFUSED,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    51: Answer.ASK_AGAIN,  # CONCURRENT_TRANSACTIONS: its markers are being written
    47: Answer.UNPROVED,  # INVALID_PRODUCER_EPOCH
    48: Answer.UNPROVED,  # INVALID_TXN_STATE: aborted, timed out, empty, or ended the other way
    49: Answer.UNPROVED,  # INVALID_PRODUCER_ID_MAPPING: the broker knows no such id
    90: Answer.UNPROVED,  # PRODUCER_FENCED
}
"""Codes not listed are `UNPROVED` too."""


def answer(code: int) -> Answer:
    """Return the meaning of an EndTxn's error code."""
    return ANSWERS.get(code, Answer.UNPROVED)


@dataclass(frozen=True)
class Description:
    """The answer of DescribeTransactions for one id. The last three prove nothing: `started_ms`
    since 1970 (-1: none is open), `timeout_ms`, and the topics' partitions with its records."""

    state: str
    producer_id: int
    producer_epoch: int
    started_ms: int = field(default=-1, compare=False)
    timeout_ms: int = field(default=-1, compare=False)
    partitions: tuple[tuple[str, int], ...] = field(default=(), compare=False)


def fate(committable: KafkaCommittable, description: Description | None) -> Fate:
    """Return the fate proved by the broker's description of the id (None: there is no such id)."""
    if description is None:
        return _GONE
    epochs = {committable.producer_epoch}
    if description.state in _ENDED_MOVES_EPOCH:
        epochs.add(committable.producer_epoch + 1)  # the end of a transaction raises the epoch
    if (
        description.producer_id != committable.producer_id
        or description.producer_epoch not in epochs
    ):
        return Fate.NOT_PROVED
    return _FATES.get(description.state, Fate.NOT_PROVED)
