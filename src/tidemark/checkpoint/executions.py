"""The executions of a job: each `Job.run`, where its driver answers, how it ended and what failed.

    executions/<n>/started.json  failure.<i>.json  ended.json

Kept beside the checkpoints, so that a job is found and its history is known when no driver lives.
Nothing else reads these files, so none of them, lost or damaged, can stop a job. docs/FORMAT.md has
their contents; `runtime/registry.py` reads them for jobs of other processes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from tidemark.checkpoint.envelope import open_envelope, seal_envelope
from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.model.job_state import JobState

log = logging.getLogger(__name__)

EXECUTIONS_KEPT = 100
FAILURES_KEPT = 100
_READERS = 16
_FAILURE = re.compile(r"failure\.(\d+)\.json")


@dataclass(frozen=True)
class ExecutionStart:
    """A driver that has begun to run the job. `started_at`: seconds since 1970. `rest_url`: where
    the driver answers; "" if it has no server. For people who look when no driver answers, empty
    where they are not known: `graph`, `JobGraph.to_record`, and `pages`, what the driver answers on
    the paths ``config``, ``checkpoints/config`` and ``guarantees``, without secrets."""

    job_id: str
    name: str
    host: str
    pid: int
    started_at: float
    rest_url: str
    graph: Sequence[Mapping[str, Any]] = field(default_factory=list)
    pages: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExecutionFailure:
    """A failure after which the job was restarted, or ended. `epoch` is the one that it hit, -1 if
    it is not known; `timestamp` is in seconds since 1970."""

    timestamp: float
    epoch: int
    exception: str
    message: str
    restarted: bool


@dataclass(frozen=True)
class ExecutionEnd:
    """How an execution ended, by its own account. `reason` is "" unless it failed."""

    state: JobState
    ended_at: float
    reason: str = ""


@dataclass(frozen=True)
class Execution:
    """One `Job.run`, as far as it is recorded: `end` is None of one that runs, or was killed."""

    number: int
    start: ExecutionStart
    failures: Sequence[ExecutionFailure]
    end: ExecutionEnd | None


class ExecutionStore:
    """The executions below one job's directory."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files

    def begin(self, start: ExecutionStart) -> int:
        """Record that a driver runs the job; return the execution's number, counted from 1."""
        number = max(self.numbers(), default=0) + 1
        while not self._create(number, "started.json", "execution", asdict(start)):
            number += 1
        for old in self.numbers()[:-EXECUTIONS_KEPT]:
            self._files.delete(f"executions/{old}")
        return number

    def record_failure(self, number: int, index: int, failure: ExecutionFailure) -> None:
        """Record the execution's failure number `index`, counted from 0; the last FAILURES_KEPT
        are kept."""
        self._create(number, f"failure.{index}.json", "execution-failure", asdict(failure))
        if index >= FAILURES_KEPT:
            self._files.delete(f"executions/{number}/failure.{index - FAILURES_KEPT}.json")

    def end(self, number: int, end: ExecutionEnd) -> None:
        """Record that the execution has ended."""
        body = {**asdict(end), "state": end.state.value}
        self._create(number, "ended.json", "execution-end", body)

    def numbers(self) -> list[int]:
        """Return the numbers of the executions that are kept, oldest first."""
        return sorted(int(name) for name in self._files.list("executions") if name.isdigit())

    def newest(self) -> Execution | None:
        """Return the last execution that can be read; None of a job that was never run."""
        for number in reversed(self.numbers()):
            if execution := self.read(number):
                return execution
        return None

    def all(self) -> list[Execution]:
        """Return every execution that can be read, the oldest first."""
        with ThreadPoolExecutor(_READERS) as pool:  # an object store takes its time for each file
            found = pool.map(self.read, self.numbers())
            return [execution for execution in found if execution is not None]

    def read(self, number: int) -> Execution | None:
        """Return one execution, without what cannot be read; None if its start cannot."""
        directory = f"executions/{number}"
        names = self._files.list(directory)
        started = self._open(f"{directory}/started.json", "execution")
        if started is None:
            return None
        end = None
        if "ended.json" in names:
            body = self._open(f"{directory}/ended.json", "execution-end")
            end = body and ExecutionEnd(**{**body, "state": JobState(body["state"])})
        indexes = sorted(int(m[1]) for m in map(_FAILURE.fullmatch, names) if m)
        failures = [
            self._open(f"{directory}/failure.{index}.json", "execution-failure")
            for index in indexes
        ]
        return Execution(
            number,
            ExecutionStart(**started),
            [ExecutionFailure(**failure) for failure in failures if failure],
            end or None,
        )

    def _create(self, number: int, name: str, kind: str, body: dict[str, Any]) -> bool:
        try:
            self._files.create(f"executions/{number}/{name}", seal_envelope(kind, body))
        except FileExistsError:
            return False
        return True

    def _open(self, path: str, kind: str) -> dict[str, Any] | None:
        try:
            return open_envelope(kind, self._files.read(path), f"{self._files.uri}/{path}")
        except FileNotFoundError:  # an execution that is just being begun, or deleted
            return None
        except Exception as error:
            log.warning("%s/%s is left out: %s", self._files.uri, path, error)
            return None


class ExecutionRecorder:
    """Records one execution while it runs. What cannot be written is a warning: the job goes on."""

    def __init__(self) -> None:
        self._store: ExecutionStore | None = None
        self._number = 0
        self._start: ExecutionStart | None = None
        self._end: ExecutionEnd | None = None
        self._earlier: Sequence[Execution] | None = None
        self.failures: list[ExecutionFailure] = []
        """What has failed so far, the newest last; at most FAILURES_KEPT."""
        self._failed = 0

    def begin(self, files: CheckpointFiles, start: ExecutionStart) -> None:
        """Called once, when the job's directory is known to be this job's."""
        store = ExecutionStore(files)
        try:
            number = store.begin(start)
        except Exception as error:
            log.warning("the execution could not be recorded: %s", error)
            return
        self._store, self._number, self._start = store, number, start
        for index, failure in enumerate(self.failures):
            self._record(index, failure)

    @property
    def recorded(self) -> Execution | None:
        """This execution, as far as it has come; None before `begin`, or if that has failed."""
        if self._start is None:
            return None
        return Execution(self._number, self._start, self.failures, self._end)

    def earlier(self) -> Sequence[Execution]:
        """Return the executions before this one, the oldest first. They are over, so they are read
        once."""
        if self._earlier is None:
            if self._store is None:
                return ()
            self._earlier = [e for e in self._store.all() if e.number < self._number]
        return self._earlier

    def add_failure(self, failure: ExecutionFailure) -> None:
        """Called after each failure, also before `begin`."""
        self.failures = [*self.failures, failure][-FAILURES_KEPT:]
        self._record(self._failed, failure)
        self._failed += 1

    def end(self, end: ExecutionEnd) -> None:
        """Called once, when nothing of the execution goes on any more."""
        self._end = end
        if self._store is not None:
            try:
                self._store.end(self._number, end)
            except Exception as error:
                log.warning("the end of the execution could not be recorded: %s", error)

    def _record(self, index: int, failure: ExecutionFailure) -> None:
        if self._store is not None:
            try:
                self._store.record_failure(self._number, index, failure)
            except Exception as error:
                log.warning("a failure could not be recorded: %s", error)
