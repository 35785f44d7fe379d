"""Asks the drivers of running jobs, over their REST interface (`rest/`)."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException

from seamark.dashboard.shared_pages import Page
from seamark.runtime.registry import ASK_S, MOST_BYTES

ACT_S = 10.0
"""How long a driver may take to answer a request to change its job."""


class DriverSilentError(Exception):
    """A driver cannot be reached, or does not answer in time."""


# A driver is at its recorded address: no proxy, and no redirection.
class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


_open = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open


def send(rest_url: str, path: str, token: str, method: str = "GET", body: bytes = b"") -> Page:
    """Return a driver's answer, whatever its status; `token` is the job's, "" for none. Raises
    DriverSilentError: after a request to change the job, nobody knows then whether it was done."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body:
        headers["Content-Type"] = "application/json"
    url = rest_url + urllib.parse.quote(path, safe="/?&=%")
    try:
        request = urllib.request.Request(url, body or None, headers, method=method)
        try:
            with _open(request, timeout=ASK_S if method == "GET" else ACT_S) as answer:
                return Page(answer.read(MOST_BYTES), answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return Page(refused.read(MOST_BYTES), refused.code)
    except (OSError, HTTPException, ValueError) as error:  # a timeout is an OSError
        raise DriverSilentError(f"{rest_url}: {error}") from None
