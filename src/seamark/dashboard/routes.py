"""The paths of the dashboard: a driver's (`rest/routes.py`) for every job of a storage, and the
files of the front end.

- Who may look, and who may change a job, is said by `login.py`. Where everybody on the machine may
  look, the `Host` header must name a loopback address, so a foreign page cannot reach it under a
  name of its own (DNS rebinding). No answer allows another origin to read it (CORS).
- A request to change a job needs what no browser sends by itself, so a foreign page cannot make it.
- The page may load only files of this server, and runs no inline script (CSP). These files and
  ``/login`` are for everybody: the page to log in is among them.
"""

import mimetypes
import re
from collections.abc import Callable
from importlib.resources import files
from typing import Annotated, ClassVar

from fastapi import APIRouter, Body, Depends, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from seamark.dashboard.jobs import Jobs
from seamark.dashboard.login import Login
from seamark.dashboard.programs import Programs
from seamark.dashboard.shared_pages import Page, ReadyPages, respond
from seamark.dashboard.stored_jobs import JobNotFoundError, StoredJob
from seamark.model.checkpoint_series import series
from seamark.model.checkpoint_statistics import CheckpointStatus
from seamark.model.errors import SeamarkError
from seamark.rest.action_routes import JobId, TriggerId
from seamark.rest.connections import Connections
from seamark.rest.guard import App, Guard, Message, refuse
from seamark.rest.models import ProgramRunRequest, SavepointDisposalRequest
from seamark.rest.observed import PAGES
from seamark.rest.observed import Page as JobPage
from seamark.rest.routes import CheckpointId, Since, VertexId, problems

Triggered = Annotated[int | None, Query(ge=0, le=2**63 - 1)]
_TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".svg": "image/svg+xml"}
_LOOPBACK = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")


class Protection(Guard):
    """ASGI middleware: refuses strangers, foreign hosts and large bodies, adds `headers`."""

    at_once = 18  # fewer than the threads that make pages
    most_body = 4096
    headers: ClassVar = {
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }

    def __init__(self, app: App, connections: Connections, login: Login) -> None:
        super().__init__(app, connections, login.has_token)
        self._login = login

    def is_holder(self, scope: Message, headers: dict[bytes, bytes]) -> bool:
        """Whether the request is the token holder's, or a user's of the proxy."""
        return self._login.knows(scope)

    def refusal(
        self, scope: Message, headers: dict[bytes, bytes], client: str
    ) -> JSONResponse | None:
        """Return the refusal of a request; None if it is to be answered."""
        if self._login.is_open:
            if _LOOPBACK.fullmatch(headers.get(b"host", b"")):
                return None
            return refuse(421, "this dashboard answers on the loopback address only")
        if not client or scope["path"] in ("/", "/login") or scope["path"].startswith("/static/"):
            return None
        return refuse(401, _how(self._login))


def _how(login: Login) -> str:
    """Return what a stranger is told."""
    if login.header:
        return (
            "This needs a login: come through the dashboard's proxy, which names its user in the "
            f"header {login.header}; a request to change a job has X-Requested-With: seamark too"
        )
    return (
        "This needs the token of the dashboard: open it by the whole address that "
        "`seamark dashboard` has printed, with what stands behind the #, or give the token of its "
        "--token-file"
    )


def make_app(jobs: Jobs, programs: Programs, login: Login, connections: Connections) -> FastAPI:
    """Return the application for those whom `login` lets in; `connections` are the server's."""
    app = FastAPI(title="Seamark dashboard", openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(ReadyPages, fresh=jobs.fresh)
    app.add_middleware(Protection, connections=connections, login=login)  # the outermost
    for path, page, kind in _front_end():
        app.add_api_route(path, _file(page, kind), methods=["GET"])

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Response:
        return respond(request.headers, Page.problem(error.status_code, str(error.detail)))

    @app.exception_handler(RequestValidationError)
    async def reject(request: Request, error: RequestValidationError) -> Response:
        return respond(request.headers, Page.problem(422, "; ".join(problems(error))))

    @app.get("/login")
    async def say(request: Request) -> Response:
        return respond(request.headers, Page.of(login.page(request.scope)))

    app.include_router(_page_routes(jobs))
    app.include_router(_action_routes(jobs, programs, login))
    return app


def _page_routes(jobs: Jobs) -> APIRouter:
    """Return the paths of pages made once for all browsers."""
    router = APIRouter()

    async def answer(request: Request, make: Callable[[str], Page]) -> Response:
        key = request.url.path
        if request.url.query:
            key = f"{key}?{request.url.query}"
        return await _respond(request, lambda: make(key))

    async def stored(request: Request, jid: str, make: Callable[[StoredJob], Page]) -> Response:
        return await answer(request, lambda key: jobs.page(jid, key, make))

    @router.get("/jobs/overview")
    async def overview(request: Request) -> Response:
        return await answer(request, jobs.overview)

    @router.get("/jobs/{jid}")
    async def one_job(request: Request, jid: JobId) -> Response:
        return await answer(request, lambda key: jobs.details(jid))

    def add(page: JobPage) -> None:
        @router.get(f"/jobs/{{jid}}/{page.path}")
        async def show(request: Request, jid: JobId) -> Response:
            if page.make is None:
                return await answer(request, lambda key: jobs.from_driver(jid, page.path))
            return await stored(request, jid, lambda job: Page.of(page.of(job)))

    @router.get("/jobs/{jid}/lineage")  # before that of PAGES: the driver knows the job's state
    async def lineage(request: Request, jid: JobId) -> Response:
        return await stored(request, jid, jobs.lineage)

    for each in PAGES:
        add(each)

    @router.get("/jobs/{jid}/savepoints")
    async def savepoints(request: Request, jid: JobId) -> Response:
        return await stored(request, jid, jobs.savepoints)

    @router.get("/jobs/{jid}/checkpoints")
    async def checkpoints(
        request: Request,
        jid: JobId,
        limit: Annotated[int, Query(ge=0, le=1000)] = 1000,
        before: Triggered = None,
        status: CheckpointStatus | None = None,
        series: Since | None = None,
    ) -> Response:
        return await stored(
            request, jid, lambda job: jobs.checkpoints(job, limit, before, status, series)
        )

    @router.get("/jobs/{jid}/checkpoints/details/{checkpoint_id}")
    async def checkpoint(
        request: Request, jid: JobId, checkpoint_id: CheckpointId, triggered: Triggered = None
    ) -> Response:
        return await stored(
            request, jid, lambda job: jobs.checkpoint(job, checkpoint_id, None, triggered)
        )

    @router.get("/jobs/{jid}/checkpoints/details/{checkpoint_id}/subtasks/{uid}")
    async def subtasks(
        request: Request, jid: JobId, checkpoint_id: CheckpointId, uid: VertexId
    ) -> Response:
        return await stored(request, jid, lambda job: jobs.checkpoint(job, checkpoint_id, uid))

    @router.get("/jobs/{jid}/series")
    async def figures(request: Request, jid: JobId, since: Since = 0) -> Response:
        return await stored(
            request, jid, lambda job: Page.of_figures(series(job.history().history, since))
        )

    return router


def _action_routes(jobs: Jobs, programs: Programs, login: Login) -> APIRouter:
    router = APIRouter()

    async def require_login(request: Request) -> None:
        if not login.may_change(request.scope):
            raise HTTPException(401, _how(login))

    allowed = [Depends(require_login)]

    async def act(request: Request, jid: str, method: str, path: str) -> Response:
        body = await request.body()
        return await _respond(request, lambda: jobs.act(jid, method, path, body))

    def forwarded(path: str) -> None:
        """Add one of Flink's asynchronous operations: its request, and polling it by trigger id."""

        @router.post(f"/jobs/{{jid}}/{path}", dependencies=allowed)
        async def begin(request: Request, jid: JobId) -> Response:
            return await act(request, jid, "POST", f"/{path}")

        @router.get(f"/jobs/{{jid}}/{path}/{{trigger_id}}")
        async def begun(request: Request, jid: JobId, trigger_id: TriggerId) -> Response:
            if path == "stop":
                return await _respond(request, lambda: jobs.stopping(jid, trigger_id))
            return await _respond(request, lambda: jobs.ask_driver(jid, f"/{path}/{trigger_id}"))

    for name in ("checkpoints", "savepoints", "stop", "restore-plan", "transactions"):
        forwarded(name)

    @router.patch("/jobs/{jid}", dependencies=allowed)
    async def cancel(request: Request, jid: JobId) -> Response:
        return await act(request, jid, "PATCH", "?mode=cancel")

    @router.post("/jobs/{jid}/savepoint-disposal", dependencies=allowed)
    async def dispose(
        request: Request, jid: JobId, asked: Annotated[SavepointDisposalRequest, Body()]
    ) -> Response:
        return await _respond(request, lambda: jobs.dispose(jid, asked))

    @router.get("/jobs/{jid}/savepoint-disposal/{trigger_id}")
    async def disposal(request: Request, jid: JobId, trigger_id: TriggerId) -> Response:
        return await _respond(request, lambda: jobs.disposal(trigger_id))

    @router.get("/programs")
    async def known_programs(request: Request) -> Response:
        return respond(request.headers, programs.page())

    @router.post("/programs/run", dependencies=allowed)
    async def run_program(
        request: Request, asked: Annotated[ProgramRunRequest, Body()]
    ) -> Response:
        return await _respond(request, lambda: programs.run(asked))

    @router.get("/programs/run/{trigger_id}")
    async def running_program(request: Request, trigger_id: TriggerId) -> Response:
        return await _respond(request, lambda: programs.running(trigger_id))

    return router


async def _respond(request: Request, make: Callable[[], Page]) -> Response:
    """Answer with a page made on another thread."""
    return respond(request.headers, await run_in_threadpool(_or_problem, make))


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
    pages = []
    root = files("seamark.dashboard") / "static"
    for directory, prefix in ((root, "/static/"), (root / "vendor", "/static/vendor/")):
        for file in directory.iterdir():
            if file.is_file():
                ending = file.name[file.name.rfind(".") :]
                kind = _TYPES.get(ending) or mimetypes.guess_type(file.name)[0] or "text/plain"
                page = Page(file.read_bytes())
                pages.append((prefix + file.name, page, kind))
                if file.name == "index.html":
                    pages.append(("/", page, kind))
    return pages
