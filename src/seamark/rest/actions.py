"""What changes a job over REST: checkpoint now, stop, cancel. Each needs the job's bearer token.

`Actions` is their state in one driver; `operations.py` keeps what is under way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, HTTPException, Path, Query, Request

from seamark.checkpoint.executions import Sign, unsigned
from seamark.model.errors import UserError
from seamark.model.job_state import JobState
from seamark.rest import models
from seamark.rest.operations import Operations, TooManyOperationsError
from seamark.rest.views import JobView
from seamark.runtime.token import DriverToken

log = logging.getLogger(__name__)

LINGER_S = 5.0
"""How long a driver answers after its job's end, for those who poll for what they have begun."""

JobId = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="The job's id, 32 hex digits.")]
TriggerId = Annotated[
    str, Path(pattern=models.TRIGGER_ID, description="A request-id that was answered.")
]
Trigger = Annotated[models.TriggerRequest | None, Body()]


class Actions:
    """The actions of one driver, and whoever waits for their end."""

    def __init__(self, job: JobView) -> None:
        self.job = job
        self.operations = Operations()
        self._token: DriverToken | None = None
        self._cancelled = False
        self._end_told = False

    def open(self, job_id: str) -> Sign:
        """Make the job's token: from now on, whoever has it may change the job. Return what signs
        with it. Where it cannot be written nobody may, which is a warning: the job runs all the
        same."""
        try:
            self._token = DriverToken(job_id)
        except (UserError, OSError) as error:
            log.warning("the job cannot be changed over REST: its token is not written: %s", error)
            return unsigned
        return self._token.sign

    def close(self) -> None:
        """After the job's end: let those know of it who poll for what they have begun, for some
        seconds at most; then take the token back. Without such there is no delay."""
        deadline = time.monotonic() + LINGER_S
        while time.monotonic() < deadline and (
            self.operations.are_waited_for() or (self._cancelled and not self._end_told)
        ):
            time.sleep(0.05)
        if self._token is not None:
            self._token.delete()

    def allows(self, authorization: str | None) -> bool:
        """Whether this is the value of an ``Authorization`` header with the job's token."""
        return self._token is not None and self._token.allows(authorization)

    def allow(self, request: Request) -> None:
        """Refuse a request that does not bring the job's token."""
        if not self.allows(request.headers.get("authorization")):
            raise HTTPException(
                401,
                "this needs the job's token in the header Authorization, as a bearer; it is in the "
                "file tokens/<job id> in ~/.seamark (or SEAMARK_HOME) of the driver's user",
                {"WWW-Authenticate": "Bearer"},
            )

    def told(self, state: JobState) -> None:
        """Note that somebody was told how the job ended, if it has."""
        self._end_told |= state.is_terminal

    def stop(self, trigger_id: str | None) -> str:
        """Begin to stop the job; return the trigger id."""
        return self.operations.begin(
            "stop", trigger_id, self.job.stop, lambda state: {"state": state.value}
        )

    def savepoint(self, trigger_id: str | None, start: Callable[[], Future[str]]) -> str:
        """Begin a savepoint, one with which the job ends or another; return the trigger id."""
        return self.operations.begin(
            "savepoint", trigger_id, start, lambda path: {"location": path}
        )

    def cancel(self) -> None:
        """Begin to cancel the job."""
        self._cancelled = True
        self.job.cancel()

    def trigger_checkpoint(self, trigger_id: str | None) -> str:
        """Begin a checkpoint; return the trigger id."""
        return self.operations.begin(
            "checkpoint",
            trigger_id,
            self.job.trigger_checkpoint,
            lambda epoch: {"checkpointId": epoch},
        )

    def result(self, kind: str, trigger_id: str) -> dict[str, Any]:
        """Return what came of an operation, as it is answered; 404 if it is not known."""
        operation = self.operations.find(kind, trigger_id)
        if operation is None:
            raise HTTPException(404, f"There is no {kind} with the trigger id {trigger_id}")
        return operation.answer()


def begin(start: Callable[[], str]) -> models.TriggerResponse:
    """Begin an operation and answer with the trigger id that `start` returns, or with why not."""
    try:
        return models.TriggerResponse(request_id=start())
    except UserError as error:
        raise HTTPException(409, str(error)) from None
    except TooManyOperationsError as error:
        raise HTTPException(429, str(error), {"Retry-After": "1"}) from None


def action_routes(actions: Actions, check: Callable[[str], None]) -> APIRouter:
    """Return the paths; `check` refuses a job id that is not this driver's."""
    router = APIRouter()
    problem: dict[str, Any] = {"model": models.Problem}
    not_found: dict[int | str, dict[str, Any]] = {404: problem}
    changing: dict[int | str, dict[str, Any]] = {
        401: {**problem, "description": "The job's token is missing or another one"},
        404: problem,
        409: {**problem, "description": "Not in the state that the job is in"},
    }
    allowed = [Depends(actions.allow)]

    @router.post(
        "/jobs/{jid}/checkpoints", status_code=202, responses=changing, dependencies=allowed
    )
    def trigger_checkpoint(jid: JobId, trigger: Trigger = None) -> models.TriggerResponse:
        """Take a checkpoint now, without waiting for the interval."""
        check(jid)
        return begin(lambda: actions.trigger_checkpoint(trigger.triggerId if trigger else None))

    @router.get("/jobs/{jid}/checkpoints/{trigger_id}", responses=not_found)
    def triggered_checkpoint(jid: JobId, trigger_id: TriggerId) -> models.CheckpointOperation:
        """What came of a checkpoint that was asked for."""
        check(jid)
        return models.CheckpointOperation.model_validate(actions.result("checkpoint", trigger_id))

    @router.post(
        "/jobs/{jid}/savepoints", status_code=202, responses=changing, dependencies=allowed
    )
    def take_savepoint(
        jid: JobId, request: Annotated[models.SavepointRequest | None, Body()] = None
    ) -> models.TriggerResponse:
        """Take a savepoint; the job goes on."""
        check(jid)
        asked = request or models.SavepointRequest()
        type_ = asked.formatType.lower()
        start = partial(actions.job.savepoint, asked.target_directory, type=type_)
        return begin(lambda: actions.savepoint(asked.triggerId, start))

    @router.get("/jobs/{jid}/savepoints/{trigger_id}", responses=not_found)
    def savepoint(jid: JobId, trigger_id: TriggerId) -> models.SavepointOperation:
        """What came of a savepoint that was asked for, also of one that the job ends with."""
        check(jid)
        return models.SavepointOperation.model_validate(actions.result("savepoint", trigger_id))

    @router.post("/jobs/{jid}/stop", status_code=202, responses=changing, dependencies=allowed)
    def stop(
        jid: JobId, request: Annotated[models.StopRequest | None, Body()] = None
    ) -> models.TriggerResponse:
        """End the job after the epoch under way; everything is committed and kept. With a
        `targetDirectory` it ends with a savepoint: ask at ``/savepoints`` for that. With `drain`
        too, after its windows have been closed."""
        check(jid)
        asked = request or models.StopRequest()
        if asked.targetDirectory is not None or asked.drain:
            start = partial(
                actions.job.stop_with_savepoint,
                asked.targetDirectory,
                type=asked.formatType.lower(),
                drain=asked.drain,
            )
            return begin(lambda: actions.savepoint(asked.triggerId, start))
        return begin(lambda: actions.stop(asked.triggerId))

    @router.get("/jobs/{jid}/stop/{trigger_id}", responses=not_found)
    def stopped(jid: JobId, trigger_id: TriggerId) -> models.StopOperation:
        """Whether a job that was told to stop has ended."""
        check(jid)
        return models.StopOperation.model_validate(actions.result("stop", trigger_id))

    @router.patch("/jobs/{jid}", status_code=202, responses=changing, dependencies=allowed)
    def cancel(
        jid: JobId,
        mode: Annotated[Literal["cancel"], Query()] = "cancel",
        request: Annotated[models.CancelRequest | None, Body()] = None,
    ) -> models.Accepted:
        """End the job at once: the epoch under way is aborted."""
        check(jid)
        actions.cancel()
        return models.Accepted()

    return router
