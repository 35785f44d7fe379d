"""The jobs of a storage as read from it: their executions, failures and checkpoint history.

Running jobs are read from the storage too, so looking at a job costs its driver next to nothing.
The files read here never change, and each is read once.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from seamark.checkpoint.accepted_losses import AcceptedLoss, read_losses
from seamark.checkpoint.batch_log import StoredLog
from seamark.checkpoint.executions import Execution, ExecutionStore
from seamark.checkpoint.flow_figures import PartFigures
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.store import CheckpointStore
from seamark.checkpoint.transactions import left_parts, stored_parts
from seamark.dashboard.shared_pages import Shared
from seamark.jobs.checkpoint_history import open_storage, open_store
from seamark.jobs.listing import ListedJob
from seamark.jobs.registry import driver_state
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.errors import SeamarkError
from seamark.model.job_state import JobState
from seamark.model.stats_summary import UNKNOWN
from seamark.rest.epochs import left_transactions
from seamark.rest.observed import ObservedJob

log = logging.getLogger(__name__)


class JobNotFoundError(Exception):
    """The storage has no job with this id."""


class StoredJob(ObservedJob):
    """One job's directory. Safe to use from any thread."""

    is_live: ClassVar[bool] = False

    def __init__(self, job: ListedJob) -> None:
        self.name, self.directory, self.job_id = job.name, job.directory, job.start.job_id
        self.superseded = job.superseded
        files = open_storage(job.uri)
        self._executions = ExecutionStore(files)
        self._statistics = StatisticsStore(files)
        self._records = CheckpointStore(files, files)
        self._batches = StoredLog(files)
        self._over: dict[int, Execution] = {}
        self._newest_execution: Shared[Execution | None] = Shared()
        self._all_executions: Shared[list[Execution]] = Shared()
        self._losses: Shared[Sequence[AcceptedLoss]] = Shared()
        self._left: Shared[Any] = Shared()
        self._history: Shared[CheckpointingStatistics] = Shared()

    def newest(self) -> Execution | None:
        """Return the job's last execution; None if its directory is gone, or is another job's."""

        def read() -> Execution | None:
            newest = self._executions.newest()
            return newest if newest is not None and newest.start.job_id == self.job_id else None

        return self._newest_execution.get("", read)

    def history(self, since_s: float = 0.0) -> CheckpointingStatistics:
        """Return ended checkpoints with their summary, read at `since_s` (monotonic) or later."""
        return self._history.get("", self._statistics.read, since_s)

    def row(self) -> dict[str, Any]:
        """Return the part about checkpoints in a job's row of the list of jobs (Seamark's)."""
        history = self.history()
        last = history.latest_completed
        names = ("id", "trigger_timestamp", "end_to_end_duration", "state_size")
        return {
            "checkpoints": history.counts.to_json(),
            "last-checkpoint": last and {name: getattr(last, name) for name in names},
        }

    # --- as every observed job

    def execution(self) -> Execution:
        """Return the last execution; raises JobNotFoundError where `newest` returns None."""
        if (newest := self.newest()) is None:
            storage = self._statistics.uri.rpartition("/")[0]
            raise JobNotFoundError(f"Job {self.job_id} is gone from {storage}")
        return newest

    def state(self) -> JobState:
        """Return how the job has ended; UNREACHABLE or UNOBSERVED if it has not, for no driver
        answers."""
        return JobState.SUPERSEDED if self.superseded else self.execution().state

    def executions(self) -> Sequence[Execution]:
        """Return the kept executions; an ended execution is read once."""

        def read() -> list[Execution]:
            numbers = self._executions.numbers()
            running = []
            for number in numbers:
                if number not in self._over and (execution := self._executions.read(number)):
                    # An execution ended, or followed by another, does not change any more.
                    if execution.end is not None or number != numbers[-1]:
                        self._over[number] = execution
                    else:
                        running = [execution]
            self._over = {n: self._over[n] for n in numbers if n in self._over}
            return [*running, *reversed(self._over.values())]

        return self._all_executions.get("", read)

    def origin(self) -> tuple[int, Mapping[str, Any] | None]:
        """Return the newest generation among the leases, and the origin in the job's identity."""
        restored_from = self._records.read_identity().restored_from
        return max(self._records.generations(), default=0), restored_from

    def losses(self) -> Sequence[AcceptedLoss]:
        """Return the losses in the job's directory."""
        return self._losses.get("", lambda: read_losses(self._records.files))

    def figures(self, uid: str) -> PartFigures:
        """Return only the subtasks of a part, counted in the last completed checkpoint."""
        last = self.history().latest_completed
        subtasks = {task.uid: task.num_subtasks for task in (last.tasks if last else ())}
        return PartFigures(subtasks=subtasks.get(uid, UNKNOWN))

    def told(self, page: str) -> Any:
        """Return the page as stored by the driver at its start; None if it stored none. The open
        transactions are those of stored attempts."""
        if page == "transactions":
            return self._left.get("", self._read_left)
        return self.execution().start.pages.get(page)

    def _read_left(self) -> Any:
        if not self.execution().start.is_observed:
            return left_transactions(left_parts(self._batches)).model_dump()
        directory = self._records.uri
        store = open_store(open_storage, directory)
        try:
            storage = directory.removesuffix(f"/{self.directory}")
            driver = driver_state(storage, self.directory, store)
            return left_transactions(stored_parts(self.name, store, driver)).model_dump()
        except SeamarkError as error:  # a damaged record: its next start says so
            log.warning("%s", error)
            return None
