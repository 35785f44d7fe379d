"""Connections to the server: the URL, a deadline on every call, the meaning of its errors.

Only this module knows redis-py. It uses the bare connection: no retries behind our back, and packed
bytes go out unchanged.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from seamark.model.errors import ConfigurationError, PreCommitError
from seamark.model.ignored import ignored
from seamark.model.packages import load_driver
from seamark.sinks.internal import servers
from seamark.sinks.internal.committers import closed_by_errors
from seamark.sinks.internal.servers import split_url, url_options
from seamark.sinks.redis.committable import Keys

CONNECT_TIMEOUT_S = 5.0
_IDLE_S = 30.0
"""The age of an unused connection at which a proxy may have dropped it."""

_ONE_PACKET_BYTES = 2**14
_FORM = "give 'redis://user:password@host:6379/0'"
_OPTIONS = {
    "ssl_ca_certs": str, "ssl_certfile": str, "ssl_keyfile": str, "ssl_check_hostname": bool,
}  # fmt: skip


@dataclass(frozen=True)
class Address(servers.Address):
    """The server's address and login."""

    timeout_s: float = 10.0
    database: int = 0
    tls: bool = False

    def __str__(self) -> str:
        return f"{super().__str__()}/{self.database}"

    @property
    def shown(self) -> str:
        """The URL without its password."""
        secret = ":***" if self.password else ""
        at = f"{self.user}{secret}@" if self.user or secret else ""
        return f"redis{'s' if self.tls else ''}://{at}{self}"


def parse_url(url: object, sink: str) -> Address:
    """Return the parts of ``redis://user:password@host:port/database``, or ``rediss://`` for TLS.

    Raises ConfigurationError. Its text never shows the URL, which may hold a password.
    """
    allowed = "redis and rediss (with TLS)"
    parts = split_url(url, sink, ("redis", "rediss"), allowed, _FORM)
    number = parts.path.strip("/") or "0"
    if not number.isdecimal():
        raise ConfigurationError(
            f"{sink}: url names the database {number[:20]!r}, which is no number; {_FORM}"
        )
    options = url_options(parts.query, sink, _OPTIONS)
    if options and parts.scheme != "rediss":
        raise ConfigurationError(
            f"{sink}: url has the option {options[0][0]!r} and no TLS; begin it with rediss://"
        )
    own = {"database": int(number), "tls": parts.scheme == "rediss", "options": options}
    return Address.of(parts, 6379, **own)


driver = partial(load_driver, "redis", "RedisSink needs redis-py", "redis")


class Link:
    """One connection. Any error closes it for good.

    timeout_s: the longest wait for one answer; the address's own, if not given.

    Raises redis-py's RedisError.
    """

    def __init__(self, address: Address, timeout_s: float | None = None) -> None:
        module = driver()
        kind = module.SSLConnection if address.tls else module.Connection
        # Before version 6 the driver takes a certificate of any host.
        checked = {"ssl_check_hostname": True} if address.tls else {}
        self._connection = kind(
            host=address.host,
            port=address.port,
            db=address.database,
            username=address.user or None,
            password=address.password or None,
            socket_timeout=timeout_s or address.timeout_s,
            socket_connect_timeout=min(CONNECT_TIMEOUT_S, address.timeout_s),
            client_name="seamark",
            protocol=2,  # or the shape of answers depends on the driver's version
            **checked | dict(address.options),
        )
        self.timeout_s = timeout_s or address.timeout_s
        self._connection.connect()
        self._used = time.monotonic()
        self._open = True

    def call(self, *command: str | bytes | int) -> Any:
        """Send one command and return its answer."""
        self.send(self._connection.pack_command(*command))
        return self.answer()

    def send(self, packed: Sequence[Any]) -> None:
        """Send buffers with one or more whole commands; `answer` follows once for each."""
        if not self._open:  # redis-py would connect again, without our state on the server
            raise driver().ConnectionError("the connection was closed by an error before")
        if sum(map(len, packed)) < _ONE_PACKET_BYTES:
            packed = [b"".join(packed)]
        self._used = time.monotonic()
        with closed_by_errors(self):
            self._connection.send_packed_command(packed, check_health=False)

    def answer(self) -> Any:
        """Return the answer to the next unanswered command. Raises an error within EXEC's too."""
        with closed_by_errors(self):
            answer = self._connection.read_response()
            for part in answer if isinstance(answer, list) else ():
                if isinstance(part, Exception):
                    raise part
            return answer

    def may_be_cut(self) -> bool:
        """Whether the other end has closed it, or a proxy may have. No answer is awaited."""
        try:
            return time.monotonic() - self._used > _IDLE_S or self._connection.can_read(0)
        except driver().RedisError:
            return True

    def close(self) -> None:
        """Close the connection in any state."""
        self._open = False
        with ignored("the end of a connection to Redis"):
            self._connection.disconnect()


def replicas_reached(link: Link, keys: Keys, replicas: int) -> int:
    """Return how many replicas have all writes made before this call, by any connection. Wait until
    `replicas` of them have, or for half of the time for an answer."""
    if replicas == 0:
        return 0
    # WAIT waits for the connection's own last write; replicas get all writes in one order.
    link.call("SET", keys.named("synced"), 1)
    return int(link.call("WAIT", replicas, int(min(link.timeout_s, 10.0) * 1000 / 2)))


def wait_for_replicas(link: Link, keys: Keys, replicas: int) -> None:
    """Raise PreCommitError if too few replicas have everything in time."""
    reached = replicas_reached(link, keys, replicas)
    if reached < replicas:
        raise PreCommitError(
            f"only {reached} of {replicas} replicas have the rows; bring the others back, or lower "
            "replicas= of the sink"
        )


def refuses(error: BaseException) -> bool:
    """Whether a server's error is about the rows, so that repeating them cannot help. Anything else
    (away, loading, read-only after a failover, out of memory, busy) may pass."""
    return isinstance(error, driver().ResponseError) and "WRONGTYPE" in str(error)
