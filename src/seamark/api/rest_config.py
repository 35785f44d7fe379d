"""`RestConfig`: the address and limits of a driver's REST interface.

`api/settings.py` lays `seamark.toml` and the command line over the program's settings
(``rest.<setting>``). docs/operations/rest.md lists the calls allowed to each caller.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from seamark.api.checks import Given, whole_number, yes_or_no
from seamark.model.errors import ConfigurationError

LOOPBACK = "127.0.0.1"
HIGHEST_PORT = 65535
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class RestConfig(Given):
    """The REST interface of a driver, for the command line and the dashboard.

    enabled: whether there is one. Without it `seamark list` cannot tell a running job from a job
        with a killed driver, and only a signal stops the job from outside.
    address: the address to listen on; the default is this machine alone. On any other address
        everybody with access to it may read. There is no TLS, and the token of changing calls
        crosses the network in plain text: put a proxy with TLS in front.
    port: the port to listen on; 0 takes a free one. One job, one driver, one port.
    requests_per_second: how many requests one client (by its address) may make, after a burst of
        six times as many; beyond that the answer is 429. Callers with the job's token, such as the
        command line and the dashboard of the driver's user, count as one client; all others on the
        driver's machine as one together.

    Raises ConfigurationError, naming the setting, the value found and the allowed values.
    """

    enabled: bool = True
    address: str = LOOPBACK
    port: int = 0
    requests_per_second: int = 50

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
        """Whether it is reachable from this machine only."""
        ip = _as_ip(self.address)
        return ip.is_loopback if ip else self.address.lower() == "localhost"


def _as_ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None
