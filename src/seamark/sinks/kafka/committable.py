"""The committable of the Kafka sink: one flushed transaction, and its stored form (JSON).

The producer id and epoch belong to the process that wrote the rows. They must come from it and
never from the broker: a zombie may have raised the broker's epoch.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from seamark.model.errors import CorruptRecordError

FORMAT_VERSION = 1
LAST_EPOCH_TO_USE = 30_000
"""Retire an id well below epoch 32,767: after the producer id rolls over there, the broker no
longer recognises a repeated commit."""


@dataclass(frozen=True)
class KafkaCommittable:
    """One transaction. `rows` counts the acknowledged rows by topic and partition.

    `transaction_version` is the protocol used to write the rows. 1: the client adds partitions, and
    the epoch stays the same until the transaction ends (all of librdkafka so far).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    rows: Mapping[str, Mapping[int, int]]
    transaction_version: int = 1

    def __post_init__(self) -> None:
        counts = [n for partitions in self.rows.values() for n in partitions.values()]
        for value in (self.producer_id, self.producer_epoch, self.transaction_version, *counts):
            if type(value) is not int or value < 0:
                raise ValueError(f"{value!r} is not a whole number >= 0")

    @property
    def handle(self) -> str:
        """The transactional id: used for one transaction at a time."""
        return self.transactional_id


def dump(committable: KafkaCommittable) -> bytes:
    """Serialise as JSON with a version and a checksum."""
    content = {
        "version": FORMAT_VERSION,
        "transactional_id": committable.transactional_id,
        "producer_id": committable.producer_id,
        "producer_epoch": committable.producer_epoch,
        "transaction_version": committable.transaction_version,
        "rows": {
            topic: {str(partition): rows for partition, rows in sorted(partitions.items())}
            for topic, partitions in sorted(committable.rows.items())
        },
    }
    return _text({**content, "crc32": zlib.crc32(_text(content))})


def load(data: bytes) -> KafkaCommittable:
    """Read the bytes written by `dump`; raises CorruptRecordError for any others."""
    try:
        fields = json.loads(data)
        if fields.pop("crc32") != zlib.crc32(_text(fields)):
            raise ValueError("its checksum does not fit: it has been altered")
        if (version := fields.pop("version")) != FORMAT_VERSION:
            raise ValueError(
                f"its version is {version!r} and this program reads {FORMAT_VERSION}; use the "
                "version of Seamark that wrote it, or a newer one"
            )
        fields["rows"] = {
            topic: {int(partition): rows for partition, rows in partitions.items()}
            for topic, partitions in fields["rows"].items()
        }
        committable = KafkaCommittable(**fields)
        # Not the bytes made by `dump`: they were altered, or written by something else.
        if not isinstance(committable.transactional_id, str) or dump(committable) != data:
            raise ValueError("it is not as it was written")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRecordError(
            f"Kafka committable {data[:80]!r}: {type(error).__name__}: {error}"
        ) from error
    return committable


def _text(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
