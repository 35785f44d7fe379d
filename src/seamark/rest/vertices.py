"""A job's graph as Flink's ``vertices`` and ``plan``, with what flows through each part.

The figures are of this driver: they begin with the program, and go on through its job's restarts.
docs/operations/metrics.md says how rates and busy shares are measured.
"""

from __future__ import annotations

from pydantic import BaseModel

from seamark.model.stats_summary import UNKNOWN
from seamark.rest.models import Hyphenated, JobDetails
from seamark.rest.views import JobView


class VertexMetrics(Hyphenated):
    """`records_per_second`, `busy_share` (0 to 1) and `lag_records` are null where they are not
    measured. A stateful operator's `read_records` are the rows that it changed in its state."""

    read_records: int
    write_records: int
    read_bytes: int
    write_bytes: int
    accumulated_busy_time: int
    records_per_second: float | None
    busy_share: float | None
    lag_records: int | None


class Vertex(Hyphenated):
    """A source, stateful operator or sink; Seamark's are `kind`, `description`, `guarantee` and
    `has_uid`: whether the program gave the uid, or `id` is Spark's number of the part."""

    id: str
    name: str
    kind: str
    description: str
    guarantee: str
    has_uid: bool
    parallelism: int
    status: str
    start_time: int
    end_time: int
    duration: int
    metrics: VertexMetrics


class PlanInput(BaseModel):
    """An edge: the part that feeds, and its place among the inputs."""

    id: str
    num: int


class PlanNode(BaseModel):
    """A part of the plan, with its inputs."""

    id: str
    description: str
    parallelism: int
    inputs: list[PlanInput]


class Plan(BaseModel):
    """The graph of the job; every node comes after those that feed it."""

    jid: str
    name: str
    type: str
    nodes: list[PlanNode]


class JobPage(JobDetails):
    """``/jobs/:id``."""

    vertices: list[Vertex]
    plan: Plan


def job_page(job: JobView, details: JobDetails) -> JobPage:
    """Return the job's page, given its lines of the overview."""
    vertices = _vertices(job, details)
    inputs = {part.id: part.inputs for part in job.graph.vertices}
    return JobPage(
        **dict(details),
        vertices=vertices,
        plan=Plan(
            jid=details.jid,
            name=details.name,
            type="STREAMING",
            nodes=[
                PlanNode(
                    id=vertex.id,
                    description=vertex.description,
                    parallelism=vertex.parallelism,
                    inputs=[PlanInput(id=id_, num=n) for n, id_ in enumerate(inputs[vertex.id])],
                )
                for vertex in vertices
            ],
        ),
    )


def _vertices(job: JobView, details: JobDetails) -> list[Vertex]:
    found = []
    for part in job.graph.vertices:
        figures = job.flow.of(part.id)
        sink = part.kind == "sink"
        found.append(
            Vertex(
                id=part.id,
                name=part.id,
                kind=part.kind,
                description=part.name,
                guarantee=part.guarantee,
                has_uid=part.has_uid,
                # To the checkpoint a source is one entry, in however many tasks Spark reads it.
                parallelism=UNKNOWN if part.kind == "source" else figures.subtasks,
                status=details.state,
                start_time=details.start_time,
                end_time=details.end_time,
                duration=details.duration,
                metrics=VertexMetrics(
                    read_records=figures.rows,
                    # What comes out of an operator is not counted; the others pass on each row.
                    write_records=UNKNOWN if part.kind == "operator" else figures.rows,
                    read_bytes=UNKNOWN,
                    write_bytes=figures.data_bytes if sink else UNKNOWN,
                    accumulated_busy_time=UNKNOWN
                    if figures.busy_ms is None
                    else round(figures.busy_ms),
                    records_per_second=figures.rates.records_per_second,
                    busy_share=figures.rates.busy_share,
                    lag_records=figures.lag,
                ),
            )
        )
    return found
