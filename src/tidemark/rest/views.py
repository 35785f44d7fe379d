"""What the REST interface shows of a job; `job.py` makes it for the job that runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.api.config import CheckpointConfig
from tidemark.api.settings import Settings
from tidemark.checkpoint.executions import ExecutionFailure
from tidemark.checkpoint.flow_figures import FlowFigures
from tidemark.guarantees.end_to_end import GuaranteeReport
from tidemark.model.checkpointing_statistics import CheckpointingStatistics
from tidemark.model.job_graph import JobGraph
from tidemark.model.job_state import JobState


@dataclass(frozen=True)
class JobView:
    """One job. The functions are called for each request, from another thread than the job's;
    `started_at` is in seconds since 1970."""

    name: str
    checkpoint: CheckpointConfig
    settings: Settings
    guarantees: GuaranteeReport
    graph: JobGraph
    flow: FlowFigures
    started_at: Callable[[], float]
    job_id: Callable[[], str]
    state: Callable[[], JobState]
    restarts: Callable[[], int]
    checkpoints: Callable[[], CheckpointingStatistics]
    failures: Callable[[], Sequence[ExecutionFailure]]
