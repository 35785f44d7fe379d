"""What a storage tells of its jobs: their executions, failures and checkpoint history.

Read for jobs that run too, so that looking at a job costs its driver next to nothing. All that is
read here is kept in files that never change, and is read once.
"""

from __future__ import annotations

from typing import Any

from seamark.checkpoint.executions import FAILURES_KEPT, Execution, ExecutionStore
from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.dashboard.shared_pages import Shared
from seamark.model.checkpoint_statistics import CheckpointStatistics
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.job_state import JobState
from seamark.rest.lineage import Lineage, RestoredFrom, execution_page


class StoredJob:
    """One job's directory. Safe to use from any thread."""

    def __init__(self, name: str, job_id: str, files: CheckpointFiles) -> None:
        self.name = name
        self.job_id = job_id
        self._executions = ExecutionStore(files)
        self._statistics = StatisticsStore(files)
        self._records = CheckpointStore(files, files)
        self._over: dict[int, Execution] = {}
        self._newest_execution: Shared[Execution | None] = Shared()
        self._all_executions: Shared[list[Execution]] = Shared()
        self._history: Shared[CheckpointingStatistics] = Shared()

    def newest(self) -> Execution | None:
        """Return the job's last execution; None if its directory is gone, or is another job's."""

        def read() -> Execution | None:
            found = self._executions.newest()
            return found if found is not None and found.start.job_id == self.job_id else None

        return self._newest_execution.get("", read)

    def executions(self) -> list[Execution]:
        """Return the executions that are kept, oldest first."""

        def read() -> list[Execution]:
            numbers = self._executions.numbers()
            for number in numbers:
                # One that has ended, or was followed by another, does not change any more.
                if number not in self._over and (found := self._executions.read(number)):
                    if found.end is not None or number != numbers[-1]:
                        self._over[number] = found
                    else:
                        return [*self._kept(numbers), found]
            return self._kept(numbers)

        return self._all_executions.get("", read)

    def _kept(self, numbers: list[int]) -> list[Execution]:
        self._over = {n: self._over[n] for n in numbers if n in self._over}
        return list(self._over.values())

    def history(self, since_s: float = 0.0) -> CheckpointingStatistics:
        """Return the checkpoints that have ended, summed up; read at `since_s` (monotonic) or
        later."""
        return self._history.get("", self._statistics.read, since_s)

    def details(self, execution: Execution) -> dict[str, Any]:
        """Return ``/jobs/:id`` of a job whose driver does not answer."""
        start, end = execution.start, execution.end
        history = self.history()
        last = history.latest_completed
        # A source's one subtask is its entry in the checkpoint, not how many tasks read it.
        subtasks = {
            task.uid: task.num_subtasks
            for task in (last.tasks if last is not None else ())
            if task.kind != "source"
        }
        since = round(start.started_at * 1000)
        until = -1 if end is None else round(end.ended_at * 1000)
        state = JobState.UNREACHABLE if end is None else end.state
        return {
            "jid": self.job_id,
            "name": self.name,
            "state": state.value,
            "start-time": since,
            "end-time": until,
            "duration": -1 if end is None else until - since,
            "restarts": sum(failure.restarted for failure in execution.failures),
            "reason": "" if end is None else end.reason,
            "vertices": [
                {
                    "id": part["id"],
                    "name": part["id"],
                    "description": part["name"],
                    "kind": part["kind"],
                    "guarantee": part["guarantee"],
                    "has-uid": part["has_uid"],
                    "parallelism": subtasks.get(part["id"], -1),
                    "status": state.value,
                    "metrics": {},
                }
                for part in start.graph
            ],
            "plan": {
                "jid": self.job_id,
                "name": self.name,
                "type": "STREAMING",
                "nodes": [
                    {
                        "id": part["id"],
                        "description": part["name"],
                        "parallelism": subtasks.get(part["id"], -1),
                        "inputs": [{"id": id_, "num": n} for n, id_ in enumerate(part["inputs"])],
                    }
                    for part in start.graph
                ],
            },
        }

    def row(self) -> dict[str, Any]:
        """Return what the list of jobs shows of a job's checkpoints (Seamark's)."""
        history = self.history()
        last: CheckpointStatistics | None = history.latest_completed
        return {
            "checkpoints": history.counts.to_json(),
            "last-checkpoint": None
            if last is None
            else {
                "id": last.id,
                "trigger_timestamp": last.trigger_timestamp,
                "end_to_end_duration": last.end_to_end_duration,
                "state_size": last.state_size,
            },
        }

    def exceptions(self) -> dict[str, Any]:
        """Return ``/jobs/:id/exceptions`` over all executions that are kept, the newest first;
        `execution` (Seamark's) is the number of its own."""
        entries = [
            {
                "exceptionName": failure.exception,
                "stacktrace": failure.message,
                "timestamp": round(failure.timestamp * 1000),
                "epoch": failure.epoch,
                "restarted": failure.restarted,
                "execution": execution.number,
            }
            for execution in reversed(self.executions())
            for failure in reversed(execution.failures)
        ]
        truncated = any(len(e.failures) >= FAILURES_KEPT for e in self.executions())
        return {"exceptionHistory": {"entries": entries, "truncated": truncated}}

    def lineage(self, state: JobState) -> dict[str, Any]:
        """Return ``/jobs/:id/lineage``: what the job went on from, and its executions, the newest
        first. `state` is that of the last one."""
        origin = self._records.read_identity().restored_from
        executions = self.executions()[::-1]
        return Lineage(
            jid=self.job_id,
            generation=max(self._records.generations(), default=0),
            restored=None
            if origin is None
            else RestoredFrom(path=origin["path"], jid=origin["job_id"], epoch=origin["epoch"]),
            executions=[
                execution_page(execution, None if place else state)
                for place, execution in enumerate(executions)
            ],
        ).model_dump(by_alias=True)
