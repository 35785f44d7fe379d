"""Writes the markers that Kafka has left out.

A transaction ends for a partition's readers where its coordinator has put a marker. Kafka 4.3 takes
a partition that has no leader for a deleted one: it calls the transaction complete, and never marks
that partition (https://issues.apache.org/jira/browse/KAFKA-20734). When the leader is back,
committed rows stay hidden, and read_committed readers stop there for ever;
`kafka-transactions.sh abort` would let them go on without these rows.

A wrong marker loses rows or shows aborted ones, so only a proof writes one. With transaction
version 2 an end raises the producer's epoch from e to e+1, and the id's next transaction is at e+2.
With version 1 the next one is at e+1, and so is its end: there only an end at e, or one that this
driver has seen, is proof.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.kafka.broker import BrokerConnection, OpenWrite, UnreachableError
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.end_transaction import Answer, Description, answer, fate
from seamark.sinks.kafka.transactional_id import parse

_log = logging.getLogger(__name__)

Place = tuple[tuple[str, int], int]
"""A partition, and the producer id of an open transaction there."""

_EVERY_S = 60.0
_TROUBLED_S = 30.0
"""For so long after a broker did not answer, every commit looks."""
_REMEMBERED = 20_000


@dataclass
class MissingMarkers:
    """Those of one sink; `owner` is its part of its transactional ids. One thread at a time."""

    broker: BrokerConnection
    owner: str
    sink_uid: str
    _partitions: set[tuple[str, int]] = field(default_factory=set)
    _fates: dict[tuple[int, int], Fate] = field(default_factory=dict)
    """By producer id and epoch. The coordinator forgets a fate when the id is used again."""
    _looked_s: float = -_EVERY_S
    _troubled_s: float = -_TROUBLED_S
    _said: set[object] = field(default_factory=set)

    def ended(self, committables: Sequence[KafkaCommittable], fates: Sequence[Fate]) -> None:
        """Remember where these transactions have written, and the COMMITTED and ABORTED ones."""
        for one, proved in zip(committables, fates, strict=True):
            self._partitions.update((topic, p) for topic in one.rows for p in one.rows[topic])
            if proved in (Fate.COMMITTED, Fate.ABORTED):
                self._fates[one.producer_id, one.producer_epoch] = proved
        while len(self._fates) > _REMEMBERED:
            del self._fates[next(iter(self._fates))]

    def troubled(self) -> None:
        """Look at every commit for a while: a broker did not answer."""
        self._troubled_s = time.monotonic()

    def look_if_due(self) -> None:
        """Look once a minute, and more often after trouble."""
        now = time.monotonic()
        if now - self._looked_s >= _EVERY_S or now - self._troubled_s < _TROUBLED_S:
            self._looked_s = now
            self.look()

    def look(self) -> None:
        """Write each missing marker into the partitions known by `ended`. Raises nothing: what
        cannot be asked now is asked later."""
        try:
            self._look()
        except UnreachableError as error:
            self.troubled()
            _log.info("sink `%s`: no look for missing markers: %s", self.sink_uid, error)

    def _look(self) -> None:
        writes = self.broker.open_writes(self._partitions)
        missing = self._ended_by_coordinator(writes)
        if missing:
            # A marker is written before its transaction is called complete: what is still open
            # after that has none.
            again = self.broker.open_writes({partition for partition, _ in missing})
            for place, proved in missing.items():
                if again.get(place) != writes[place]:
                    continue
                if proved is Fate.NOT_PROVED:
                    self._say_unproved(place, writes[place])
                else:
                    self._write(place, writes[place], proved)

    def _ended_by_coordinator(self, writes: dict[Place, OpenWrite]) -> dict[Place, Fate]:
        ids = {
            producer: text
            for producer, text in self.broker.ids_of({producer for _, producer in writes}).items()
            if (parsed := parse(text)) is not None and parsed.owner == self.owner
        }
        states = self.broker.describe(list(ids.values()))
        missing: dict[Place, Fate] = {}
        for (partition, producer), write in writes.items():
            state = states.get(ids.get(producer, ""))
            if isinstance(state, Description) and not state.state.startswith("Prepare"):
                proved = self._proved(ids[producer], producer, write.producer_epoch, state)
                if proved in (Fate.COMMITTED, Fate.ABORTED, Fate.NOT_PROVED):
                    missing[partition, producer] = proved
        return missing

    def _proved(self, text: str, producer: int, epoch: int, state: Description) -> Fate:
        if state.producer_epoch == epoch and not state.state.startswith("Complete"):
            return Fate.OPEN
        if (seen := self._fates.get((producer, epoch))) is not None:
            return seen
        if state.producer_epoch != epoch and not self.broker.ends_raise_epoch:
            return Fate.NOT_PROVED
        return fate(KafkaCommittable(text, producer, epoch, {}), state)

    def _say_unproved(self, place: Place, write: OpenWrite) -> None:
        if (place, write) not in self._said:
            self._said.add((place, write))
            _log.error(
                "%s. Nothing proves how it ended: its id may have been used again. No marker is "
                "written; `kafka-transactions.sh abort` takes the rows away, if they are committed",
                self._what(place, write, "unknown"),
            )

    def _what(self, place: Place, write: OpenWrite, end: str) -> str:
        (topic, partition), producer = place
        return (
            f"sink `{self.sink_uid}`: Kafka has ended a transaction (producer {producer}, epoch "
            f"{write.producer_epoch}: {end}) and not told partition {topic}-{partition}: "
            f"read_committed readers stop at offset {write.first_offset} (KAFKA-20734)"
        )

    def _write(self, place: Place, write: OpenWrite, proved: Fate) -> None:
        code = self.broker.write_marker(place, write, commit=proved is Fate.COMMITTED)
        what = self._what(place, write, proved.value)
        if code == 0:
            _log.warning("%s. The missing marker is written now", what)
        elif (place, code) not in self._said:
            self._said.add((place, code))
            remedy = (
                "grant ALTER on the cluster to the job's user; `kafka-transactions.sh abort` would "
                "take committed rows away"
                if answer(code) is Answer.REFUSED
                else "it is tried again"
            )
            _log.error("%s. WriteTxnMarkers answers %d; %s", what, code, remedy)
