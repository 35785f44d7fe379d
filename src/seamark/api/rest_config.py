"""`RestConfig`: the address and limits of a driver's REST interface.

`api/settings.py` lays `seamark.toml` and the command line over the program's settings
(``rest.<setting>``). docs/operations/rest.md lists the calls allowed to each caller.
"""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

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
        everybody with access to it may read. Without `certificate` the token of changing calls
        crosses the network in plain text.
    port: the port to listen on; 0 takes a free one. One job, one driver, one port.
    advertised_address: the address told to clients: a host, ``host:port``, or the URL of a proxy.
        None is `address`; for ``0.0.0.0`` and ``::`` it is found: on Kubernetes the pod's address,
        on YARN the node's name, else this machine's name.
    certificate: the path of a PEM file with the server's private key and its certificate chain: the
        interface then speaks HTTPS alone. None is plain HTTP.
    requests_per_second: how many requests one client (by its address) may make, after a burst of
        six times as many; beyond that the answer is 429. Callers with the job's token, such as the
        command line and the dashboard of the driver's user, count as one client; all others on the
        driver's machine as one together.

    Raises ConfigurationError, naming the setting, the value found and the allowed values.
    """

    enabled: bool = True
    address: str = LOOPBACK
    port: int = 0
    advertised_address: str | None = None
    certificate: str | None = None
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
        told = self.advertised_address
        if told is not None and (not isinstance(told, str) or _as_url(told) is None):
            raise ConfigurationError(
                f"RestConfig: advertised_address is {told!r}; give a host name or address, with "
                "its port if that is another one (driver.example:8081, [::1]:8081), or a proxy's "
                "URL (https://proxy.example)"
            )
        if self.certificate is not None and (
            not isinstance(self.certificate, str) or not self.certificate
        ):
            raise ConfigurationError(
                f"RestConfig: certificate is {self.certificate!r}; give the path of a PEM file "
                "with private key and certificate chain"
            )
        whole_number(self.requests_per_second, "RestConfig: requests_per_second", least=1)

    @property
    def is_loopback(self) -> bool:
        """Whether it is reachable from this machine only."""
        ip = _as_ip(self.address)
        return ip.is_loopback if ip else self.address.lower() == "localhost"

    def advertised_url(self, port: int) -> str:
        """Return the URL told to the clients of a server that listens on `port`; "" if nothing is
        advertised."""
        told = self.advertised_address
        url = _as_url(told) if told else None
        if url is None:
            return ""
        is_proxy = "://" in str(told)
        place = url.netloc if url.port or is_proxy else f"{url.netloc}:{port}"
        return f"{url.scheme if is_proxy else self.scheme}://{place}"

    @property
    def scheme(self) -> str:
        """The scheme of the interface's own URLs."""
        return "https" if self.certificate else "http"


def _as_url(text: str) -> SplitResult | None:
    """Return a host, ``host:port`` or URL without a path as a URL; None for any other text."""
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        host, _ = url.hostname or "", url.port
    except ValueError:
        return None
    plain = url.scheme in ("http", "https") and "@" not in url.netloc
    plain &= not (url.path.strip("/") or url.query or url.fragment)
    return url if plain and (_HOST_NAME.fullmatch(host) or _as_ip(host)) else None


def _as_ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None
