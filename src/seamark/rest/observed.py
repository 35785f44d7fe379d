"""One job as its pages show it, whoever knows it, and the pages that are made of it alone.

`ObservedJob` is a live job, in its driver (`live_job.py`), or a stored one, as its storage has it
while no driver answers (`dashboard/stored_jobs.py`). `PAGES` are served by both servers. A stored
job's pages leave out what only a driver could know, and have failures of all executions.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from seamark.checkpoint.executions import FAILURES_KEPT, Execution
from seamark.checkpoint.flow_figures import PartFigures
from seamark.model.job_state import JobState
from seamark.model.stats_summary import UNKNOWN
from seamark.rest import models
from seamark.rest.epochs import EpochPage, OpenTransactions


class ObservedJob(ABC):
    """Asked for each request, from any thread. What it returns is of this moment."""

    is_live: ClassVar[bool]

    @abstractmethod
    def execution(self) -> Execution:
        """Return the last execution, as far as it has come."""

    @abstractmethod
    def state(self) -> JobState:
        """Return what the job is doing, or how it has ended; UNREACHABLE if nobody can know."""

    def restarts(self) -> int:
        """Return how often the last execution was restarted."""
        return self.execution().restarts

    @abstractmethod
    def executions(self) -> Sequence[Execution]:
        """Return the executions that are recorded, the newest first."""

    @abstractmethod
    def failed(self) -> Sequence[Execution]:
        """Return the executions whose failures are shown, the newest first."""

    @abstractmethod
    def origin(self) -> tuple[int, Mapping[str, Any] | None]:
        """Return the generation, 0 where none is known, and what the job was restored from, as
        `JobIdentity` names it."""

    @abstractmethod
    def figures(self, uid: str) -> PartFigures:
        """Return what flows through a part; of a stored job, its subtasks alone."""

    @abstractmethod
    def told(self, page: str) -> Any:
        """Return one of the pages that only a driver makes, by its path below ``/jobs/:id/``; None
        if nothing is known of it."""


def details(job: ObservedJob) -> dict[str, Any]:
    """Return what the overview shows of a job."""
    execution, state = job.execution(), job.state()
    start, end = execution.start, execution.end
    since, until = _ms(start.started_at), _ms(time.time() if end is None else end.ended_at)
    return {
        "jid": start.job_id,
        "name": start.name,
        "state": state.value,
        "start-time": since,
        "end-time": UNKNOWN if end is None else until,
        "duration": UNKNOWN if state is JobState.UNREACHABLE else until - since,
        "restarts": job.restarts(),
    }


def job_page(job: ObservedJob) -> dict[str, Any]:
    """Return ``/jobs/:id``: the job with its graph, as Flink's ``vertices`` and ``plan``, and what
    flows through each part (docs/operations/metrics.md says how that is measured)."""
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
        # What comes out of an operator is not counted; the others pass on each row.
        "write-records": UNKNOWN if kind == "operator" else figures.rows,
        "read-bytes": UNKNOWN,
        "write-bytes": figures.data_bytes if kind == "sink" else UNKNOWN,
        "accumulated-busy-time": UNKNOWN if figures.busy_ms is None else round(figures.busy_ms),
        "records-per-second": figures.rates.records_per_second,
        "busy-share": figures.rates.busy_share,
        "lag-records": figures.lag,
    }


def exceptions_page(job: ObservedJob) -> dict[str, Any]:
    """Return ``/jobs/:id/exceptions``, the newest first; `execution` (Seamark's) is the number of
    the failure's own, in the dashboard alone."""
    entries = [
        {
            "exceptionName": failure.exception,
            "stacktrace": failure.message,
            "timestamp": _ms(failure.timestamp),
            "epoch": failure.epoch,
            "restarted": failure.restarted,
            "execution": execution.number,
        }
        for execution in job.failed()
        for failure in reversed(execution.failures)
    ]
    truncated = any(len(one.failures) >= FAILURES_KEPT for one in job.failed())
    return {"exceptionHistory": {"entries": entries, "truncated": truncated}}


def lineage_page(job: ObservedJob, state: JobState | None = None) -> dict[str, Any]:
    """Return ``/jobs/:id/lineage``; `state` is what the job is doing, where others know that. A
    former execution that has not said how it ended was killed."""
    generation, origin = job.origin()
    now = state or job.state()

    def shown(execution: Execution, state: JobState) -> dict[str, Any]:
        start, end = execution.start, execution.end
        return {
            "number": execution.number,
            "host": start.host,
            "pid": start.pid,
            "start-time": _ms(start.started_at),
            "end-time": UNKNOWN if end is None else _ms(end.ended_at),
            "state": state.value,
            "reason": "" if end is None else end.reason,
            "restarts": execution.restarts,
        }

    return {
        "jid": job.execution().start.job_id,
        "generation": generation,
        "restored": origin
        and {"path": origin["path"], "jid": origin["job_id"], "epoch": origin["epoch"]},
        "executions": [
            shown(one, one.state if place else now) for place, one in enumerate(job.executions())
        ],
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


@dataclass(frozen=True)
class Page:
    """One page of a job: its path below ``/jobs/:id``, how the OpenAPI document names and describes
    it, its form there, and what makes it; None makes it of what the driver tells."""

    path: str
    name: str
    form: type[BaseModel]
    text: str
    make: Callable[[ObservedJob], Any] | None = None

    def of(self, job: ObservedJob) -> Any:
        """Return the page of a job; None if nothing is known of it."""
        return job.told(self.path) if self.make is None else self.make(job)


PAGES = (
    Page("config", "config", models.JobConfig, "The job's settings and where each came from."),
    Page(
        "exceptions",
        "exceptions",
        models.JobExceptions,
        "What failed in this execution, the newest first.",
        exceptions_page,
    ),
    Page(
        "guarantees",
        "guarantees",
        models.Guarantees,
        "What the job guarantees end to end, and what sets it.",
    ),
    Page(
        "checkpoints/config",
        "checkpointing",
        models.CheckpointingConfig,
        "How the job takes checkpoints.",
    ),
    Page("epoch", "epoch", EpochPage, "The epoch that is under way, and its phase."),
    Page(
        "transactions",
        "transactions",
        OpenTransactions,
        "The transactions that wait for their commit.",
    ),
    Page(
        "lineage",
        "lineage",
        models.Lineage,
        "What the job was restored from, and its executions.",
        lineage_page,
    ),
)
"""All but ``/jobs/:id`` itself, and the checkpoints'."""
