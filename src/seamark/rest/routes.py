"""The paths of the REST interface, as Flink's. Actions: `action_routes.py`.

The checkpoint history is a thousand checkpoints, perhaps asked for every second. So an ended
checkpoint is made into JSON once. The whole page is made again only after a change, and is not sent
to a client with the newest version (``If-None-Match``).
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from seamark.model.checkpoint_series import series
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.job_state import JobState
from seamark.model.packages import VERSION
from seamark.rest import models
from seamark.rest.action_routes import (
    NOT_FOUND,
    JobId,
    Responses,
    job_action_routes,
    result_routes,
    savepoint_routes,
)
from seamark.rest.actions import Actions
from seamark.rest.live_job import LiveJob
from seamark.rest.metrics import PROMETHEUS, JobMetrics
from seamark.rest.observed import PAGES, Page, details, job_page

PAGES_KEPT = 8


class CheckpointPages:
    """The pages of one job's history; asked from several threads."""

    def __init__(self, job: LiveJob, hide: Callable[[Any], Any]) -> None:
        self._job = job
        self._hide = hide
        self._lock = threading.Lock()
        self._pages: OrderedDict[tuple[str, int], tuple[str, bytes]] = OrderedDict()
        self._texts: dict[tuple[int, int], tuple[CheckpointStatistics, str]] = {}

    def checkpoints(self, request: Request) -> Response:
        """Answer ``/jobs/:id/checkpoints``."""
        return self._answer(request, ("checkpoints", 0), self._page)

    def series(self, request: Request, since: int) -> Response:
        """Answer ``/jobs/:id/series``."""
        return self._answer(
            request,
            ("series", since),
            lambda: _text(series(self._job.checkpoints().history, since)),
        )

    def _answer(self, request: Request, page: tuple[str, int], make: Callable[[], str]) -> Response:
        tag = f'"{self._job.checkpoints_version()}"'
        known = request.headers.get("if-none-match", "").split(",")
        if tag in [one.strip() for one in known]:
            return Response(status_code=304, headers={"ETag": tag})
        with self._lock:  # requests meanwhile wait for this page
            kept, body = self._pages.pop(page, ("", b""))
            if kept != tag:
                body = make().encode()
            self._pages[page] = (tag, body)
            while len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
        return Response(body, media_type="application/json", headers={"ETag": tag})

    def _page(self) -> str:
        statistics = self._job.checkpoints()
        texts = {}
        for checkpoint in statistics.history:
            key = (checkpoint.id, checkpoint.trigger_timestamp)
            kept = self._texts.get(key)
            # Equal, not only of the same id: sizes come late, and files are deleted.
            if kept is None or kept[0] != checkpoint:
                kept = (checkpoint, _text(self._hide(checkpoint.to_json())))
            texts[key] = kept
        self._texts = {
            key: kept
            for key, kept in texts.items()
            if kept[0].status is not CheckpointStatus.IN_PROGRESS
        }
        head = _text(self._hide(statistics.to_json(history=False)))
        return f'{head[:-1]},"history":[{",".join(text for _, text in texts.values())}]}}'


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


CheckpointId = Annotated[int, Path(ge=0, le=2**63 - 1, description="A checkpoint: its epoch.")]
VertexId = Annotated[str, Path(description="The uid of a source, stateful operator or sink.")]
Since = Annotated[int, Query(ge=0, le=2**63 - 1)]
_CACHED: Responses = {
    **NOT_FOUND,
    304: {"description": "As the answer with the ETag of If-None-Match"},
}
_REFUSED = {413: "The body is too large", 422: "The request is not valid"}
_REFUSED[429] = "Too many requests; see Retry-After"


def make_app(job: LiveJob, actions: Actions) -> FastAPI:
    """Return the application to show one job, and to change it by `actions`."""
    hide = job.redactor.everywhere

    class Redacted(JSONResponse):
        """An answer without secrets."""

        def render(self, content: Any) -> bytes:
            """Return the body."""
            return super().render(hide(content))

    app = FastAPI(
        title="Seamark",
        version=VERSION,
        description="One job, in its driver. Names and fields are Flink's REST API's.",
        docs_url=None,  # its pages load scripts from the network
        redoc_url=None,
        default_response_class=Redacted,
        responses={
            status: {"model": models.Problem, "description": why}
            for status, why in _REFUSED.items()
        },
    )

    @app.exception_handler(StarletteHTTPException)
    async def answer(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return Redacted({"errors": [error.detail]}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: RequestValidationError) -> JSONResponse:
        return Redacted({"errors": problems(error)}, 422)

    app.include_router(_overview_routes(job, app.version))
    app.include_router(_job_routes(job, actions))
    app.include_router(_checkpoint_routes(job, actions, CheckpointPages(job, hide)))
    app.include_router(job_action_routes(actions))
    app.include_router(savepoint_routes(actions))
    app.include_router(result_routes(actions))
    return app


def problems(error: RequestValidationError) -> list[str]:
    """Return the faults of a request, a line for each invalid part."""
    return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]


def _overview_routes(job: LiveJob, version: str) -> APIRouter:
    router = APIRouter()
    metrics = JobMetrics(job)

    @router.get("/overview", response_model=models.Overview)
    def overview() -> Any:
        """Jobs by state."""
        state = job.state()
        return {
            "jobs_running": int(not state.is_terminal),
            "jobs_finished": int(state is JobState.FINISHED),
            "jobs_cancelled": int(state is JobState.CANCELED),
            "jobs_failed": int(state is JobState.FAILED),
            "seamark_version": version,
        }

    @router.get("/health")
    async def health() -> models.JobIdWithStatus:
        """For liveness probes: the driver answers."""
        return models.JobIdWithStatus(id=job.job_id(), status=job.state().value)

    @router.get("/ready", responses={503: {"model": models.Problem, "description": "Not RUNNING"}})
    async def ready() -> models.JobIdWithStatus:
        """For readiness probes: the job is RUNNING."""
        health_now = await health()
        if health_now.status != JobState.RUNNING.value:
            raise HTTPException(503, f"the job is {health_now.status}")
        return health_now

    @router.get("/metrics", response_class=Response, responses=PROMETHEUS)
    def prometheus(accept: Annotated[str, Header()] = "") -> Response:
        """The job's Prometheus metrics: docs/operations/metrics.md."""
        page, media_type = metrics.page(accept)
        return Response(page, headers={"content-type": media_type})

    @router.get("/jobs", response_model=models.JobIds)
    def jobs() -> Any:
        """The ids of all jobs of this driver."""
        return {"jobs": [{"id": job.job_id(), "status": job.state().value}]}

    @router.get("/jobs/overview", response_model=models.JobsOverview)
    def jobs_overview() -> Any:
        """All jobs of this driver."""
        return {"jobs": [details(job)]}

    return router


def _job_routes(job: LiveJob, actions: Actions) -> APIRouter:
    router = APIRouter()

    @router.get("/jobs/{jid}", response_model=models.JobPage, responses=NOT_FOUND)
    def one_job(jid: JobId) -> Any:
        """One job: its state, and its graph with what flows through it."""
        actions.check(jid)
        actions.told(job.state())
        return job_page(job)

    def add(page: Page) -> None:
        def show(jid: JobId) -> Any:
            actions.check(jid)
            return page.of(job)

        router.get(
            f"/jobs/{{jid}}/{page.path}",
            name=page.name or page.path,
            description=page.text,
            response_model=page.form,
            responses=NOT_FOUND,
        )(show)

    for each in PAGES:
        add(each)
    return router


def _checkpoint_routes(job: LiveJob, actions: Actions, pages: CheckpointPages) -> APIRouter:
    router = APIRouter()

    def find(jid: str, checkpoint_id: int) -> CheckpointStatistics:
        actions.check(jid)
        if (recorded := job.checkpoints().find(checkpoint_id)) is not None:
            return recorded
        raise HTTPException(404, f"Checkpoint {checkpoint_id} is not in the history")

    @router.get("/jobs/{jid}/checkpoints", response_model=models.Checkpoints, responses=_CACHED)
    def checkpoints(jid: JobId, request: Request) -> Response:
        """Counts, summary, the latest of each kind, and the history, newest first."""
        actions.check(jid)
        return pages.checkpoints(request)

    @router.get(
        "/jobs/{jid}/checkpoints/details/{checkpoint_id}",
        response_model=models.Checkpoint,
        responses=NOT_FOUND,
    )
    def checkpoint(jid: JobId, checkpoint_id: CheckpointId) -> Any:
        """One checkpoint with its operators and their subtasks."""
        return find(jid, checkpoint_id).to_json(details=True)

    @router.get(
        "/jobs/{jid}/checkpoints/details/{checkpoint_id}/subtasks/{vertex_id}",
        response_model=models.SubtaskPage,
        responses=NOT_FOUND,
    )
    def subtasks(jid: JobId, checkpoint_id: CheckpointId, vertex_id: VertexId) -> Any:
        """One operator of one checkpoint with its subtasks."""
        for task in find(jid, checkpoint_id).tasks:
            if task.uid == vertex_id:
                return task.to_json(checkpoint_id)
        raise HTTPException(404, f"Checkpoint {checkpoint_id} has no operator {vertex_id}")

    @router.get("/jobs/{jid}/series", response_model=models.Series, responses=_CACHED)
    def history_series(jid: JobId, request: Request, since: Since = 0) -> Response:
        """The figures of the checkpoints triggered at `since` or later, by column, oldest first."""
        actions.check(jid)
        return pages.series(request, since)

    return router
