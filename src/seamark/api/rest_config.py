"""`RestConfig`: where a driver's REST interface listens, and how much it takes.

`api/settings.py` lays `seamark.toml` and the command line over what the program gives
(``rest.<setting>``). docs/operations/rest.md says who may call what.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Any

from seamark.api.checks import whole_number, yes_or_no
from seamark.model.errors import ConfigurationError

LOOPBACK = "127.0.0.1"
HIGHEST_PORT = 65535
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class RestConfig:
    """The REST interface of a driver, which the command line and the dashboard ask.

    enabled: whether there is one. Without it `seamark list` cannot tell a running job from one
        whose driver was killed, and nothing but a signal stops the job from outside.
    address: what to listen on: this machine alone by default. On any other address everybody who
        reaches it may read; there is no TLS, and the token of changing calls crosses the network as
        it is: put a proxy with TLS in front.
    port: the port to listen on; 0 takes a free one. One job, one driver, one port.
    requests_per_second: how many requests one client (by its address) may make, after a burst of
        six times as many; beyond that the answer is 429. Whoever brings the job's token, as the
        command line and the dashboard of the driver's user do, is one client; all others of the
        driver's machine are one together.

    Raises ConfigurationError, naming the setting, the value found and what is allowed.
    """

    enabled: bool = True
    address: str = LOOPBACK
    port: int = 0
    requests_per_second: int = 50
    given: frozenset[str] = field(init=False, repr=False, compare=False)
    """The settings that the program gave, whatever their values."""

    def __new__(cls, **given: Any) -> RestConfig:
        """Remember which settings were given, before the defaults are filled in."""
        config = super().__new__(cls)
        object.__setattr__(config, "given", frozenset(given))
        return config

    def __post_init__(self) -> None:
        yes_or_no(self.enabled, "RestConfig: enabled")
        if not isinstance(self.address, str) or not (
            _HOST_NAME.fullmatch(self.address) or _as_ip(self.address)
        ):
            raise ConfigurationError(
                f"RestConfig: address is {self.address!r}; give an address of this machine, such "
                "as '127.0.0.1', '0.0.0.0' or '::1', or its name"
            )
        port = whole_number(self.port, "RestConfig: port", least=0)
        if port > HIGHEST_PORT:
            raise ConfigurationError(
                f"RestConfig: port is {port}; give one up to {HIGHEST_PORT}, or 0 for a free one"
            )
        whole_number(self.requests_per_second, "RestConfig: requests_per_second", least=1)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        ip = _as_ip(self.address)
        return ip.is_loopback if ip else self.address.lower() == "localhost"


def _as_ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None
