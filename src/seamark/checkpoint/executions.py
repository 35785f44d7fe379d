"""The executions of a job: each `Job.run`, its driver's address, its end and its failures.

    executions/<n>/started.json  failure.<i>.json  ended.json

Kept beside the checkpoints, so that a job is found and its history is known when no driver lives.
Nothing else reads these files, so none of them, lost or damaged, can stop a job. docs/FORMAT.md has
their contents; `jobs/listing.py` reads them for jobs of other processes.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from seamark.checkpoint.envelope import canonical, create_record, load_for_people
from seamark.checkpoint.upkeep import Upkeep
from seamark.files import Directory, in_threads, numbered
from seamark.model.errors import CorruptRecordError
from seamark.model.job_state import OUTSIDE, JobState
from seamark.model.records import read_as, record_of
from seamark.model.stats_summary import UNKNOWN

log = logging.getLogger(__name__)
T = TypeVar("T")

EXECUTIONS_KEPT = 100
FAILURES_KEPT = 100
LOCATION = "location"
_READERS = 16
_FAILURE = re.compile(r"failure\.(\d+)\.json")
_GRAPH_FIELDS = {"id", "kind", "name", "inputs", "has_uid", "guarantee"}
_LATEST_S = 2.5e11
"""The bound of valid times: about the year 9892."""

Sign = Callable[[bytes], str]
"""Returns the signature of a driver's record of itself, made with the job's token."""


def unsigned(content: bytes) -> str:
    """Return no signature: the driver has no token."""
    return ""


@dataclass(frozen=True)
class ExecutionStart:
    """A driver that has begun to run the job. `started_at`: seconds since 1970. `rest_url`: the
    driver's address; "" if it has no server. `log`: the file with the program's output, on its
    machine; "" if `seamark run -d` has not started it.

    For readers while no driver answers, empty if not known: `graph`, `JobGraph.to_record`, and
    `pages`, the driver's answers on the paths ``config``, ``checkpoints/config`` and
    ``guarantees``, without secrets. Of a query of ``format("seamark")`` `pages` has `LOCATION`:
    its ``options`` without secrets, and the ``schema`` of its DataFrame as Spark writes it.
    """

    job_id: str
    name: str
    host: str
    pid: int
    started_at: float
    rest_url: str
    graph: list[dict[str, Any]] = field(default_factory=list)
    pages: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""

    @property
    def is_observed(self) -> bool:
        """Whether its end is recorded, and its driver can be asked: not that of a data source."""
        return LOCATION not in self.pages


@dataclass(frozen=True)
class ExecutionFailure:
    """A failure after which the job was restarted, or ended. `epoch` is the epoch hit by it, -1 if
    not known; `timestamp` is in seconds since 1970."""

    timestamp: float
    epoch: int
    exception: str
    message: str
    restarted: bool


@dataclass(frozen=True)
class ExecutionEnd:
    """The end of an execution, by its own account. `reason` is "" unless it failed."""

    state: JobState
    ended_at: float
    reason: str = ""


@dataclass(frozen=True)
class Execution:
    """One `Job.run`, as far as it is recorded: `end` is None while it runs, or if it was killed.

    Set only if it was read from the storage: `record` is the place of its start's record, `content`
    the signed part of the start, and `signature` the driver's signature of it, "" if there is none.
    """

    number: int
    start: ExecutionStart
    failures: Sequence[ExecutionFailure]
    end: ExecutionEnd | None
    record: str = field(default="", compare=False)
    content: bytes = field(default=b"", compare=False, repr=False)
    signature: str = field(default="", compare=False)

    @property
    def restarts(self) -> int:
        """The number of restarts of the job in it."""
        return sum(failure.restarted for failure in self.failures)

    @property
    def state(self) -> JobState:
        """The state at its end; if none is recorded UNREACHABLE, or UNOBSERVED."""
        if self.end is None:
            return JobState.UNREACHABLE if self.start.is_observed else JobState.UNOBSERVED
        return self.end.state

    def row(self, state: JobState) -> dict[str, Any]:
        """Return it in the fields of Flink's ``/jobs/overview``; `state` is the job's. Times are
        milliseconds since 1970; -1 is "not ended", "not known"."""
        start, end = self.start, self.end
        since = round(start.started_at * 1000)
        until = round((time.time() if end is None else end.ended_at) * 1000)
        return {
            "jid": start.job_id,
            "name": start.name,
            "state": state.value,
            "start-time": since,
            "end-time": UNKNOWN if end is None else until,
            "duration": UNKNOWN if end is None and state in OUTSIDE else until - since,
            "restarts": self.restarts,
        }


class ExecutionStore:
    """The executions below one job's directory."""

    def __init__(self, files: Directory) -> None:
        self._files = files

    def begin(self, start: ExecutionStart, sign: Sign = unsigned) -> int:
        """Record that a driver runs the job; return the execution's number, counted from 1."""
        number, body = max(self.numbers(), default=0) + 1, asdict(start)
        while not self._create(
            number,
            "started.json",
            "execution",
            {**body, "signature": sign(_content(number, body))},
        ):
            number += 1
        for old in self.numbers()[:-EXECUTIONS_KEPT]:
            self._files.delete(f"executions/{old}")
        return number

    def record_failure(self, number: int, index: int, failure: ExecutionFailure) -> None:
        """Record the execution's failure `index`, from 0; the last FAILURES_KEPT are kept."""
        self._create(number, f"failure.{index}.json", "execution-failure", asdict(failure))
        if index >= FAILURES_KEPT:
            self._files.delete(f"executions/{number}/failure.{index - FAILURES_KEPT}.json")

    def end(self, number: int, end: ExecutionEnd) -> None:
        """Record that the execution has ended."""
        self._create(number, "ended.json", "execution-end", record_of(end))

    def numbers(self) -> list[int]:
        """Return the numbers of the kept executions, oldest first."""
        return numbered(self._files.list("executions"))

    def newest(self) -> Execution | None:
        """Return the last readable execution; None if there is none."""
        for number in reversed(self.numbers()):
            if execution := self.read(number):
                return execution
        return None

    def all(self) -> list[Execution]:
        """Return every readable execution, the oldest first."""
        # An object store takes its time for each file.
        executions = in_threads(self.read, self.numbers(), _READERS)
        return [execution for execution in executions if execution is not None]

    def start(self, number: int) -> ExecutionStart | None:
        """Return the start of one execution; None if it is unreadable."""
        return self._open(f"executions/{number}/started.json", "execution", _start)

    def read(self, number: int) -> Execution | None:
        """Return one execution, without its unreadable parts; None if its start is unreadable."""
        directory = f"executions/{number}"
        names = self._files.list(directory)
        path = f"{directory}/started.json"
        record = self._open(path, "execution", lambda body: (_start(body), body))
        if record is None:
            return None
        start, body = record
        end = None
        if "ended.json" in names:
            end = self._open(f"{directory}/ended.json", "execution-end", _end)
        indexes = sorted(int(m[1]) for m in map(_FAILURE.fullmatch, names) if m)
        failures = [
            self._open(f"{directory}/failure.{index}.json", "execution-failure", _failure)
            for index in indexes
        ]
        signature = body.pop("signature", "")
        return Execution(
            number,
            start,
            [failure for failure in failures if failure is not None],
            end,
            f"{self._files.uri}/{path}",
            _content(number, body),
            signature if isinstance(signature, str) else "",
        )

    def _create(self, number: int, name: str, kind: str, body: dict[str, Any]) -> bool:
        return create_record(self._files, kind, f"executions/{number}/{name}", body)

    def _open(self, path: str, kind: str, load: Callable[[dict[str, Any]], T]) -> T | None:
        return load_for_people(self._files, kind, path, load)


def _content(number: int, body: Mapping[str, Any]) -> bytes:
    """Return the signed content of a start: all of it, and the number of its execution."""
    return b"seamark/execution\n" + canonical({"execution": number, "body": body})


def _start(body: Mapping[str, Any]) -> ExecutionStart:
    start = read_as(ExecutionStart, body, newer=True)
    _check_time(start.started_at)
    for part in start.graph:
        if not part.keys() >= _GRAPH_FIELDS:
            raise CorruptRecordError(f"{part!r} is no part of a graph")
    if start.rest_url and not start.rest_url.startswith(("http://", "https://")):
        raise CorruptRecordError(
            f"rest_url is {start.rest_url!r}; a driver answers over http: or https:"
        )
    return start


def _failure(body: Mapping[str, Any]) -> ExecutionFailure:
    failure = read_as(ExecutionFailure, body)
    _check_time(failure.timestamp)
    return failure


def _end(body: Mapping[str, Any]) -> ExecutionEnd:
    end = read_as(ExecutionEnd, body)
    _check_time(end.ended_at)
    return end


def _check_time(seconds: float) -> None:
    if not 0 <= seconds < _LATEST_S:
        raise CorruptRecordError(f"{seconds!r} is no time")


class ExecutionRecorder:
    """Records one execution while it runs. A failed write is a warning: the job goes on."""

    def __init__(self) -> None:
        self._upkeep = Upkeep()
        self._store: ExecutionStore | None = None
        self._number = 0
        self._start: ExecutionStart | None = None
        self._end: ExecutionEnd | None = None
        self._earlier: Sequence[Execution] | None = None
        self.failures: list[ExecutionFailure] = []
        """The failures so far, the newest last; at most FAILURES_KEPT."""
        self._failed = 0

    def begin(self, files: Directory, start: ExecutionStart, sign: Sign = unsigned) -> None:
        """Record the start. Called once, when the job's directory is known to be this job's."""
        store = ExecutionStore(files)
        with self._upkeep.spared("record of the execution"):
            self._number = store.begin(start, sign)
            self._store, self._start = store, start
            _tell_moved_sinks(store.start(self._number - 1), start)
        for index, failure in enumerate(self.failures):
            self._record(index, failure)

    @property
    def recorded(self) -> Execution | None:
        """This execution, as far as it has come; None before `begin`, or if `begin` has failed."""
        if self._start is None:
            return None
        return Execution(self._number, self._start, self.failures, self._end)

    def earlier(self) -> Sequence[Execution]:
        """Return the executions before this one, the oldest first. They are read once."""
        if self._earlier is None:
            if self._store is None:
                return ()
            self._earlier = [e for e in self._store.all() if e.number < self._number]
        return self._earlier

    def add_failure(self, failure: ExecutionFailure) -> None:
        """Record a failure. Called after each one, also before `begin`."""
        self.failures = [*self.failures, failure][-FAILURES_KEPT:]
        self._record(self._failed, failure)
        self._failed += 1

    def end(self, end: ExecutionEnd) -> None:
        """Record the end. Called once, when nothing of the execution goes on any more."""
        self._end = end
        if self._store is not None:
            with self._upkeep.spared("record of the execution's end"):
                self._store.end(self._number, end)

    def _record(self, index: int, failure: ExecutionFailure) -> None:
        if self._store is not None:
            with self._upkeep.spared("record of a failure"):
                self._store.record_failure(self._number, index, failure)


def _tell_moved_sinks(before: ExecutionStart | None, now: ExecutionStart) -> None:
    """Warn of each sink that writes elsewhere than in the run before: of a relative path, which is
    another one in another directory, nobody would notice that the target was split."""
    sinks = {part["id"]: part["name"] for part in now.graph if part["kind"] == "sink"}
    for part in before.graph if before else ():
        name = sinks.get(part["id"], part["name"])
        if part["kind"] == "sink" and name != part["name"]:
            log.warning(
                "sink %r is now: %s. In the job's last run it was: %s; what that run has written "
                "stays there. If it is not meant, stop the job and start it as before, in the "
                "directory of before if the path is a relative one",
                part["id"], name, part["name"],
            )  # fmt: skip


LOG_VARIABLE = "SEAMARK_LOG"
"""Environment: the file with the program's output, made by `seamark run -d`."""
ANNOUNCE_VARIABLE = "SEAMARK_ANNOUNCE"
"""Environment: the file to make once the job runs: `ExecutionStart` and ``directory`` as JSON.
`seamark run -d` waits for it: only the program knows its job's storage and name."""


def announce(start: ExecutionStart, directory: str) -> None:
    """Make the file named by the environment, if any. Called when the job's first run has started;
    a second job of the same program is not announced."""
    path = os.environ.pop(ANNOUNCE_VARIABLE, None)
    if path is None:
        return
    aside = Path(f"{path}.tmp")
    try:
        aside.write_text(json.dumps({**asdict(start), "directory": directory}), encoding="utf-8")
        aside.replace(path)
    except OSError as error:  # nobody waits any more
        log.info("the job could not be announced at %s: %s", path, error)
