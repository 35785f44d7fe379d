"""Grants access to the dashboard. It listens on the loopback address only.

- Everybody on this machine may read, from the dashboard's own pages: the `Host` header must name a
  loopback address, so a foreign page cannot reach it under a name of its own (DNS rebinding). No
  answer allows another origin to read it (CORS).
- Every request to change a job needs the dashboard's token, as a bearer. A browser does not send it
  by itself, so a foreign page cannot either.
- The page may load only files of this server, and runs no inline script (CSP).
"""

from __future__ import annotations

import hmac
import re
from typing import ClassVar

from fastapi.responses import JSONResponse

from seamark.rest.guard import Guard, Message, refuse

_LOOPBACK = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")


def allows(authorization: str | None, token: str) -> bool:
    """Whether the value of an ``Authorization`` header is this token, as a bearer."""
    scheme, _, given = (authorization or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode(), token.encode()
    )


class Protection(Guard):
    """ASGI middleware: refuses foreign hosts and large bodies, adds `headers`."""

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

    def refusal(
        self, scope: Message, headers: dict[bytes, bytes], client: str
    ) -> JSONResponse | None:
        """Return the refusal of a request; None if it is to be answered."""
        if _LOOPBACK.fullmatch(headers.get(b"host", b"")):
            return None
        return refuse(421, "this dashboard answers on the loopback address only")
