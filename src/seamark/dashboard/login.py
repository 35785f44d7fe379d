"""The dashboard's login: who may look, and who may change a job.

- On the loopback address alone (`Login.is_open`) everybody on the machine may look.
- Elsewhere nobody may, but for the holder of the token, and users named by a trusted proxy's
  header.

A browser sends a proxy's cookie by itself, also for a foreign page. So a change by such a user
needs `ASKED_WITH` too: a foreign page may set it only with a permission (CORS) that is never given.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamark.jobs.token import is_bearer
from seamark.model.errors import UserError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
ASKED_WITH = (b"x-requested-with", b"seamark")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True)
class Login:
    """Who may use the dashboard.

    token: its bearer may look and change.
    is_open: everybody may look: the server listens on the loopback address, without a proxy.
    header: the header in which a proxy among `proxies` names its user, in small letters; "" is
        none.
    """

    token: str
    is_open: bool = True
    header: str = ""
    proxies: tuple[Network, ...] = ()

    def has_token(self, authorization: str | None) -> bool:
        """Whether the value of an ``Authorization`` header is the token, as a bearer."""
        return is_bearer(authorization, self.token)

    def user(self, scope: Mapping[str, Any]) -> str:
        """Return the user named by a trusted proxy; "" if there is none. Two such headers name
        nobody: one of them may be the client's own."""
        if not self.header or not scope["client"]:
            return ""
        named = [value for name, value in scope["headers"] if name == self.header.encode()]
        try:
            peer = ipaddress.ip_address(scope["client"][0])
        except ValueError:
            return ""
        peer = getattr(peer, "ipv4_mapped", None) or peer  # on a socket of both versions
        if len(named) != 1 or not any(peer in network for network in self.proxies):
            return ""
        return str(named[0].decode("latin-1").strip())

    def knows(self, scope: Mapping[str, Any]) -> bool:
        """Whether the request of an ASGI scope is the token holder's, or a user's."""
        return self.has_token(_authorization(scope)) or bool(self.user(scope))

    def may_change(self, scope: Mapping[str, Any]) -> bool:
        """Whether the request may change a job."""
        if self.has_token(_authorization(scope)):
            return True
        return bool(self.user(scope)) and ASKED_WITH in scope["headers"]

    def page(self, scope: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``/login``: what the caller may do."""
        return {
            "user": self.user(scope),
            "may-look": self.is_open or self.knows(scope),
            "may-change": self.knows(scope),
            "by-proxy": bool(self.header),
        }


def by_header(header: str, proxies: Sequence[str]) -> tuple[str, tuple[Network, ...]]:
    """Return a checked header and its proxies, for `Login`. Raises UserError."""
    if bool(header) != bool(proxies):
        given, missing = ("--login-header", "--proxy") if header else ("--proxy", "--login-header")
        raise UserError(
            f"{given} needs {missing} beside it: a header is believed only from the addresses of "
            "the proxy, e.g. --login-header X-Forwarded-Email --proxy 10.0.0.7"
        )
    if header and not _HEADER.fullmatch(header):
        raise UserError(
            f"--login-header is {header!r}; give a header's name, such as X-Forwarded-Email"
        )
    if header.lower() in ("authorization", "host", "cookie", "origin", "referer", "user-agent"):
        raise UserError(
            f"--login-header is {header!r}, which every browser sends by itself; give the one in "
            "which the proxy names its user, such as X-Forwarded-Email"
        )
    networks = []
    for each in proxies:
        try:
            networks.append(ipaddress.ip_network(each))
        except ValueError:
            raise UserError(
                f"--proxy is {each!r}; give the address or network of the proxy, such as 10.0.0.7 "
                "or 10.0.0.0/28"
            ) from None
    return header.lower(), tuple(networks)


def _authorization(scope: Mapping[str, Any]) -> str | None:
    value = dict(scope["headers"]).get(b"authorization")
    return None if value is None else value.decode("latin-1")
