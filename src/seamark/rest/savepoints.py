"""What is asked of savepoints over REST, beside taking one (`actions.py`): dispose of one, and what
the job's program would make of one. Each needs the job's bearer token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends

from seamark.api.ephemeral_storage import storage_directory
from seamark.rest import models
from seamark.rest.actions import Actions, JobId, TriggerId, begin
from seamark.rest.operations import Shown, beside
from seamark.savepoints.disposal import dispose
from seamark.savepoints.restore.plan import RestorePlan

DISPOSAL = "savepoint-disposal"
PLAN = "restore-plan"


def savepoint_routes(actions: Actions, check: Callable[[str], None]) -> APIRouter:
    """Return the paths; `check` refuses a job id that is not this driver's."""
    router = APIRouter()
    problem: dict[str, Any] = {"model": models.Problem}
    not_found: dict[int | str, dict[str, Any]] = {404: problem}
    changing: dict[int | str, dict[str, Any]] = {
        401: {**problem, "description": "The job's token is missing or another one"},
        **not_found,
    }
    allowed = [Depends(actions.allow)]

    def ask(
        kind: str, trigger_id: str | None, work: Callable[[], Any], shown: Shown
    ) -> models.TriggerResponse:
        start = partial(beside, work)
        return begin(lambda: actions.operations.begin(kind, trigger_id, start, shown))

    @router.post("/savepoint-disposal", status_code=202, responses=changing, dependencies=allowed)
    def dispose_of(
        request: Annotated[models.SavepointDisposalRequest, Body()],
    ) -> models.TriggerResponse:
        """Delete a savepoint, of whatever job, unless somebody needs it."""
        storage = storage_directory(actions.job.checkpoint.storage)
        work = partial(dispose, request.savepoint_path, storage=storage)
        return ask(DISPOSAL, request.triggerId, work, lambda _: {})

    @router.get("/savepoint-disposal/{trigger_id}", responses=not_found)
    def disposal(trigger_id: TriggerId) -> models.DisposalOperation:
        """What came of the disposal of a savepoint."""
        return models.DisposalOperation.model_validate(actions.result(DISPOSAL, trigger_id))

    @router.post(
        "/jobs/{jid}/restore-plan", status_code=202, responses=changing, dependencies=allowed
    )
    def plan(
        jid: JobId, request: Annotated[models.RestorePlanRequest, Body()]
    ) -> models.TriggerResponse:
        """Find out what this job's program would make of a savepoint; nothing is touched."""
        check(jid)
        work = partial(
            actions.job.restore_plan,
            request.savepointPath,
            allow_non_restored_state=request.allowNonRestoredState,
            parallelism=request.parallelism,
        )
        return ask(PLAN, request.triggerId, work, RestorePlan.to_json)

    @router.get("/jobs/{jid}/restore-plan/{trigger_id}", responses=not_found)
    def planned(jid: JobId, trigger_id: TriggerId) -> models.RestorePlanOperation:
        """The plan that was asked for."""
        check(jid)
        return models.RestorePlanOperation.model_validate(actions.result(PLAN, trigger_id))

    return router
