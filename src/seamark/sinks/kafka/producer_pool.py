"""Warm producers: the module-level pools of one Python worker process, reused by Spark.

Connecting a producer and calling ``init_transactions`` costs 20 to 500 ms. A pool prepares the next
producer in a thread while the epoch is being decided, so a task finds one ready.

Invariants of a pool with transactions:
- One producer at a time uses a transactional id, for one transaction per ``init_transactions``. A
  late end of one transaction can then never hit a later transaction.
- An id is used again only once the outcome of its last epoch is recorded, whether that attempt was
  flushed, aborted or failed. An id never given back is never used again.
- An id is never used again once its producer epoch has reached `LAST_EPOCH_TO_USE`.
"""

import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from seamark.files.deadline import Deadline
from seamark.model.errors import SeamarkError, WriteRefusedError
from seamark.sinks.kafka import native_library
from seamark.sinks.kafka.committable import LAST_EPOCH_TO_USE
from seamark.sinks.kafka.native_producer import NativeProducer
from seamark.sinks.kafka.producer import Producer, ProducerConfig, ProducerIdentity
from seamark.sinks.kafka.row_producer import RowProducer
from seamark.sinks.kafka.transactional_id import TransactionalId, new_worker

_log = logging.getLogger(__name__)

INIT_TIMEOUT_S = 60.0
_OLDEST_S = 300.0
"""The age at which a waiting producer is replaced: the topic may have more partitions by then."""
_IDENTITY_TIMEOUT_S = 0.2
"""For a producer given up right after it was made; a flushed producer's identity is known already.
"""
_IDLE_SERVE_S = 2.0
"""How often the pool takes in a waiting producer's statistics, before they pile up."""


@dataclass(frozen=True)
class PoolKey:
    """Two tasks with equal keys share a pool: the configured sink, and the driver running it."""

    config: ProducerConfig
    prefix: str | None  # None: no transactions
    owner: str
    generation: int
    by_row: bool


@dataclass
class _Slot:
    """One transactional id of this worker."""

    transactional_id: str
    last_used_in: int = -1


@dataclass
class Lease:
    """A producer leased to one task attempt; `transactional_id` is empty without transactions."""

    producer: Producer
    transactional_id: str = ""
    made_at: float = field(default_factory=time.monotonic)
    _slot: _Slot | None = None


class ProducerPool:
    """The producers of one sink in this process. Thread-safe."""

    def __init__(self, key: PoolKey) -> None:
        self._key = key
        self._worker = new_worker()
        self._changed = threading.Condition()
        self._ready: deque[Lease] = deque()
        self._free: deque[_Slot] = deque()  # oldest use first
        self._slots_made = 0
        self._warming = 0
        self._closed = False
        self._chores: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def take(self, epoch: int, settled_epoch: int) -> Lease:
        """Return a producer ready to `begin`, for one attempt in `epoch`: the one that is being
        made, else a new one. Raises the error of that one when the time for both is over."""
        deadline, half = Deadline(self._limit_s), Deadline(self._limit_s / 2)
        with self._changed:
            while True:
                while self._ready:
                    lease = self._ready.popleft()
                    if time.monotonic() - lease.made_at < _OLDEST_S:
                        return _used_in(lease, epoch)
                    self._do(lease.producer.close)
                # Half of the time is left to a new one: that one may hang where this would not.
                if not self._warming or not self._changed.wait(half.left_s()):
                    break
        return _used_in(self._make(settled_epoch, deadline), epoch)

    def discard(self, lease: Lease, settled_epoch: int) -> None:
        """Take back a producer after its transaction was flushed or given up. In the background,
        close it without ending the transaction, and prepare the next one."""
        identity: ProducerIdentity | None = None
        slot = lease._slot
        if slot:
            with contextlib.suppress(WriteRefusedError):
                identity = lease.producer.identity(_IDENTITY_TIMEOUT_S)
        with self._changed:
            if identity and slot and identity.epoch < LAST_EPOCH_TO_USE:
                self._free.append(slot)
            self._do(lease.producer.close)  # first: else the memory of both is needed
            if self._key.prefix and not (self._ready or self._warming or self._closed):
                self._warming += 1
                self._do(lambda: self._warm(settled_epoch))

    def give_back(self, lease: Lease) -> None:
        """Take back a producer without transactions after a good flush, for the next task."""
        with self._changed:
            if self._closed:
                self._do(lease.producer.close)
            else:
                self._ready.append(lease)

    def close(self) -> None:
        """Close the waiting producers; leased ones are closed on their return."""
        with self._changed:
            self._closed = True
            while self._ready:
                self._do(self._ready.popleft().producer.close)

    def _warm(self, settled_epoch: int) -> None:
        lease = None
        try:
            lease = self._make(settled_epoch, Deadline(self._limit_s))
        except Exception as error:
            # The next task tries again itself, and raises its own error.
            _log.info("no producer could be made ready: %s", error)
        with self._changed:
            self._warming -= 1
            if lease and self._closed:
                self._do(lease.producer.close)
            elif lease:
                self._ready.append(lease)
            self._changed.notify_all()

    @property
    def _limit_s(self) -> float:
        return min(INIT_TIMEOUT_S, self._key.config.stall_timeout_s)

    def _make(self, settled_epoch: int, deadline: Deadline) -> Lease:
        slot = None if self._key.prefix is None else self._settled_slot(settled_epoch)
        producer = _producer(self._key, slot.transactional_id if slot else None)
        try:
            producer.connect(deadline.left_s())
            if slot is not None:
                producer.init_transactions(max(deadline.left_s(), 1.0))
        except BaseException:
            self._do(producer.close)
            raise
        return Lease(producer, slot.transactional_id if slot else "", _slot=slot)

    def _settled_slot(self, settled_epoch: int) -> _Slot:
        with self._changed:
            if self._free and self._free[0].last_used_in <= settled_epoch:
                return self._free.popleft()
            self._slots_made += 1
            assert self._key.prefix is not None
            transactional_id = TransactionalId(
                self._key.prefix,
                self._key.owner,
                self._key.generation,
                self._worker,
                self._slots_made,
            )
            return _Slot(str(transactional_id))

    def _do(self, chore: Callable[[], None]) -> None:
        with self._changed:
            self._chores.put(chore)
            if self._thread is None:
                # A daemon: an ending worker must not wait for an unreachable broker.
                self._thread = threading.Thread(
                    target=self._run_chores, name="seamark-kafka-producers", daemon=True
                )
                self._thread.start()

    def _run_chores(self) -> None:
        while True:
            try:
                self._chores.get(timeout=_IDLE_SERVE_S)()
            except queue.Empty:
                with self._changed:
                    if self._closed and self._chores.empty():  # a late chore begins another
                        self._thread = None
                        return
                self._serve_waiting()
            except Exception:
                _log.warning("a Kafka producer could not be closed", exc_info=True)

    def _serve_waiting(self) -> None:
        """Keep waiting producers alive; close those too old to be leased. The worker may live long
        after their query."""
        with self._changed:
            for lease in list(self._ready):
                try:
                    lease.producer.serve(0)
                    too_old = time.monotonic() - lease.made_at >= _OLDEST_S
                except SeamarkError:
                    too_old = True
                if too_old:
                    self._ready.remove(lease)
                    self._chores.put(lease.producer.close)


def _used_in(lease: Lease, epoch: int) -> Lease:
    if lease._slot:
        lease._slot.last_used_in = max(epoch, lease._slot.last_used_in)
    return lease


def _producer(key: PoolKey, transactional_id: str | None) -> Producer:
    config = key.config
    if transactional_id is not None:
        settings = (*config.settings, ("transactional.id", transactional_id))
        config = ProducerConfig(config.sink, config.topic, settings, config.stall_timeout_s)
    library = None if key.by_row or config.topic is None else native_library.load()
    return RowProducer(config) if library is None else NativeProducer(library, config)


_pools: dict[PoolKey, ProducerPool] = {}
_pools_lock = threading.Lock()
_pools_pid = os.getpid()


def pool_for(key: PoolKey) -> ProducerPool:
    """Return this process's pool for `key`; closes older generations' pools of the same sink."""
    global _pools_pid
    with _pools_lock:
        if _pools_pid != os.getpid():
            # A forked child has the parent's objects, but none of its librdkafka threads.
            _pools.clear()
            _pools_pid = os.getpid()
        for other in list(_pools):
            if other.owner == key.owner and other.generation < key.generation:
                _pools.pop(other).close()
        if key not in _pools:
            _pools[key] = ProducerPool(key)
        return _pools[key]
