"""Where a job comes from: the checkpoint it was restored from, and its executions. Seamark's own
page.
"""

from __future__ import annotations

from pydantic import BaseModel

from seamark.checkpoint.executions import Execution
from seamark.model.job_state import JobState
from seamark.rest.models import Hyphenated
from seamark.rest.views import JobView


class RestoredFrom(BaseModel):
    """The retained checkpoint, or savepoint, that the job began with, and whose it was: `jid` is
    null if that could not be read."""

    path: str
    jid: str | None
    epoch: int


class ExecutionPage(Hyphenated):
    """One `Job.run`. A former one that has not said how it ended was killed: UNREACHABLE."""

    number: int
    host: str
    pid: int
    start_time: int
    end_time: int
    state: str
    reason: str
    restarts: int


class Lineage(BaseModel):
    """``/jobs/:id/lineage``: executions newest first; `generation` counts the drivers and their
    restarts."""

    jid: str
    generation: int
    restored: RestoredFrom | None
    executions: list[ExecutionPage]


def lineage_page(job: JobView) -> Lineage:
    """Return where the job comes from."""
    coordinator = job.coordinator()
    identity = coordinator.identity if coordinator is not None else None
    origin = identity.restored_from if identity is not None else None
    return Lineage(
        jid=job.job_id(),
        generation=coordinator.generation if coordinator is not None else 0,
        restored=None
        if origin is None
        else RestoredFrom(path=origin["path"], jid=origin["job_id"], epoch=origin["epoch"]),
        executions=[
            *(
                execution_page(own, job.state())
                for own in [job.supervisor().execution.recorded]
                if own
            ),
            *(execution_page(execution, None) for execution in reversed(job.earlier_executions())),
        ],
    )


def execution_page(execution: Execution, state: JobState | None) -> ExecutionPage:
    """Return one execution; `state` is what its driver says, None of one that is over."""
    start, end = execution.start, execution.end
    ended = end.state if end is not None else JobState.UNREACHABLE
    return ExecutionPage(
        number=execution.number,
        host=start.host,
        pid=start.pid,
        start_time=round(start.started_at * 1000),
        end_time=-1 if end is None else round(end.ended_at * 1000),
        state=(state or ended).value,
        reason="" if end is None else end.reason,
        restarts=sum(failure.restarted for failure in execution.failures),
    )
