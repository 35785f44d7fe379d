"""A job, or other work, in a thread of the test's own process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import seamark as sm
from seamark.model.errors import UserError
from tests.chaos.driver import wait_until

PATIENCE_S = 120


class RunningJob:
    """A job in a thread. `error` is the error its run ended with, if any."""

    def __init__(self, job: sm.Job, **how: Any) -> None:
        """Start it; `how` goes to `Job.run`."""
        self.job = job
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, kwargs=how)
        self._thread.start()

    def _run(self, **how: Any) -> None:
        try:
            self.job.run(**how)
        except BaseException as error:
            self.error = error

    def wait_for_epochs(self, count: int) -> None:
        """Return when the job has completed `count` checkpoints; raise its error if it failed."""

        def there() -> bool:
            if self.error is not None:
                raise self.error
            return self.job.checkpoints().counts.completed >= count

        wait_until("epochs", there, PATIENCE_S)

    def take(self, method: str, *directory: Path) -> str:
        """Return the path of a savepoint, taken by this method of the job."""
        asked: Future[str] = getattr(self.job, method)(*map(str, directory))
        return asked.result(180)

    def join(self) -> None:
        """Wait for the end of the run, and raise its error."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """Stop the job, unless it has ended, and wait for the end; its error stays in `error`."""

        def asked() -> bool:
            with contextlib.suppress(UserError):  # it starts, or ends just now
                self.job.stop()
                return True
            return not self._thread.is_alive()

        wait_until("a job to stop", asked, PATIENCE_S)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def end(self) -> None:
        """Stop the job, unless it has ended, and raise the error of its run."""
        self.stop()
        self.join()


def meanwhile(condition: Callable[[], Any], act: Callable[[], object]) -> None:
    """Call `act` in another thread, as soon as `condition` holds.

    Also called at the end of the patience, since most acts end the job the test waits for.
    """

    def wait() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)
        act()

    threading.Thread(target=wait, daemon=True).start()


@contextlib.contextmanager
def repeatedly(act: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Call `act` in another thread, again and again, until the block ends."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(pause_s):
            act()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
