"""One request to a driver over HTTP: of the registry, of the command line and of the dashboard."""

import urllib.error
import urllib.request
from http.client import HTTPException
from typing import NamedTuple

ASK_S = 2.0
"""How long a driver may take to answer."""
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


def ask(
    rest_url: str,
    path: str,
    token: str = "",
    method: str = "GET",
    body: bytes = b"",
    timeout_s: float = ASK_S,
) -> Answer:
    """Return the answer; `token` is the job's, "" for none. Raises DriverSilentError: after a
    request to change the job, nobody knows then whether it was done."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body:
        headers["Content-Type"] = "application/json"
    try:
        request = urllib.request.Request(rest_url + path, body or None, headers, method=method)
        try:
            answer = _open(request, timeout=timeout_s)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            return Answer(answer.status, answer.read(MOST_BYTES), str(answer.reason))
    except (OSError, HTTPException, ValueError) as error:  # a timeout is an OSError
        raise DriverSilentError(str(error)) from error
