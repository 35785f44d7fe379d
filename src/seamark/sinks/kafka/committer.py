"""The driver's side of the Kafka sink: ends transactions by their handles, and proves the outcome.

`end_transaction.py` has the table of answers, `broker.py` the wire, `preflight.py` the checks at
the start, `prefix_owner.py` the guard of the prefix against other jobs. The failpoint here is
`end-transaction-sent`: the broker has answered, and nobody knows yet.
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
from seamark.sinks.kafka import preflight
from seamark.sinks.kafka.broker import Limits, UnreachableError
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.end_transaction import Answer, Description, answer, fate
from seamark.sinks.kafka.prefix_owner import PrefixOwner
from seamark.sinks.kafka.transactional_id import owner, parse

if TYPE_CHECKING:
    from seamark.sinks.kafka.sink import KafkaSink

_log = logging.getLogger(__name__)


class KafkaCommitter:
    """See `Committer`."""

    def __init__(self, sink: "KafkaSink", context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._broker = sink.connection()
        self._said: dict[str, str] = {}
        self._owner: PrefixOwner | None = None
        if sink.exactly_once and sink.transactional_id_prefix is not None:
            self._owner = PrefixOwner(
                self._broker.settings,
                sink.transactional_id_prefix,
                context.job_name,
                context.job_id,
            )

    def preflight(self) -> None:
        """See `Committer`."""
        preflight.check(self._sink, self._context, self._broker)
        self._sink.register_schema(self._context)
        if self._owner is not None:
            self._owner.take(f"sink `{self._context.sink_uid}`")

    def commit(self, committables: Sequence[KafkaCommittable]) -> Sequence[CommitOutcome]:
        """See `Committer`."""
        return [fate.of_commit for fate in self._end(committables, commit=True)]

    def abort(self, committables: Sequence[KafkaCommittable]) -> Sequence[AbortOutcome]:
        """See `Committer`."""
        return [fate.of_abort for fate in self._end(committables, commit=False)]

    def _end(self, committables: Sequence[KafkaCommittable], *, commit: bool) -> list[Fate]:
        fates = [Fate.OPEN] * len(committables)
        if not committables:
            return fates
        unproved: list[int] = []
        for i, found in enumerate(self._broker.end(committables, commit=commit)):
            failpoints.reached("end-transaction-sent")
            if isinstance(found.code, UnreachableError):
                self._log(committables[i], f"no answer: {found.code}")
                continue
            before = None
            if not isinstance(found.before, UnreachableError):
                before = fate(committables[i], found.before)
            said = answer(found.code)
            if said is Answer.DONE:
                fates[i] = before if before is Fate.COMMITTED else Fate.ENDED_NOW
            elif before in (Fate.COMMITTED, Fate.ABORTED):
                fates[i] = before  # settled before we asked, and for ever
            elif said is Answer.UNPROVED:
                unproved.append(i)
            elif said is Answer.REFUSED:
                self._log(
                    committables[i],
                    f"EndTxn answers {found.code}, not authorised: grant WRITE on the ids that "
                    f"start with {self._sink.transactional_id_prefix!r}",
                )
            else:
                _log.debug("%s: EndTxn answers %d", committables[i].handle, found.code)
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

        Omits a transaction whose end has begun: its outcome stands.
        """
        ours = owner(self._context.job_id, self._context.sink_uid)
        found = {}
        for text in self._broker.open_transactions():
            parsed = parse(text)
            if parsed is not None and parsed.owner == ours:
                found[text] = parsed
        lingering = []
        for text, state in self._broker.describe(list(found)).items():
            if isinstance(state, UnreachableError):
                raise state
            if state is not None and state.state == "Ongoing":
                committable = KafkaCommittable(text, state.producer_id, state.producer_epoch, {})
                lingering.append(Lingering(committable, found[text].generation))
        return lingering

    def describe_open(self, committables: Sequence[KafkaCommittable]) -> Sequence[OpenFacts]:
        """See `DescribesTransactions`. Readers with isolation.level read_committed are held up."""
        states = self._broker.describe([c.transactional_id for c in committables])
        found = [states[c.transactional_id] for c in committables]
        for state in found:
            if isinstance(state, UnreachableError):
                raise state
        partitions = {at for state in found if isinstance(state, Description)
                      for at in state.partitions}  # fmt: skip
        groups = self._broker.group_offsets(partitions)
        limits = self._broker.read_limits(partitions)
        return [_facts(state, limits, groups) for state in found]

    def close(self) -> None:
        """See `Committer`."""
        if self._owner is not None:
            self._owner.release()
        self._broker.close()


Partition = tuple[str, int]


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
