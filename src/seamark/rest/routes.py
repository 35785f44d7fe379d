"""The paths of the REST interface, as Flink's. What changes a job is in `actions.py`."""

from __future__ import annotations

import importlib.metadata
import time
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from seamark.checkpoint.executions import FAILURES_KEPT
from seamark.model.checkpoint_statistics import CheckpointStatistics
from seamark.model.job_state import JobState
from seamark.rest import models
from seamark.rest.actions import Actions, JobId, action_routes
from seamark.rest.checkpoint_pages import CheckpointPages
from seamark.rest.epochs import EpochPage, OpenTransactions, epoch_page, open_transactions
from seamark.rest.lineage import Lineage, lineage_page
from seamark.rest.metrics import PROMETHEUS, JobMetrics
from seamark.rest.savepoints import savepoint_routes
from seamark.rest.settings_pages import checkpointing_page, config_page, guarantees_page
from seamark.rest.vertices import JobPage, job_page
from seamark.rest.views import JobView

CheckpointId = Annotated[int, Path(ge=0, le=2**63 - 1, description="A checkpoint: its epoch.")]
VertexId = Annotated[str, Path(description="The uid of a source, stateful operator or sink.")]
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": models.Problem}}

_NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "As the answer with the ETag of If-None-Match"}
}


def make_app(job: JobView, actions: Actions) -> FastAPI:
    """Return the application that shows one job, and changes it by `actions`."""
    hide = job.redactor.everywhere

    class Redacted(JSONResponse):
        """An answer without secrets."""

        def render(self, content: Any) -> bytes:
            """Return the body."""
            return super().render(hide(content))

    app = FastAPI(
        title="Seamark",
        version=importlib.metadata.version("seamark"),
        description="One job, in its driver. Names and fields are Flink's REST API's.",
        docs_url=None,  # its pages load scripts from the network
        redoc_url=None,
        default_response_class=Redacted,
        responses={
            413: {"model": models.Problem, "description": "The body is too large"},
            422: {"model": models.Problem, "description": "The request is not valid"},
            429: {"model": models.Problem, "description": "Too many requests; see Retry-After"},
        },
    )
    pages = CheckpointPages(job, hide)
    metrics = JobMetrics(job)

    @app.exception_handler(StarletteHTTPException)
    async def answer(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return Redacted({"errors": [error.detail]}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        return Redacted({"errors": problems}, 422)

    def check(jid: str) -> None:
        if jid != job.job_id():
            raise HTTPException(404, f"Job {jid} not found; this driver runs {job.job_id()}")

    @app.get("/overview")
    def overview() -> models.Overview:
        """Jobs by state."""
        state = job.state()
        return models.Overview(
            jobs_running=int(not state.is_terminal),
            jobs_finished=int(state is JobState.FINISHED),
            jobs_cancelled=int(state is JobState.CANCELED),
            jobs_failed=int(state is JobState.FAILED),
            seamark_version=app.version,
        )

    @app.get("/metrics", response_class=Response, responses=PROMETHEUS)
    def prometheus(accept: Annotated[str, Header()] = "") -> Response:
        """The job's Prometheus metrics: docs/operations/metrics.md."""
        page, media_type = metrics.page(accept)
        return Response(page, headers={"content-type": media_type})

    @app.get("/jobs")
    def jobs() -> models.JobIds:
        """The ids of all jobs of this driver."""
        return models.JobIds(
            jobs=[models.JobIdWithStatus(id=job.job_id(), status=job.state().value)]
        )

    @app.get("/jobs/overview")
    def jobs_overview() -> models.JobsOverview:
        """All jobs of this driver."""
        return models.JobsOverview(jobs=[details(job)])

    @app.get("/jobs/{jid}", responses=_NOT_FOUND)
    def one_job(jid: JobId) -> JobPage:
        """One job: its state, and its graph with what flows through it."""
        check(jid)
        actions.told(job.state())
        return job_page(job, details(job))

    @app.get("/jobs/{jid}/config", responses=_NOT_FOUND)
    def config(jid: JobId) -> models.JobConfig:
        """The job's settings and where each came from."""
        check(jid)
        return config_page(job)

    @app.get("/jobs/{jid}/exceptions", responses=_NOT_FOUND)
    def exceptions(jid: JobId) -> models.JobExceptions:
        """What failed in this execution, the newest first."""
        check(jid)
        failures = job.failures()
        return models.JobExceptions(
            exceptionHistory=models.ExceptionHistory(
                entries=[
                    models.ExceptionEntry(
                        exceptionName=failure.exception,
                        stacktrace=failure.message,
                        timestamp=round(failure.timestamp * 1000),
                        epoch=failure.epoch,
                        restarted=failure.restarted,
                    )
                    for failure in reversed(failures)
                ],
                truncated=len(failures) >= FAILURES_KEPT,
            )
        )

    @app.get("/jobs/{jid}/guarantees", responses=_NOT_FOUND)
    def guarantees(jid: JobId) -> models.Guarantees:
        """What the job guarantees end to end, and what sets it."""
        check(jid)
        return guarantees_page(job)

    @app.get(
        "/jobs/{jid}/checkpoints",
        response_model=models.Checkpoints,
        responses={**_NOT_FOUND, **_NOT_MODIFIED},
    )
    def checkpoints(jid: JobId, request: Request) -> Response:
        """Counts, summary, the latest of each kind, and the history, newest first."""
        check(jid)
        return pages.checkpoints(request)

    @app.get("/jobs/{jid}/checkpoints/config", responses=_NOT_FOUND)
    def checkpointing(jid: JobId) -> models.CheckpointingConfig:
        """How the job takes checkpoints."""
        check(jid)
        return checkpointing_page(job)

    @app.get("/jobs/{jid}/checkpoints/details/{checkpoint_id}", responses=_NOT_FOUND)
    def checkpoint(jid: JobId, checkpoint_id: CheckpointId) -> models.Checkpoint:
        """One checkpoint with its operators and their subtasks."""
        check(jid)
        return models.Checkpoint.model_validate(find(checkpoint_id).to_json(details=True))

    @app.get(
        "/jobs/{jid}/checkpoints/details/{checkpoint_id}/subtasks/{vertex_id}",
        responses=_NOT_FOUND,
    )
    def subtasks(
        jid: JobId, checkpoint_id: CheckpointId, vertex_id: VertexId
    ) -> models.SubtaskPage:
        """One operator of one checkpoint with its subtasks."""
        check(jid)
        for task in find(checkpoint_id).tasks:
            if task.uid == vertex_id:
                return models.SubtaskPage.model_validate(task.to_json(checkpoint_id))
        raise HTTPException(404, f"Checkpoint {checkpoint_id} has no operator {vertex_id}")

    @app.get(
        "/jobs/{jid}/series",
        response_model=models.Series,
        responses={**_NOT_FOUND, **_NOT_MODIFIED},
    )
    def history_series(
        jid: JobId, request: Request, since: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0
    ) -> Response:
        """The figures of the checkpoints triggered at `since` or later, by column, oldest first."""
        check(jid)
        return pages.series(request, since)

    @app.get("/jobs/{jid}/epoch", responses=_NOT_FOUND)
    def epoch(jid: JobId) -> EpochPage:
        """The epoch that is under way, and its phase."""
        check(jid)
        return epoch_page(job)

    @app.get("/jobs/{jid}/transactions", responses=_NOT_FOUND)
    def transactions(jid: JobId) -> OpenTransactions:
        """The transactions that wait for their commit."""
        check(jid)
        return open_transactions(job)

    @app.get("/jobs/{jid}/lineage", responses=_NOT_FOUND)
    def lineage(jid: JobId) -> Lineage:
        """What the job was restored from, and its executions."""
        check(jid)
        return lineage_page(job)

    def find(checkpoint_id: int) -> CheckpointStatistics:
        if (found := job.checkpoints().find(checkpoint_id)) is not None:
            return found
        raise HTTPException(404, f"Checkpoint {checkpoint_id} is not in the history")

    # Last: what is a trigger id there is a page's name above.
    app.include_router(action_routes(actions, check))
    app.include_router(savepoint_routes(actions, check))
    return app


def details(job: JobView) -> models.JobDetails:
    """Return what the overview shows of a job."""
    ended_at = job.ended_at()
    start, end = round(job.started_at() * 1000), round((ended_at or time.time()) * 1000)
    return models.JobDetails(
        jid=job.job_id(),
        name=job.name,
        state=job.state().value,
        start_time=start,
        end_time=-1 if ended_at is None else end,
        duration=end - start,
        restarts=job.restarts(),
    )
