"""The driver's side of the Kafka sink: ends transactions by their handles, and proves the outcome.

`end_transaction.py` has the table of answers, `broker.py` the wire, `preflight.py` the checks at
the start. The failpoint here is `end-transaction-sent`: the broker has answered, and nobody knows
yet.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from seamark.contracts.sink import (
    AbortOutcome,
    CommitOutcome,
    HeldUp,
    Lingering,
    OpenFacts,
    SinkContext,
)
from seamark.model import failpoints
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.internal.servers import tell
from seamark.sinks.kafka import preflight
from seamark.sinks.kafka.broker import (
    BrokerConnection,
    Described,
    Limits,
    UnreachableError,
)
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.end_transaction import Answer, Description, answer, fate
from seamark.sinks.kafka.missing_markers import MissingMarkers
from seamark.sinks.kafka.transactional_id import owner, parse

if TYPE_CHECKING:
    from seamark.sinks.kafka.sink import KafkaSink

_log = logging.getLogger(__name__)
Partition = tuple[str, int]


class KafkaCommitter:
    """See `Committer`."""

    def __init__(self, sink: "KafkaSink", context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._broker = sink.connection()
        self._said: dict[str, str] = {}
        self._owner = owner(context.job_id, context.sink_uid)
        self._markers = MissingMarkers(self._broker, self._owner, context.sink_uid)

    def preflight(self) -> None:
        """See `Committer`."""
        facts = preflight.ask(self._sink, self._context, self._broker)
        tell(preflight.findings(self._sink, self._context, facts), _log)
        self._sink.learn_limit(self._context, facts.topics)
        self._sink.register_schema(self._context)

    def commit(self, committables: Sequence[KafkaCommittable]) -> Sequence[CommitOutcome]:
        """See `Committer`."""
        fates = self._end(committables, commit=True)
        if committables and Fate.OPEN not in fates:
            self._markers.look_if_due()
        return [fate.of_commit for fate in fates]

    def abort(self, committables: Sequence[KafkaCommittable]) -> Sequence[AbortOutcome]:
        """See `Committer`."""
        return [fate.of_abort for fate in self._end(committables, commit=False)]

    def _end(self, committables: Sequence[KafkaCommittable], *, commit: bool) -> list[Fate]:
        fates = [Fate.OPEN] * len(committables)
        if not committables:
            return fates
        unproved: list[int] = []
        for i, ended in enumerate(self._broker.end(committables, commit=commit)):
            failpoints.reached("end-transaction-sent")
            if isinstance(ended.code, UnreachableError):
                self._log(committables[i], f"no answer: {ended.code}")
                self._markers.troubled()
                continue
            before = None
            if not isinstance(ended.before, UnreachableError):
                before = fate(committables[i], ended.before)
            said = answer(ended.code)
            if said is Answer.DONE:
                fates[i] = before if before is Fate.COMMITTED else Fate.ENDED_NOW
            elif before in (Fate.COMMITTED, Fate.ABORTED):
                fates[i] = before  # settled before we asked, and for ever
            elif said is Answer.UNPROVED:
                unproved.append(i)
            elif said is Answer.REFUSED:
                self._log(
                    committables[i],
                    f"EndTxn answers {ended.code}, not authorised: grant WRITE on the ids that "
                    f"start with {self._sink.transactional_id_prefix!r}",
                )
            else:
                if said is Answer.COORDINATOR_MOVED:
                    self._markers.troubled()
                _log.debug("%s: EndTxn answers %d", committables[i].handle, ended.code)
        described = self._broker.describe([committables[i].transactional_id for i in unproved])
        for i in unproved:
            state = described[committables[i].transactional_id]
            if isinstance(state, UnreachableError):
                self._log(committables[i], f"no answer: {state}")
                continue
            fates[i] = fate(committables[i], state)
            if fates[i] is Fate.NOT_PROVED:
                self._log(committables[i], f"its outcome cannot be proved: {state}")
        for committable, proved in zip(committables, fates, strict=True):
            if proved not in (Fate.OPEN, Fate.NOT_PROVED):
                self._said.pop(committable.transactional_id, None)
        asked = Fate.COMMITTED if commit else Fate.ABORTED
        self._markers.ended(
            committables, [asked if proved is Fate.ENDED_NOW else proved for proved in fates]
        )
        return fates

    def _log(self, committable: KafkaCommittable, what: str) -> None:
        """Log the reason for asking about a transaction again; once per reason."""
        if self._said.get(committable.transactional_id) == what:
            return
        self._said[committable.transactional_id] = what
        _log.warning(
            "sink `%s`: transaction %s (producer %d, epoch %d): %s",
            self._context.sink_uid,
            committable.transactional_id,
            committable.producer_id,
            committable.producer_epoch,
            what,
        )

    def list_lingering(self) -> Iterable[Lingering[KafkaCommittable]]:
        """See `Committer`. Finds transactions under every prefix ever used by this job and sink.

        Omits a transaction whose end has begun: its outcome stands. In a driver that commits, also
        writes missing markers.
        """
        self._markers.look()
        names = {}
        for text in self._broker.open_transactions():
            parsed = parse(text)
            if parsed is not None and parsed.owner == self._owner:
                names[text] = parsed
        lingering = []
        for text, state in self._broker.describe(list(names)).items():
            if isinstance(state, UnreachableError):
                raise state
            if state is not None and state.state == "Ongoing":
                committable = KafkaCommittable(text, state.producer_id, state.producer_epoch, {})
                lingering.append(Lingering(committable, names[text].generation))
        return lingering

    def describe_open(self, committables: Sequence[KafkaCommittable]) -> Sequence[OpenFacts]:
        """See `DescribesTransactions`. Readers with isolation.level read_committed are held up."""
        states = self._broker.describe([c.transactional_id for c in committables])
        return open_facts(self._broker, [states[c.transactional_id] for c in committables])

    def close(self) -> None:
        """See `Committer`."""
        self._broker.close()


def open_facts(broker: BrokerConnection, states: Sequence[Described]) -> Sequence[OpenFacts]:
    """Return the facts of transactions described by `broker`. Raises UnreachableError."""
    for state in states:
        if isinstance(state, UnreachableError):
            raise state
    partitions = {at for state in states if isinstance(state, Description)
                  for at in state.partitions}  # fmt: skip
    groups = broker.group_offsets(partitions)
    limits = broker.read_limits(partitions)
    return [_facts(state, limits, groups) for state in states]


def _facts(
    state: object,
    limits: Mapping[Partition, Limits],
    groups: Mapping[Partition, Mapping[str, int]] | None,
) -> OpenFacts:
    if not isinstance(state, Description) or state.started_ms < 0:
        return OpenFacts()
    started_s = state.started_ms / 1e3
    held = []
    for at in state.partitions:
        limit = limits[at]
        if limit.end > limit.stable:
            first = readers = None
            if limit.starts is not None:
                first = limit.starts.get(state.producer_id, -1) == limit.stable
            if groups is not None:  # a group beyond the limit does not read committed rows alone
                readers = {
                    group: limit.stable - offset
                    for group, offset in sorted(groups[at].items())
                    if offset <= limit.stable
                }
            held.append(HeldUp(f"{at[0]}-{at[1]}", limit.end - limit.stable, first, readers))
    return OpenFacts(started_s, started_s + state.timeout_ms / 1e3, tuple(held))
