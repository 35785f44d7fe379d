"""The order of a pool's chores, with producers that only say what is done with them."""

from __future__ import annotations

import queue
from unittest.mock import MagicMock

import pytest

from seamark.sinks.kafka import producer_pool
from seamark.sinks.kafka.producer import ProducerConfig, ProducerIdentity
from seamark.sinks.kafka.producer_pool import PoolKey, ProducerPool


def test_a_producer_is_closed_before_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    done: queue.Queue[str] = queue.Queue()

    def made(*_: object) -> MagicMock:
        done.put("made")
        producer = MagicMock()
        producer.identity.return_value = ProducerIdentity(7, 0)
        producer.close.side_effect = lambda: done.put("closed")
        return producer

    monkeypatch.setattr(producer_pool, "_producer", made)
    pool = ProducerPool(PoolKey(ProducerConfig("out", "out", (), 60.0), "p", "o", 1, by_row=False))
    pool.discard(pool.take(0, -1), -1)
    assert [done.get(timeout=60) for _ in range(3)] == ["made", "closed", "made"]
