"""The paths of the dashboard: a driver's (`rest/routes.py`) for every job of a storage, and the
files of the front end."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from importlib.resources import files
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from seamark.dashboard import protection
from seamark.dashboard.answers import ReadyPages, respond
from seamark.dashboard.jobs import JobNotFoundError, Jobs
from seamark.dashboard.shared_pages import Page
from seamark.model.checkpoint_statistics import CheckpointStatus
from seamark.model.errors import SeamarkError
from seamark.rest.actions import JobId, TriggerId
from seamark.rest.connections import Connections
from seamark.rest.models import SavepointDisposalRequest
from seamark.rest.routes import CheckpointId, VertexId
from seamark.runtime.token import read_token

Triggered = Annotated[int | None, Query(ge=0, le=2**63 - 1)]
_TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".svg": "image/svg+xml"}


def make_app(jobs: Jobs, token: str, connections: Connections) -> FastAPI:
    """Return the application; `token` is what a request must show that changes a job, `connections`
    are the server's."""
    app = FastAPI(title="Seamark dashboard", openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(ReadyPages, fresh=jobs.fresh)
    app.add_middleware(  # the outermost
        protection.Protection, connections=connections, token=token
    )
    for path, page, kind in _front_end():
        app.add_api_route(path, _file(page, kind), methods=["GET"])

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        return respond(request.headers, Page.problem(error.status_code, str(error.detail)))

    @app.exception_handler(RequestValidationError)
    async def reject(request: Request, error: RequestValidationError) -> Response:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        return respond(request.headers, Page.problem(422, "; ".join(problems)))

    async def answer(request: Request, make: Callable[[str], Page]) -> Response:
        key = request.url.path
        if request.url.query:
            key = f"{key}?{request.url.query}"
        page = jobs.fresh(key)
        if page is None:
            page = await run_in_threadpool(_or_problem, lambda: make(key))
        return respond(request.headers, page)

    @app.get("/jobs/overview")
    async def overview(request: Request) -> Response:
        return await answer(request, jobs.overview)

    @app.get("/jobs/{jid}")
    async def one_job(request: Request, jid: JobId) -> Response:
        return await answer(request, lambda key: jobs.details(jid))

    @app.get("/jobs/{jid}/checkpoints")
    async def checkpoints(
        request: Request,
        jid: JobId,
        limit: Annotated[int, Query(ge=0, le=1000)] = 1000,
        before: Triggered = None,
        status: CheckpointStatus | None = None,
    ) -> Response:
        return await answer(request, lambda key: jobs.checkpoints(jid, key, limit, before, status))

    @app.get("/jobs/{jid}/checkpoints/details/{checkpoint_id}")
    async def checkpoint(
        request: Request, jid: JobId, checkpoint_id: CheckpointId, triggered: Triggered = None
    ) -> Response:
        return await answer(
            request, lambda key: jobs.checkpoint(jid, key, checkpoint_id, None, triggered)
        )

    @app.get("/jobs/{jid}/checkpoints/details/{checkpoint_id}/subtasks/{uid}")
    async def subtasks(
        request: Request, jid: JobId, checkpoint_id: CheckpointId, uid: VertexId
    ) -> Response:
        return await answer(request, lambda key: jobs.checkpoint(jid, key, checkpoint_id, uid))

    @app.get("/jobs/{jid}/series")
    async def series(
        request: Request, jid: JobId, since: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0
    ) -> Response:
        return await answer(request, lambda key: jobs.series(jid, key, since))

    @app.get("/jobs/{jid}/exceptions")
    async def exceptions(request: Request, jid: JobId) -> Response:
        return await answer(request, lambda key: jobs.exceptions(jid, key))

    @app.get("/jobs/{jid}/lineage")
    async def lineage(request: Request, jid: JobId) -> Response:
        return await answer(request, lambda key: jobs.lineage(jid, key))

    @app.get("/jobs/{jid}/savepoints")
    async def savepoints(request: Request, jid: JobId) -> Response:
        return await answer(request, lambda key: jobs.savepoints(jid, key))

    @app.get("/jobs/{jid}/checkpoints/config")
    async def checkpointing(request: Request, jid: JobId) -> Response:
        return await answer(request, lambda key: jobs.from_driver(jid, "checkpoints/config"))

    def from_driver(page: str) -> None:
        @app.get(f"/jobs/{{jid}}/{page}")
        async def of_driver(request: Request, jid: JobId) -> Response:
            return await answer(request, lambda key: jobs.from_driver(jid, page))

    for name in ("config", "guarantees", "epoch", "transactions"):
        from_driver(name)

    # --- what changes a job

    async def require_token(request: Request) -> None:
        if not protection.allows(request.headers.get("authorization"), token):
            raise HTTPException(
                401,
                "This needs the token of the dashboard: open it by the whole address that "
                "`seamark dashboard` has printed, with what stands behind the #",
            )

    allowed = [Depends(require_token)]

    async def act(request: Request, jid: str, method: str, path: str) -> Response:
        body = await request.body()

        def forward() -> Page:
            if (of_job := read_token(jid)) is None:
                return Page.problem(
                    409,
                    "No token of this job lies in this user's home on this machine: its driver has "
                    "ended, or runs elsewhere or as another user; use `seamark` there",
                )
            return jobs.act(jid, method, path, of_job, body)

        return respond(request.headers, await run_in_threadpool(_or_problem, forward))

    def forwarded(path: str) -> None:
        """One of Flink's asynchronous operations: begun, and asked for by its trigger id."""

        @app.post(f"/jobs/{{jid}}/{path}", dependencies=allowed)
        async def begin(request: Request, jid: JobId) -> Response:
            return await act(request, jid, "POST", f"/{path}")

        if path == "stop":
            return

        @app.get(f"/jobs/{{jid}}/{path}/{{trigger_id}}")
        async def begun(request: Request, jid: JobId, trigger_id: TriggerId) -> Response:
            found = await run_in_threadpool(
                _or_problem, lambda: jobs.ask_driver(jid, f"/{path}/{trigger_id}")
            )
            return respond(request.headers, found)

    for name in ("checkpoints", "savepoints", "stop", "restore-plan"):
        forwarded(name)

    @app.patch("/jobs/{jid}", dependencies=allowed)
    async def cancel(request: Request, jid: JobId) -> Response:
        return await act(request, jid, "PATCH", "?mode=cancel")

    @app.get("/jobs/{jid}/stop/{trigger_id}")
    async def stopping(request: Request, jid: JobId, trigger_id: TriggerId) -> Response:
        found = await run_in_threadpool(_or_problem, lambda: jobs.stopping(jid, trigger_id))
        return respond(request.headers, found)

    @app.post("/jobs/{jid}/savepoint-disposal", dependencies=allowed)
    async def dispose(
        request: Request, jid: JobId, asked: Annotated[SavepointDisposalRequest, Body()]
    ) -> Response:
        begun = await run_in_threadpool(_or_problem, lambda: jobs.dispose(jid, asked))
        return respond(request.headers, begun)

    @app.get("/jobs/{jid}/savepoint-disposal/{trigger_id}")
    async def disposal(request: Request, jid: JobId, trigger_id: TriggerId) -> Response:
        return respond(request.headers, jobs.disposal(trigger_id))

    return app


def _or_problem(make: Callable[[], Page]) -> Page:
    try:
        return make()
    except JobNotFoundError as error:
        return Page.problem(404, str(error))
    except (SeamarkError, OSError) as error:  # the storage is away, say
        return Page.problem(503, f"{type(error).__name__}: {error}")


def _file(page: Page, kind: str) -> Callable[[Request], Response]:
    def serve(request: Request) -> Response:
        return respond(request.headers, page, kind)

    return serve


def _front_end() -> list[tuple[str, Page, str]]:
    """Return every file of the front end: its path, its bytes and its type."""
    found = []
    root = files("seamark.dashboard") / "static"
    for directory, prefix in ((root, "/static/"), (root / "vendor", "/static/vendor/")):
        for file in directory.iterdir():
            if file.is_file():
                ending = file.name[file.name.rfind(".") :]
                kind = _TYPES.get(ending) or mimetypes.guess_type(file.name)[0] or "text/plain"
                page = Page(file.read_bytes())
                found.append((prefix + file.name, page, kind))
                if file.name == "index.html":
                    found.append(("/", page, kind))
    return found
