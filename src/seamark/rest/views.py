"""What the REST interface shows of a job, and what it can do with it; `job.py` makes the view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from seamark.api.config import CheckpointConfig
from seamark.api.declarations import JobDeclaration
from seamark.api.settings import Settings
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.executions import Execution, ExecutionFailure
from seamark.checkpoint.flow_figures import FlowFigures
from seamark.guarantees.end_to_end import GuaranteeReport
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.job_graph import JobGraph
from seamark.model.job_state import JobState
from seamark.model.redaction import Redactor
from seamark.runtime.supervision import Supervisor
from seamark.savepoints.restore.plan import RestorePlan


@dataclass(frozen=True)
class JobView:
    """One job. Asked for each request, from other threads than the job's; `supervisor` is that of
    the run, which there is before anybody can ask."""

    declaration: JobDeclaration
    settings: Settings
    redactor: Redactor
    guarantees: GuaranteeReport
    graph: JobGraph
    flow: FlowFigures
    checkpoints: Callable[[], CheckpointingStatistics]
    savepoint: Callable[..., Future[str]]
    """`Job.savepoint`."""
    stop_with_savepoint: Callable[..., Future[str]]
    """`Job.stop_with_savepoint`."""
    restore_plan: Callable[..., RestorePlan]
    """`Job.restore_plan`."""
    supervisor: Callable[[], Supervisor]

    @property
    def name(self) -> str:
        """The job's name."""
        return self.declaration.name

    @property
    def checkpoint(self) -> CheckpointConfig:
        """How the job takes its checkpoints."""
        return self.declaration.checkpoint

    def job_id(self) -> str:
        """Return the job's id; "" until it is known, in the job's first start."""
        return self.supervisor().job_id

    def state(self) -> JobState:
        """Return what the job is doing, or how it has ended."""
        return self.supervisor().state

    def started_at(self) -> float:
        """Return when this execution began, in seconds since 1970."""
        return self.supervisor().started_at

    def ended_at(self) -> float | None:
        """Return when this execution ended, in seconds since 1970; None while it goes on."""
        end = self.supervisor().end
        return None if end is None else end.ended_at

    def restarts(self) -> int:
        """Return how often this execution was restarted."""
        return self.supervisor().restarts

    def failures(self) -> Sequence[ExecutionFailure]:
        """Return what has failed in this execution, the newest last."""
        return self.supervisor().execution.failures

    def checkpoints_version(self) -> str:
        """Return something that changes whenever `checkpoints` does; of this driver alone."""
        coordinator = self.coordinator()
        version = "" if coordinator is None else coordinator.statistics.version
        return f"{round(self.started_at() * 1000)}.{version}"

    def earlier_executions(self) -> Sequence[Execution]:
        """Return the job's former executions, the oldest first."""
        return self.supervisor().execution.earlier()

    def coordinator(self) -> Coordinator | None:
        """Return the newest run's; None before the first."""
        return self.supervisor().coordinator

    # --- what changes the job

    def trigger_checkpoint(self) -> Future[int]:
        """Take a checkpoint now, as `Job.trigger_checkpoint`."""
        return self.supervisor().trigger_checkpoint()

    def stop(self) -> Future[JobState]:
        """Stop the job, as `Job.stop`; return the state in which it will have ended."""
        self.supervisor().stop()
        return self.supervisor().outcome

    def cancel(self) -> Future[JobState]:
        """Cancel the job, as `Job.cancel`; return the state in which it will have ended."""
        self.supervisor().cancel()
        return self.supervisor().outcome
