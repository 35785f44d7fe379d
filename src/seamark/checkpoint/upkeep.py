"""The work that a job can do without: what only people, lag tools and the disk's room need.

`Upkeep.later` gives it to a thread of its own. `Upkeep.spared` wraps work done at once.

Invariants: nothing here fails, stops or holds up the job; a failure is a warning, said once until
the same work succeeds again or fails in another way.
"""

import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

MOST_WORK = 600
"""Pieces of work that wait: of more, the oldest are left to the next start."""
LAST_WORK_S = 10.0
"""The longest wait, at the end of a run, for the rest of the work."""


class WorkThread(ABC):
    """A thread for work that nobody waits for. It begins with the first work, and `_run` ends soon
    after `_closing` is set. A daemon: a storage that hangs must not hold up the program's end."""

    def __init__(self, name: str, last_work_s: float) -> None:
        self._name, self._last_work_s = name, last_work_s
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

    @abstractmethod
    def _run(self) -> None:
        """Do the work."""

    def _wake(self) -> None:
        """Tell the thread of new work. Called with `_changed` held."""
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def close(self) -> None:
        """Return when all work is done, or after `last_work_s`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(self._last_work_s)


class Upkeep(WorkThread):
    """The upkeep of one driver; any thread may call."""

    def __init__(self) -> None:
        super().__init__("seamark-upkeep", LAST_WORK_S)
        self._failing: dict[str, type[Exception]] = {}
        self._work: deque[tuple[str, Callable[[], object]]] = deque(maxlen=MOST_WORK)

    @property
    def fails(self) -> bool:
        """Whether any work has failed and not succeeded since."""
        return bool(self._failing)

    @contextlib.contextmanager
    def spared(self, what: str) -> Iterator[None]:
        """Turn an error of the block into a warning; `what` names the work for people."""
        try:
            yield
        except Exception as error:
            known, self._failing[what] = self._failing.get(what), type(error)
            level = logging.DEBUG if known is type(error) else logging.WARNING
            why = (str(error).splitlines() or [type(error).__name__])[0]
            log.log(level, "%s: %s. The job does not need it and goes on; said once", what, why)
        else:
            if self._failing.pop(what, None):
                log.info("%s: done again", what)

    def later(self, what: str, work: Callable[[], object]) -> None:
        """Do this work after all earlier work, on the thread; return at once."""
        with self._changed:
            self._work.append((what, work))
            self._wake()

    def close(self) -> None:
        """Return when all work is done, or after LAST_WORK_S: the next start does the rest."""
        super().close()
        with self._changed:  # the directory may be deleted, or another driver's, from now on
            self._work.clear()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work or self._closing)
                if not self._work:
                    return
                what, work = self._work.popleft()
            with self.spared(what):
                work()
