"""One job as its pages show it, live or stored, and the pages made from it alone.

`ObservedJob` is a live job in its driver (`live_job.py`), or a stored job read from its storage
while no driver answers (`dashboard/stored_jobs.py`). Both servers serve `PAGES`. A stored job's
pages leave out figures known to a driver only, and have the failures of all executions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from seamark.checkpoint.accepted_losses import AcceptedLoss
from seamark.checkpoint.executions import FAILURES_KEPT, Execution
from seamark.checkpoint.flow_figures import PartFigures
from seamark.model.job_state import JobState
from seamark.model.rates import WATERMARK
from seamark.model.stats_summary import UNKNOWN
from seamark.rest import models
from seamark.rest.epochs import EpochPage, OpenTransactions


class ObservedJob(ABC):
    """Asked for each request, from any thread. Every answer is of this moment."""

    is_live: ClassVar[bool]

    @abstractmethod
    def execution(self) -> Execution:
        """Return the last execution, as far as it has come."""

    @abstractmethod
    def state(self) -> JobState:
        """Return the job's state, after its end the final one; UNREACHABLE if unknown."""

    def restarts(self) -> int:
        """Return the number of restarts of the last execution."""
        return self.execution().restarts

    @abstractmethod
    def executions(self) -> Sequence[Execution]:
        """Return the recorded executions, the newest first."""

    @abstractmethod
    def origin(self) -> tuple[int, Mapping[str, Any] | None]:
        """Return the generation (0: unknown), and `JobIdentity.restored_from`."""

    @abstractmethod
    def figures(self, uid: str) -> PartFigures:
        """Return the figures of a part; of a stored job only its subtasks."""

    @abstractmethod
    def losses(self) -> Sequence[AcceptedLoss]:
        """Return the losses that operators have accepted, by epoch and sink."""

    @abstractmethod
    def told(self, page: str) -> Any:
        """Return a page made by drivers alone, by its path below ``/jobs/:id/``; or None."""


def details(job: ObservedJob) -> dict[str, Any]:
    """Return a job's row in the overview."""
    return {**job.execution().row(job.state()), "restarts": job.restarts()}


def job_page(job: ObservedJob) -> dict[str, Any]:
    """Return ``/jobs/:id``: the job, its graph as Flink's ``vertices`` and ``plan``, and the
    figures of each part (docs/operations/metrics.md says how they are measured)."""
    shown, vertices, nodes = details(job), [], []
    times = ("start-time", "end-time", "duration")
    for part in job.execution().start.graph:
        figures = job.figures(part["id"])
        node = {
            "id": part["id"],
            "description": part["name"],
            # To the checkpoint a source is one entry, in however many tasks Spark reads it.
            "parallelism": UNKNOWN if part["kind"] == "source" else figures.subtasks,
        }
        inputs = [{"id": id_, "num": n} for n, id_ in enumerate(part["inputs"])]
        nodes.append({**node, "inputs": inputs})
        vertex = {
            **node,
            "name": part["id"],
            "kind": part["kind"],
            "guarantee": part["guarantee"],
            "has-uid": part["has_uid"],
            "status": shown["state"],
            "metrics": {},
        }
        if job.is_live:
            vertex |= {name: shown[name] for name in times}
            vertex["metrics"] = _flow(part["kind"], figures)
        vertices.append(vertex)
    plan = {"jid": shown["jid"], "name": shown["name"], "type": "STREAMING", "nodes": nodes}
    return {**shown, "vertices": vertices, "plan": plan}


def _flow(kind: str, figures: PartFigures) -> dict[str, Any]:
    return {
        "read-records": figures.rows,
        # An operator's output is not counted; other parts pass on each row.
        "write-records": UNKNOWN if kind == "operator" else figures.rows,
        "read-bytes": UNKNOWN,
        "write-bytes": figures.data_bytes if kind == "sink" else UNKNOWN,
        "accumulated-busy-time": UNKNOWN if figures.busy_ms is None else round(figures.busy_ms),
        "records-per-second": figures.rates.records_per_second,
        "busy-share": figures.rates.busy_share,
        "lag-records": figures.lag,
        "watermark": figures.metrics.get(WATERMARK) if kind != "sink" else None,
    }


def exceptions_page(job: ObservedJob) -> dict[str, Any]:
    """Return ``/jobs/:id/exceptions``, the newest first. `execution` (Seamark's, in the dashboard
    alone) is the number of the failed execution. A driver shows this execution's alone."""
    shown = [job.execution()] if job.is_live else job.executions()
    entries = [
        {
            "exceptionName": failure.exception,
            "stacktrace": failure.message,
            "timestamp": _ms(failure.timestamp),
            "epoch": failure.epoch,
            "restarted": failure.restarted,
            "execution": execution.number,
        }
        for execution in shown
        for failure in reversed(execution.failures)
    ]
    truncated = any(len(one.failures) >= FAILURES_KEPT for one in shown)
    return {"exceptionHistory": {"entries": entries, "truncated": truncated}}


def lineage_page(job: ObservedJob, state: JobState | None = None) -> models.Lineage:
    """Return ``/jobs/:id/lineage``; `state` is the job's, if the caller knows it. A former
    execution without a recorded end was killed."""
    generation, origin = job.origin()
    executions = [models.ExecutionPage.model_validate(one) for one in job.executions()]
    for newest in executions[:1]:
        newest.state = (state or job.state()).value
    return models.Lineage(
        jid=job.execution().start.job_id,
        generation=generation,
        restored=models.RestoredFrom.model_validate(origin) if origin else None,
        executions=executions,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


@dataclass(frozen=True)
class Page:
    """One page of a job: its path below ``/jobs/:id/``, its form and description in the OpenAPI
    document, and its maker, None for a page of `told`. `name` is "" where it is the path."""

    path: str
    form: type[BaseModel]
    text: str
    make: Callable[[ObservedJob], Any] | None = None
    name: str = ""

    def of(self, job: ObservedJob) -> Any:
        """Return the page of a job; None if it is unknown."""
        return job.told(self.path) if self.make is None else self.make(job)


_FAILED = "The failures of this execution, the newest first."
_GUARANTEED = "The end-to-end guarantee of the job, and the reasons."
_CHECKPOINTS = "The checkpoint settings of the job."
_LOSSES = "The losses accepted by operators: the guarantee does not hold for these epochs."
_LINEAGE = "The origin of the job, and its executions."
PAGES = (
    Page("config", models.JobConfig, "The job's settings, with their origins."),
    Page("exceptions", models.JobExceptions, _FAILED, exceptions_page),
    Page("guarantees", models.Guarantees, _GUARANTEED),
    Page("checkpoints/config", models.CheckpointingConfig, _CHECKPOINTS, name="checkpointing"),
    Page("epoch", EpochPage, "The epoch under way, and its phase."),
    Page("transactions", OpenTransactions, "The transactions waiting for their commit."),
    Page(
        "losses",
        models.AcceptedLosses,
        _LOSSES,
        lambda job: {"losses": [loss.to_json() for loss in job.losses()]},
    ),
    Page("lineage", models.Lineage, _LINEAGE, lineage_page),
)
"""All pages except ``/jobs/:id`` itself and those of checkpoints."""
