"""The state of the REST actions on a job: the token, the operations under way (`operations.py`),
and the clients waiting for the end. `action_routes.py` has the paths."""

import logging

from fastapi import HTTPException, Request

from seamark.checkpoint.executions import Sign, unsigned
from seamark.files.deadline import Deadline
from seamark.jobs.token import DriverToken
from seamark.model.errors import UserError
from seamark.model.job_state import JobState
from seamark.rest.live_job import LiveJob
from seamark.rest.operations import Operations

log = logging.getLogger(__name__)

LINGER_S = 5.0
"""How long a driver answers after its job's end, for clients still polling their operations."""


class Actions:
    """The actions on one driver's job, and the clients waiting for their end."""

    def __init__(self, job: LiveJob) -> None:
        self.job = job
        self.operations = Operations()
        self._token: DriverToken | None = None
        self._cancelled = False
        self._end_told = False

    def open(self, job_id: str) -> Sign:
        """Make the job's token: from now on its holders may change the job. Return the token's
        signer. If the token cannot be written, a warning says so, and nobody may change the job."""
        try:
            self._token = DriverToken(job_id)
        except (UserError, OSError) as error:
            log.warning("the job cannot be changed over REST: its token is not written: %s", error)
            return unsigned
        return self._token.sign

    def close(self) -> None:
        """Called after the job's end: wait until polling clients have been told of the end, at most
        LINGER_S, then take the token back. Without such clients there is no delay."""
        Deadline(LINGER_S).wait_for(
            lambda: not self.operations.are_waited_for() and (self._end_told or not self._cancelled)
        )
        if self._token is not None:
            self._token.delete()

    def allows(self, authorization: str | None) -> bool:
        """Whether this is the value of an ``Authorization`` header with the job's token."""
        return self._token is not None and self._token.allows(authorization)

    def allow(self, request: Request) -> None:
        """Refuse a request without the job's token."""
        if not self.allows(request.headers.get("authorization")):
            raise HTTPException(
                401,
                "this needs the job's token in the header Authorization, as a bearer; it is in the "
                "file tokens/<job id> in ~/.seamark (or SEAMARK_HOME) of the driver's user",
                {"WWW-Authenticate": "Bearer"},
            )

    def told(self, state: JobState) -> None:
        """Note the state told to a client: a terminal state tells the job's end."""
        self._end_told |= state.is_terminal

    def check(self, jid: str) -> None:
        """Refuse a job id other than this driver's."""
        if jid != self.job.job_id():
            raise HTTPException(404, f"Job {jid} not found; this driver runs {self.job.job_id()}")

    def cancel(self) -> None:
        """Begin to cancel the job."""
        self._cancelled = True
        self.job.supervisor().cancel()
