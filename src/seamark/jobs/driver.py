"""The driver of a job, asked over HTTP at the address in its execution's record.

The registry, the command line and the dashboard ask through it.

The job's token goes only to an address that the driver has signed with it: a forged record must not
get the token.
"""

import json
import logging
import os
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import NamedTuple
from urllib.parse import urlsplit

from seamark.api.rest_config import RestConfig
from seamark.checkpoint.executions import Execution
from seamark.jobs.token import is_signed, tokens_at_hand
from seamark.model.errors import UserError
from seamark.model.job_state import JobState

log = logging.getLogger(__name__)

ASK_S = 2.0
"""How long a driver may take to answer."""
WHOLE_S = 60.0
"""How long a whole answer may take, each part of it in time."""
MOST_BYTES = 64 * 2**20
"""The most bytes of an answer to read: the address may not be a driver's."""


class DriverSilentError(Exception):
    """A driver cannot be reached, or does not answer in time. Its cause says why."""


class Answer(NamedTuple):
    """A driver's answer, whatever its status; `reason` is the status in words."""

    status: int
    body: bytes
    reason: str


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


# A driver is asked at its recorded address, whatever proxy the environment names.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open


class Driver:
    """The driver of `execution`, a run of the job `name`: the name in its directory, which may not
    be that of the record."""

    def __init__(self, execution: Execution, name: str) -> None:
        self.execution = execution
        self.name = name
        self.start = execution.start

    def ask(
        self,
        path: str = "",
        method: str = "GET",
        body: bytes = b"",
        token: str | None = None,
        timeout_s: float = ASK_S,
    ) -> Answer:
        """Return the answer to ``/jobs/<id><path>``. `token` is the job's, "" for none; None takes
        `reading_token`. Raises DriverSilentError: after a request to change the job, nobody knows
        then whether it was done."""
        token = self.reading_token() if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body:
            headers["Content-Type"] = "application/json"
        url = f"{self.start.rest_url}/jobs/{self.start.job_id}{path}"
        try:
            request = urllib.request.Request(url, body or None, headers, method=method)
            try:
                answer = _open(request, timeout=timeout_s)
            except urllib.error.HTTPError as refused:
                answer = refused
            read, over = bytearray(), time.monotonic() + WHOLE_S
            with answer:
                while (part := answer.read1(2**16)) and len(read) < MOST_BYTES:
                    read += part
                    if time.monotonic() > over:
                        raise TimeoutError(f"no whole answer within {WHOLE_S:g} s")
                return Answer(answer.status, bytes(read), str(answer.reason))
        except (OSError, HTTPException, ValueError) as error:  # a timeout is an OSError
            raise DriverSilentError(str(error)) from error

    def state(self) -> JobState:
        """Return how the job has ended, or the state reported by its driver; UNREACHABLE if the
        driver is silent, or another job answers at its address."""
        if self.execution.end is not None or not self.start.rest_url:
            return self.execution.state
        try:
            page = json.loads(self.ask().body)
            # A port may be taken by another driver of the same job since.
            if page["start-time"] == round(self.start.started_at * 1000):
                return JobState(page["state"])
        except (DriverSilentError, ValueError, KeyError, TypeError, RecursionError) as error:
            log.info("job %s at %s: %s", self.start.name, self.start.rest_url, error)
        return JobState.UNREACHABLE

    # --- the token

    def require_signed(self, token: str) -> None:
        """Raise UserError unless the driver with this token has written the record, as that of the
        job `name`. Called before the token is sent to the address in the record."""
        execution, start = self.execution, self.start
        where = f"job {self.name!r}: {execution.record} says that its driver answers at "
        where += f"{start.rest_url or 'no address'}, but "
        not_sent = "; the token was not sent there. If nobody but the driver writes into the "
        not_sent += "storage, "
        if not execution.signature:
            raise UserError(
                f"{where}no driver has signed that{not_sent}it is of an older version: end it with "
                f"SIGTERM (pid {start.pid} on {start.host}) and start it again"
            )
        if start.name != self.name or not is_signed(token, execution.content, execution.signature):
            raise UserError(
                f"{where}it is not signed with the job's token{not_sent}the token is that of "
                "another driver"
            )

    def token(self) -> str | None:
        """Return the token at hand with which the driver has signed its record; None if there is no
        token at hand. Raises UserError if none of them has signed it."""
        refusal: UserError | None = None
        for token in tokens_at_hand(self.start.job_id):
            try:
                self.require_signed(token)
                return token
            except UserError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        return None

    def reading_token(self) -> str:
        """Return the token for read requests, or "". With it the driver answers before it answers
        others. It is "" if it is not at hand, if the driver is on another machine, or if the driver
        has not signed its address."""
        try:
            host = urlsplit(self.start.rest_url).hostname or ""
            if RestConfig(address=host).is_loopback:
                return self.token() or ""
        except (UserError, ValueError) as error:
            log.info("%s", error)
        return ""


def is_alive(pid: int) -> bool:
    """Return whether this machine has a process `pid`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
