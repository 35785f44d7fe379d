"""`KafkaLog` on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import islice

import pytest

from seamark.dev.kafka import LocalKafka
from seamark.model.errors import OperationFailedError
from seamark.sources.kafka_log import KafkaLog


def test_an_offset_that_is_not_there_is_told(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    """As after retention has deleted rows; going on at the log's end would pass over others."""
    with (
        closing(KafkaLog(kafka.bootstrap_servers)) as log,
        pytest.raises(OperationFailedError, match=r"(?i)offset"),
    ):
        for _ in islice(log.follow({(topic(1), 0): 100}), 300):
            pass
