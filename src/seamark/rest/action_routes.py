"""The paths of actions: checkpoint, savepoint and its disposal, stop, cancel, restore plan, open
transactions.

Each action needs the job's bearer token. Its outcome is polled by its trigger id. `actions.py` has
the state.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Path, Query
from pydantic import BaseModel

from seamark.api.ephemeral_storage import storage_directory
from seamark.rest import models
from seamark.rest.actions import Actions
from seamark.rest.operations import beside
from seamark.savepoints.claims import dispose
from seamark.savepoints.restore.plan import RestorePlan

JobId = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="The job's id, 32 hex digits.")]
TriggerId = Annotated[
    str, Path(pattern=models.TRIGGER_ID, description="The request-id answered to the trigger.")
]
Responses = dict[int | str, dict[str, Any]]

NOT_FOUND: Responses = {404: {"model": models.Problem}}
_PROTECTED: Responses = {
    401: {"model": models.Problem, "description": "The job's token is missing or wrong"},
    **NOT_FOUND,
}
_CHANGING: Responses = {
    **_PROTECTED,
    409: {"model": models.Problem, "description": "Not possible in the job's present state"},
}


def _with_token(actions: Actions, responses: Responses) -> dict[str, Any]:
    dependencies = [Depends(actions.allow)]
    return {"status_code": 202, "responses": responses, "dependencies": dependencies}


def job_action_routes(actions: Actions) -> APIRouter:
    """Return the paths of the actions on the job."""
    router, job, begin = APIRouter(), actions.job, actions.operations.trigger
    changing = _with_token(actions, _CHANGING)

    @router.post("/jobs/{jid}/checkpoints", **changing)
    def trigger_checkpoint(
        jid: JobId, trigger: Annotated[models.TriggerRequest | None, Body()] = None
    ) -> models.TriggerResponse:
        """Take a checkpoint now, without waiting for the interval."""
        actions.check(jid)
        asked = trigger or models.TriggerRequest()
        start = job.supervisor().trigger_checkpoint
        return begin("checkpoint", asked, start, lambda epoch: {"checkpointId": epoch})

    @router.post("/jobs/{jid}/savepoints", **changing)
    def take_savepoint(
        jid: JobId, request: Annotated[models.SavepointRequest | None, Body()] = None
    ) -> models.TriggerResponse:
        """Take a savepoint; the job goes on, unless `cancel-job` cancels it."""
        asked = request or models.SavepointRequest()
        then = job.supervisor().cancel if asked.cancel_job else None
        return savepoint(jid, asked, asked.target_directory, then)

    def savepoint(
        jid: str,
        asked: models.SavepointRequest | models.StopRequest,
        directory: str | None,
        then: Callable[[], Any] | None,
        **how: Any,
    ) -> models.TriggerResponse:
        actions.check(jid)
        start = partial(job.take_savepoint, directory, asked.formatType.lower(), then, **how)
        return begin("savepoint", asked, start, lambda path: {"location": path})

    @router.post("/jobs/{jid}/stop", **changing)
    def stop(
        jid: JobId, request: Annotated[models.StopRequest | None, Body()] = None
    ) -> models.TriggerResponse:
        """End the job after the epoch under way; every decided epoch is committed, and checkpoints
        are kept. With a `targetDirectory`, or a savepoint_dir in the job's settings, the job ends
        with a savepoint, whose outcome is at ``/savepoints/:triggerid``. With `drain` also, after
        closing its windows."""
        actions.check(jid)
        asked = request or models.StopRequest()
        end = job.supervisor().stop
        usual = asked.savepoint and job.checkpoint.savepoint_dir is not None
        if asked.targetDirectory is None and not asked.drain and not usual:
            return begin("stop", asked, end, lambda state: {"state": state.value})
        return savepoint(jid, asked, asked.targetDirectory, end, drain=asked.drain)

    @router.patch("/jobs/{jid}", **changing)
    def cancel(
        jid: JobId,
        mode: Annotated[Literal["cancel"], Query()] = "cancel",
        request: Annotated[models.CancelRequest | None, Body()] = None,
    ) -> models.Accepted:
        """End the job at once: the epoch under way is aborted."""
        actions.check(jid)
        actions.cancel()
        return models.Accepted()

    @router.post("/jobs/{jid}/transactions", **changing)
    def transactions(
        jid: JobId, request: Annotated[models.TransactionsRequest | None, Body()] = None
    ) -> models.TriggerResponse:
        """Ask the sinks' systems for the job's open transactions, or commit or abort some: as
        ``seamark txn``, with the same refusals. This driver's own are in use."""
        actions.check(jid)
        asked = request or models.TransactionsRequest()
        work = partial(job.sink_transactions, asked.model_dump(exclude={"triggerId"}))
        return begin("transactions", asked, partial(beside, work), lambda answer: answer)

    return router


def savepoint_routes(actions: Actions) -> APIRouter:
    """Return the paths of savepoints, except for taking one."""
    router, job, begin = APIRouter(), actions.job, actions.operations.trigger
    protected = _with_token(actions, _PROTECTED)

    @router.post("/savepoint-disposal", **protected)
    def dispose_of(
        request: Annotated[models.SavepointDisposalRequest, Body()],
    ) -> models.TriggerResponse:
        """Delete a savepoint of any job, unless a job needs it."""
        storage = storage_directory(job.checkpoint.storage)
        work = partial(dispose, request.savepoint_path, storage=storage)
        start = partial(beside, work)
        return begin("savepoint-disposal", request, start, lambda _: {})

    @router.post("/jobs/{jid}/restore-plan", **protected)
    def plan(
        jid: JobId, request: Annotated[models.RestorePlanRequest, Body()]
    ) -> models.TriggerResponse:
        """Plan the restore of a savepoint into this job's program. Nothing is written."""
        actions.check(jid)
        work = partial(
            job.restore_plan,
            request.savepointPath,
            allow_non_restored_state=request.allowNonRestoredState,
            parallelism=request.parallelism,
        )
        return begin("restore-plan", request, partial(beside, work), RestorePlan.to_json)

    return router


_OUTCOMES = (
    ("checkpoint", "/checkpoints", models.CheckpointTaken,
     "triggered_checkpoint", "The outcome of a triggered checkpoint."),
    ("savepoint", "/savepoints", models.SavepointTaken,
     "savepoint", "The outcome of a triggered savepoint, also of a stop with a savepoint."),
    ("stop", "/stop", models.JobEnded, "stopped", "The outcome of a stop without a savepoint."),
    ("transactions", "/transactions", models.SinkTransactions,
     "asked_transactions", "The open transactions; after a commit or abort those ended by it."),
    ("restore-plan", "/restore-plan", models.RestorePlanPage, "planned", "The restore plan."),
)  # fmt: skip
"""Of each kind of operation on a job: its path, its result, and its name for the document."""


def result_routes(actions: Actions) -> APIRouter:
    """Return the paths to poll by trigger id. Added after the pages: these paths would take a
    page's name for a trigger id."""
    router = APIRouter()

    def add(kind: str, path: str, result: type[BaseModel], name: str, text: str) -> None:
        form = models.operation(
            kind.title().replace("-", "") + "Operation", f"/jobs/:id{path}", result
        )

        @router.get(
            f"/jobs/{{jid}}{path}/{{trigger_id}}",
            name=name,
            description=text,
            response_model=form,
            responses=NOT_FOUND,
        )
        def outcome(jid: JobId, trigger_id: TriggerId) -> Any:
            actions.check(jid)
            return actions.operations.answer(kind, trigger_id)

    for each in _OUTCOMES:
        add(*each)

    @router.get(
        "/savepoint-disposal/{trigger_id}",
        response_model=models.operation(
            "DisposalOperation", "/savepoint-disposal", models.Disposed
        ),
        responses=NOT_FOUND,
    )
    def disposal(trigger_id: TriggerId) -> Any:
        """The outcome of a savepoint's disposal."""
        return actions.operations.answer("savepoint-disposal", trigger_id)

    return router
