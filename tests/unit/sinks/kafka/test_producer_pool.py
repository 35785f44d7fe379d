"""The order of a pool's chores, with producers that only say what is done with them."""

from __future__ import annotations

import queue
import threading
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


def test_a_closed_pool_ends_its_thread_and_closes_late_producers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reused Python worker has a pool for each run of the query: threads would pile up."""
    monkeypatch.setattr(producer_pool, "_IDLE_SERVE_S", 0.01)
    closed: queue.Queue[threading.Thread] = queue.Queue()

    def made(*_: object) -> MagicMock:
        producer = MagicMock()
        producer.close.side_effect = lambda: closed.put(threading.current_thread())
        return producer

    monkeypatch.setattr(producer_pool, "_producer", made)
    pool = ProducerPool(PoolKey(ProducerConfig("out", "out", (), 60.0), None, "o", 1, by_row=False))
    early, late = pool.take(0, -1), pool.take(0, -1)
    pool.give_back(early)
    pool.close()
    for lease in (None, late):
        if lease is not None:
            pool.give_back(lease)
        thread = closed.get(timeout=60)
        thread.join(60)
        assert not thread.is_alive()
