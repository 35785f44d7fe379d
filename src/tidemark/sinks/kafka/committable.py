"""The committable of the Kafka sink: one flushed transaction, and its stored form (JSON).

The producer id and epoch are those of the process that wrote the rows. They must come from there
and never from the broker: a zombie may have moved the broker's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.model.errors import CorruptRecordError

FORMAT_VERSION = 1
LAST_EPOCH_TO_USE = 30_000
"""Retire an id well below epoch 32,767: where the producer id rolls over, the broker no longer
recognises the repeat of a commit."""


@dataclass(frozen=True)
class KafkaCommittable:
    """One transaction. `rows` counts the acknowledged rows by topic and partition.

    `transaction_version` is how the rows were written: 1 = partitions added by the client and an
    epoch that does not move until the transaction ends (all of librdkafka so far).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    rows: Mapping[str, Mapping[int, int]]
    transaction_version: int = 1

    @property
    def handle(self) -> str:
        """The transactional id: it is used for one transaction at a time."""
        return self.transactional_id


def dump(committable: KafkaCommittable) -> bytes:
    """Serialise as JSON with a version."""
    return json.dumps(
        {
            "version": FORMAT_VERSION,
            "transactional_id": committable.transactional_id,
            "producer_id": committable.producer_id,
            "producer_epoch": committable.producer_epoch,
            "transaction_version": committable.transaction_version,
            "rows": {
                topic: {str(partition): rows for partition, rows in sorted(partitions.items())}
                for topic, partitions in sorted(committable.rows.items())
            },
        },
        separators=(",", ":"),
    ).encode()


def load(data: bytes) -> KafkaCommittable:
    """Read what `dump` wrote; raises CorruptRecordError for anything else."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise _corrupt(data, "it is not JSON") from error
    if not isinstance(found, dict):
        raise _corrupt(data, "it is not a JSON object")
    if found.get("version") != FORMAT_VERSION:
        raise _corrupt(
            data,
            f"its version is {found.get('version')!r} and this program reads {FORMAT_VERSION}; "
            "use the version of Tidemark that wrote it, or a newer one",
        )
    try:
        rows = {
            topic: {_natural(int(partition)): _natural(n) for partition, n in partitions.items()}
            for topic, partitions in found["rows"].items()
        }
        transactional_id = found["transactional_id"]
        if not isinstance(transactional_id, str) or not transactional_id:
            raise ValueError(f"transactional_id is {transactional_id!r}")
        epoch = _natural(found["producer_epoch"])
        if epoch > 32_767:
            raise ValueError(f"producer_epoch is {epoch}")
        return KafkaCommittable(
            transactional_id=transactional_id,
            producer_id=_natural(found["producer_id"]),
            producer_epoch=epoch,
            rows=rows,
            transaction_version=_natural(found["transaction_version"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _corrupt(data, f"{type(error).__name__}: {error}") from error


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a whole number >= 0")
    return value


def _corrupt(data: bytes, why: str) -> CorruptRecordError:
    return CorruptRecordError(f"Kafka committable {data[:80]!r}: {why}")
