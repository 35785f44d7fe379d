"""A job, or other work, in a thread of the test's own process."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

import seamark as sm
from seamark.model.errors import UserError
from tests.chaos.driver import wait_until

PATIENCE_S = 120


class RunningJob:
    """A job in a thread. `error` is the error its run ended with, if any."""

    living: ClassVar[set[RunningJob]] = set()
    """Those whose run has not ended."""

    def __init__(self, job: sm.Job, **how: Any) -> None:
        """Start it; `how` goes to `Job.run`."""
        self.job = job
        self.error: BaseException | None = None
        # It does not keep pytest's process alive, if a failed test leaves it.
        self._thread = threading.Thread(target=self._run, kwargs=how, daemon=True)
        RunningJob.living.add(self)
        self._thread.start()

    def _run(self, **how: Any) -> None:
        try:
            self.job.run(**how)
        except BaseException as error:
            self.error = error
        finally:
            RunningJob.living.discard(self)

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
        self._wait_for_the_end()
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
        self._wait_for_the_end()

    def end(self) -> None:
        """Stop the job, unless it has ended, and raise the error of its run."""
        self.stop()
        self.join()

    def _wait_for_the_end(self) -> None:
        self._thread.join(PATIENCE_S)
        name = self.job.declaration.name
        assert not self._thread.is_alive(), f"job {name} still runs after {PATIENCE_S} s"


def active_queries() -> dict[str, Any]:
    """Return Spark's running queries of this process, by the ids of their runs."""
    sql = sys.modules.get("pyspark.sql")
    session = sql.SparkSession._instantiatedSession if sql is not None else None
    if session is None:
        return {}
    with contextlib.suppress(Exception):  # its JVM is gone
        return {str(query.runId): query for query in session.streams.active}
    return {}


@contextlib.contextmanager
def nothing_is_left() -> Iterator[None]:
    """At the end, stop jobs and queries begun meanwhile that still run, for their names to be
    free."""
    jobs, queries = set(RunningJob.living), active_queries()
    yield
    for job in RunningJob.living - jobs:
        job.stop()
    for id_, query in active_queries().items():
        if id_ not in queries:
            with contextlib.suppress(Exception):  # it ends by itself just now
                query.stop()


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
