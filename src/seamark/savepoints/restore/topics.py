"""A Kafka source whose topics in the program differ from those in its savepoint.

Spark takes the offset of a topic no longer read for lost rows, and fails the query. It reads a
topic without offsets from the log's start, whatever the starting offsets are. So the user must
declare a renamed topic: `seamark offsets … --topic OLD=NEW`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamark.runtime.kafka_topics import Subscription, not_read
from seamark.savepoints.edit.offsets import is_kafka
from seamark.savepoints.record import Source


@dataclass(frozen=True)
class TopicChanges:
    """The program's effect on a savepoint's Kafka offsets.

    `problems`: topics no longer read, each as a sentence for the user. `offsets`: by uid, the rest
    of a source's offset without them. `begun`: uids of sources without any topic left; they begin
    at their own starting offsets. `added`: by uid, topics read from their start.
    """

    problems: tuple[str, ...] = ()
    offsets: Mapping[str, Any] = field(default_factory=dict)
    begun: frozenset[str] = frozenset()
    added: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def topic_changes(
    savepoint: str, sources: Sequence[Source], reading: Mapping[str, Subscription]
) -> TopicChanges:
    """Compare a savepoint's sources with the subscriptions of the program's Kafka sources, by uid.
    `savepoint` is its path, for the remedy."""
    problems, offsets, begun, added = [], {}, set(), {}
    for source in sources:
        if source.uid not in reading or not is_kafka(source.offset):
            continue
        now = reading[source.uid]
        kept = {t: partitions for t, partitions in source.offset.items() if now.reads(t)}
        gone = [topic for topic in source.offset if topic not in kept]
        new = tuple(topic for topic in now.topics if topic not in source.offset)
        if gone:
            problems.append(
                f"{not_read(source.uid, gone, now)}. If it was renamed, say so in a copy: seamark "
                f"offsets set --topic {gone[0]}={new[0] if new else 'NEW'} {savepoint}; to leave "
                "the rest of it unread: -n, allow_non_restored_state=True"
            )
            offsets[source.uid] = kept
        if not kept and source.offset:
            begun.add(source.uid)
        elif new:
            added[source.uid] = new
    return TopicChanges(tuple(problems), offsets, frozenset(begun), added)
