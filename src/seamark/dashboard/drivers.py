"""Asks the drivers of running jobs, over their REST interface (`rest/`)."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException

from seamark.dashboard.shared_pages import Page
from seamark.runtime.registry import ASK_S, MOST_BYTES

ACT_S = 10.0
"""How long a driver may take to answer a request that changes its job."""


class DriverSilentError(Exception):
    """A driver cannot be reached, or does not answer in time."""


def ask(rest_url: str, path: str, token: str) -> Page:
    """Return a driver's answer to a GET, whatever its status; `token` is sent along, "" for none.
    Raises DriverSilentError."""
    headers = {"Authorization": f"Bearer {token}"} if token else None
    return _request("GET", rest_url, path, ASK_S, headers=headers)


def act(rest_url: str, method: str, path: str, token: str, body: bytes) -> Page:
    """Send a request that changes the driver's job, with the job's token, and return the answer,
    whatever its status. Raises DriverSilentError: then it is not known whether it was done."""
    headers = {"Authorization": f"Bearer {token}"}
    if body:
        headers["Content-Type"] = "application/json"
    return _request(method, rest_url, path, ACT_S, body or None, headers)


# A driver is at the address that it has recorded: no proxy, and no redirection to somewhere else.
class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


_open = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open


def _request(
    method: str,
    rest_url: str,
    path: str,
    timeout_s: float,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Page:
    request = urllib.request.Request(
        rest_url + urllib.parse.quote(path, safe="/?&=%"), body, headers or {}, method=method
    )
    try:
        try:
            with _open(request, timeout=timeout_s) as answer:
                return Page(answer.read(MOST_BYTES), answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return Page(refused.read(MOST_BYTES), refused.code)
    except (OSError, HTTPException, ValueError) as error:  # a timeout is an OSError
        raise DriverSilentError(f"{rest_url}: {error}") from None
