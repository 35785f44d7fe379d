"""Begins an epoch at once, however long the query's interval: a checkpoint on request.

Spark has no call for it: between two triggers its stream thread waits for a clock. So this query's
`ProcessingTimeExecutor` gets another clock, one we can wake
(``spark/java/SeamarkTriggerClock.java``). Further triggers stay due at the same times. `StreamRun`
makes one `CheckpointTrigger` for its query.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from seamark.checkpoint.coordinator import Coordinator
from seamark.model.errors import StoppedError, UserError
from seamark.run.stream_watch import spark_trigger
from seamark.spark.java.compiled import loaded_class

log = logging.getLogger(__name__)

POLL_S = 0.1
DECIDED_POLL_S = 0.01
"""Poll interval while waiting for an epoch under way: asks the coordinator, not Spark."""
SINK_PATIENCE_S = 10.0
"""How long a savepoint waits for a sink to commit the savepoint's epoch, or the epoch before it."""


@dataclass
class _Request:
    """One call of `ask`. `asked_in` is the start of Spark's trigger at the time of the call: only a
    later trigger reads every row present at the call. `epoch` answers the request, once it is
    `known`. For a pinned epoch, the stream may get `ahead` epochs ahead of it."""

    asked_in: int
    ahead: int | None = None
    epoch: int | None = None
    known: threading.Event = field(default_factory=threading.Event)
    answer: Future[int] = field(default_factory=Future)


@dataclass(eq=False)
class CheckpointTrigger:
    """Takes checkpoints on request, of one query. `ended` is set when the query's run has ended;
    `failure` then returns the run's error, or None."""

    name: str
    coordinator: Coordinator
    ended: threading.Event
    failure: Callable[[], BaseException | None]
    _query: StreamingQuery | None = field(default=None, init=False)
    _clock: Any = field(default=None, init=False)
    _refusal: str = field(default="", init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _requests: list[_Request] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def prepare(self, spark: SparkSession) -> None:
        """Called once, before the start of a query with a trigger interval. Returns at once: a
        thread makes the clock, in some tenths of a second."""
        self._thread = threading.Thread(
            target=self._make_clock, args=(spark,), name="seamark-clock", daemon=True
        )
        self._thread.start()

    def put_clock(self, spark: SparkSession, location: str) -> None:
        """Called immediately before the query with this checkpoint location starts: makes it wait
        for the clock from `prepare`. If this fails, `ask` refuses."""
        if self._thread is None:
            return
        self._thread.join()
        if self._clock is not None:
            try:
                self._clock.putInto(spark.streams._jsqm, location)
            except (Py4JError, TypeError, AttributeError) as error:
                self._refusal = str(error)

    def attach(self, query: StreamingQuery) -> None:
        """Called once, when the query has started."""
        self._query = query

    def ask(self, ahead: int | None = None) -> Future[int]:
        """Begin an epoch as soon as none is under way. Return the future id of its completed
        checkpoint. This checkpoint covers every row Spark could read at this call.

        Without new rows Spark makes no epoch: the answer then is the last epoch. Callers share an
        epoch if they ask before it begins. The answer fails with the error of the epoch or the run.
        Raises UserError if the query does not run, or Spark could not be prepared.

        With `ahead`, for a savepoint, the answer's epoch is pinned: Spark's stream is held `ahead`
        epochs after it, until the caller unpins the epoch (`EpochQueue.unpin`). If the answer
        fails, no epoch stays pinned. The pinned epoch is decided for good, but some sink may not
        have committed it yet. If unreachable sinks keep the stream from a new epoch, the answer is
        a decided epoch waiting for their commits (`EpochQueue.pin_waiting`).
        """
        query = self._query
        if query is None or self.ended.is_set() or self.coordinator.failure is not None:
            raise UserError(f"job {self.name} takes no checkpoint now: its query does not run")
        if problem := self._refusal or (self._clock and self._clock.problem()):
            log.debug("the clock of Spark's triggers cannot be replaced: %s", problem)
            raise UserError(
                f"job {self.name}: this version of Spark does not let its trigger be woken, so "
                "checkpoints are taken at their interval only"
            )
        with self._lock:
            request = _Request(spark_trigger(query).begun, ahead)
            request.answer.set_running_or_notify_cancel()  # it cannot be called off
            self._requests.append(request)
        self.wake()
        threading.Thread(
            target=self._wait, args=(query, request), name="seamark-checkpoint", daemon=True
        ).start()
        return request.answer

    def wake(self) -> None:
        """Let the next epoch begin without waiting for the interval."""
        if self._clock is not None:
            self._clock.wake()

    def epoch_begun(self, epoch: int) -> None:
        """Called on Spark's stream thread as each epoch begins, before the coordinator."""
        with self._lock:
            waiting = [r for r in self._requests if r.epoch is None]
            if waiting and self._query is not None:
                begun = spark_trigger(self._query).begun
                for request in waiting:
                    if request.asked_in != begun:
                        self._answer(request, epoch)

    def _answer(self, request: _Request, epoch: int) -> None:
        request.epoch = epoch
        if request.ahead is not None:
            self.coordinator.epochs.pin(epoch, epoch + request.ahead)
        request.known.set()

    # --- the wait for one answer

    def _wait(self, query: StreamingQuery, request: _Request) -> None:
        failure: BaseException | None = None
        try:
            self._find_epoch(query, request)
            while not self._is_complete(request):
                self._check(request)
                self._take_last(request)
                time.sleep(DECIDED_POLL_S)
        except BaseException as error:
            failure = error
        with self._lock:  # from now on no epoch answers it, or one would stay pinned
            self._requests.remove(request)
        if failure is None:
            request.answer.set_result(self._epoch_of(request))
            return
        if request.ahead is not None and request.epoch is not None:
            self.coordinator.epochs.unpin(request.epoch, request.epoch + request.ahead)
        request.answer.set_exception(failure)

    def _find_epoch(self, query: StreamingQuery, request: _Request) -> None:
        """Return once the request has an epoch, or once a trigger begun after it has ended without
        an epoch."""
        seen, quiet = request.asked_in, 0
        while request.epoch is None:
            self._check(request)
            self._take_last(request)
            trigger = spark_trigger(query)
            # Look twice: Spark notes a trigger's start a moment before it reports the trigger as
            # active.
            quiet = quiet + 1 if trigger.begun == seen and not trigger.active else 0
            if seen != request.asked_in and (trigger.begun != seen or quiet > 1):
                self._nothing_new(request)
            seen = trigger.begun
            request.known.wait(POLL_S)

    def _is_complete(self, request: _Request) -> bool:
        """Tell whether the request's epoch is committed to every sink; for a savepoint, whether it
        is decided for good."""
        coordinator = self.coordinator
        done = coordinator.last_committed if request.ahead is None else coordinator.last_sealed
        return request.epoch is not None and done >= request.epoch

    def _take_last(self, request: _Request) -> None:
        """Give a savepoint the epoch for which the stream waits, if some sink does not commit."""
        if request.ahead is None:
            return
        with self._lock:
            waiting = self.coordinator.epochs.pin_waiting(request.ahead, SINK_PATIENCE_S)
            if waiting is not None:
                if request.epoch is not None:
                    self.coordinator.epochs.unpin(request.epoch, request.epoch + request.ahead)
                request.epoch = waiting
        if request.epoch is not None:
            self.coordinator.seal_waiting(request.epoch, SINK_PATIENCE_S)

    def _nothing_new(self, request: _Request) -> None:
        with self._lock:
            if request.epoch is None:
                if request.ahead is not None and self.coordinator.channel_state.stages:
                    raise UserError(
                        f"job {self.name} takes no savepoint now: rows of its last epoch wait in "
                        "its channel state, and its sources make no epoch that would write them; "
                        "ask again when they have new rows"
                    )
                self._answer(request, self.coordinator.last_stored)
        if self._epoch_of(request) < 0:
            raise UserError(
                f"job {self.name} has no checkpoint, and takes none now: its sources have given "
                "no row yet"
            )

    def _check(self, request: _Request) -> None:
        """Raise the error of the epoch or of the run, if either has failed."""
        ended = self.ended.is_set()
        error = self.coordinator.failure or (self.failure() if ended else None)
        if self._is_complete(request):
            return  # in the very end
        if error is not None:
            raise error
        if ended:
            raise StoppedError(f"job {self.name} has ended before the checkpoint was complete")

    def _epoch_of(self, request: _Request) -> int:
        assert request.epoch is not None
        return request.epoch

    # --- the clock

    def _make_clock(self, spark: SparkSession) -> None:
        try:
            self._clock = loaded_class(spark._jvm, "SeamarkTriggerClock").newInstance()
        except (Py4JError, TypeError, OSError) as error:
            self._refusal = str(error)
