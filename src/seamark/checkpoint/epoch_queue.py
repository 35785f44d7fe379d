"""The epochs of one driver under way, and the reasons to hold the next one back.

Spark's stream thread brings epochs in (`beginning`, `begin`, `await_room`, `add`), the commit
thread takes them out (`committed`); savepoints pin the stream (`pin`), a stop drains it (`drain`),
and a failure ends all waits (`fail`). Every wait here is for `changed`.

Invariant: an epoch is added only when fewer than `max_concurrent` stored epochs are uncommitted.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator

from seamark.checkpoint.task_reports import EpochProgress
from seamark.model.errors import FencedError, StoppedError
from seamark.protocol.states import AttemptState

LONGEST_POLL_S = 0.05
UNDECIDED = (AttemptState.PENDING, AttemptState.PRE_COMMITTED, AttemptState.PREPARED)


class EpochQueue:
    """`uncommitted` are the stored epochs, oldest first; `current` is the epoch tasks work on.
    `holds_back` is whether an epoch planned by Spark must not begin yet; `in_turn`, whether Spark
    plans none before the one before is committed."""

    def __init__(self, max_concurrent: int, min_pause_s: float) -> None:
        self._max_concurrent = max_concurrent
        self._min_pause_s = min_pause_s
        self._pause_until = 0.0
        self._pins: list[tuple[int, int]] = []
        self._draining = False
        self._turned_away = threading.Event()
        self._ended = False
        self.changed = threading.Condition()
        self.uncommitted: deque[EpochProgress] = deque()
        self.current: EpochProgress | None = None
        self.holds_back = False
        self.in_turn = False
        self.failure: BaseException | None = None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self.changed:
            yield
            self.changed.notify_all()

    # --- the run's end

    @property
    def over(self) -> bool:
        """Whether the query has ended, or the run has failed."""
        return self._ended or self.failure is not None

    def end(self) -> None:
        """The query has ended: nothing more comes."""
        with self._changing():
            self._ended = True

    def fail(self, error: BaseException) -> None:
        """End all waits; the first failure stands."""
        with self._changing():
            self.failure = self.failure or error

    def check(self) -> None:
        """Raise FencedError, with its cause, if the run has failed."""
        if self.failure is not None:
            raise FencedError("the checkpoint coordinator has stopped") from self.failure

    def drain(self, patience_s: float) -> bool:
        """Hold back the next epoch, and wait until the one under way is committed; return False if
        it is not after `patience_s` seconds. `turn_away` then ends the epoch held back."""

        def drained() -> bool:
            current = self.current
            held = current is None or self._is_pinned(current.epoch)
            return self.over or (not self.uncommitted and held)

        with self.changed:
            self._draining = True
            self.changed.notify_all()
            return self.changed.wait_for(drained, patience_s)

    def turn_away(self) -> None:
        """End the epoch held back. Spark's query must have been told to stop."""
        with self._changing():
            self._turned_away.set()

    # --- an epoch's way, on Spark's stream thread and on the commit thread

    @contextlib.contextmanager
    def beginning(self, epoch: int) -> Iterator[None]:
        """Enter the block when `epoch` may begin: after `min_pause`, and as far as pins allow.
        Raises FencedError if the run has failed, StoppedError if it drains."""
        self.holds_back = True
        try:
            with self.changed:
                self._pause()
                self.changed.wait_for(
                    lambda: self.over or self._draining or not self._is_pinned(epoch)
                )
            self.check()
            if self._draining:
                self._turned_away.wait()
                raise StoppedError(f"the job is stopping; epoch {epoch} runs at the next start")
            yield
        finally:
            self.holds_back = False

    def _pause(self) -> None:
        """Wait until every sink has committed the epoch before, and `min_pause` longer. As in
        Flink, a pause rules out overlapping epochs."""
        while self._min_pause_s and not (self.over or self._draining):
            left_s = self._pause_until - time.monotonic()
            if left_s <= 0 and not self.uncommitted:
                return
            self.changed.wait(left_s if left_s > 0 else None)

    def begin(self, progress: EpochProgress) -> None:
        """Make this epoch the current one: tasks work on it."""
        with self._changing():
            self.current = progress

    def await_room(self, epoch: int) -> None:
        """Wait until `epoch` may be stored. Raises FencedError if the run has failed, StoppedError
        if it ends with the epoch before."""
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    self.over
                    or self._turned_away.is_set()
                    or (not self.is_full and not self._is_pinned(epoch))
                )
            )
        self.check()
        if self._turned_away.is_set() and self._is_pinned(epoch):
            raise StoppedError(f"the job ends with epoch {epoch - 1}; {epoch} runs at a next start")

    def add(self, progress: EpochProgress) -> None:
        """Move the current epoch to the uncommitted ones: it is stored."""
        with self._changing():
            self.uncommitted.append(progress)
            self.current = None

    def next(self, timeout_s: float) -> EpochProgress | None:
        """Return the oldest stored epoch not committed; None if there is none after `timeout_s`, or
        when the run is over."""
        with self.changed:
            self.changed.wait_for(lambda: self.uncommitted or self.over, timeout_s)
            return self.uncommitted[0] if self.uncommitted else None

    def await_later(self, epoch: int, timeout_s: float) -> bool:
        """Return whether a later epoch is the current one. If not, wait `timeout_s` seconds before
        the answer, unless the run is over."""
        with self.changed:
            if self.current is not None and self.current.epoch > epoch:
                return True
            self.changed.wait_for(lambda: self.over, timeout_s)
            return False

    def committed(self, progress: EpochProgress) -> None:
        """Remove the oldest stored epoch: every sink has committed it."""
        with self._changing():
            self._pause_until = progress.committed_s + self._min_pause_s
            if self.uncommitted and self.uncommitted[0] is progress:
                self.uncommitted.popleft()

    # --- queries from other threads

    def in_progress(self) -> list[EpochProgress]:
        """Return the epochs begun and not committed, oldest first."""
        with self.changed:
            return [*self.uncommitted, *([self.current] if self.current else [])]

    @property
    def is_full(self) -> bool:
        """Whether an epoch must wait before it is stored: `max_concurrent` are uncommitted."""
        return len(self.uncommitted) >= (1 if self.in_turn else self._max_concurrent)

    @property
    def awaits_spark(self) -> bool:
        """Whether no epoch is under way, each of which has a timeout of its own: Spark may wait for
        a commit, with the next one or with its query's end."""
        with self.changed:
            return not (self.holds_back or self.in_progress())

    def undecided(self, after: int = -1) -> EpochProgress | None:
        """Return the oldest epoch after `after` not known to be decided."""
        waiting = (p for p in self.in_progress() if p.epoch > after and p.state in UNDECIDED)
        return next(waiting, None)

    # --- savepoints

    def pin(self, epoch: int, last: int) -> None:
        """Hold the stream at the end of epoch `last` until `unpin`, so that no part of `epoch` is
        deleted. For a savepoint, from any thread."""
        with self.changed:
            self._pins.append((epoch, last))

    def unpin(self, epoch: int, last: int) -> None:
        """Let the stream go on."""
        with self._changing():
            self._pins.remove((epoch, last))

    def pin_waiting(self, ahead: int, since_s: float) -> int | None:
        """Pin an epoch for a savepoint if the stream waits for it: a silent sink must not stop it.

        Applies while the stream waits for a decided epoch that some sink has not committed for
        `since_s` seconds. Pins it, as `pin` does, up to `ahead` epochs after it, and returns it;
        otherwise, or if the epoch has channel state, returns None. With `ahead` 0 it is the last
        epoch that can be decided; it may still have to be sealed.
        """
        with self.changed:
            if not self.is_full or not self._waits(since_s):
                return None
            waiting = self.uncommitted[0 if ahead else -1]
            if waiting.persisted_bytes:
                return None
            epoch = waiting.epoch
            self._pins.append((epoch, epoch + ahead))
            return epoch

    def _is_pinned(self, epoch: int) -> bool:
        return any(epoch > last for _, last in self._pins)

    def _waits(self, since_s: float) -> bool:
        """Return whether the commit of the oldest uncommitted epoch began `since_s` seconds ago."""
        begun_s = self.uncommitted[0].commit_started_s if self.uncommitted else 0.0
        return bool(begun_s) and time.monotonic() - begun_s >= since_s

    def overdue(self, epoch: int, since_s: float) -> list[int]:
        """Return `epoch` and the uncommitted ones before it, if some sink has not committed the
        oldest for `since_s` seconds; otherwise nothing."""
        with self.changed:
            waiting = [p.epoch for p in self.uncommitted if p.epoch <= epoch]
            return waiting if epoch in waiting and self._waits(since_s) else []

    def await_commits(self, epoch: int, patience_s: float) -> list[int]:
        """Wait until `epoch` is committed, or some sink has tried for `patience_s` seconds; return
        the uncommitted epochs up to and with `epoch`."""
        with self.changed:
            while self.uncommitted and self.uncommitted[0].epoch <= epoch:
                if self.over or self._waits(patience_s):
                    break
                self.changed.wait(LONGEST_POLL_S)
            return [p.epoch for p in self.uncommitted if p.epoch <= epoch]
