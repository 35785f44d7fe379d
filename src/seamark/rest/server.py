"""Runs the REST interface in a thread of the driver: where `RestConfig` says, or not at all.

`Protection` checks every request first:

- While the server listens on the loopback address, the ``Host`` header must name it, so a foreign
  page cannot reach it under a name of its own (DNS rebinding). No answer allows another origin to
  read it (CORS), and a preflight gets no permission.
- A body has at most 64 kB, a URL 8 kB, the headers 16 kB. A client has a limited rate of requests
  (`RestConfig`), all clients together limited work at once: the job's own threads run in this
  process. Holders of the job's token have a rate and places of their own (`guard.py`).
"""

import contextlib
import logging
import os
import re
import socket
import ssl
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import ClassVar

import uvicorn
from fastapi.responses import JSONResponse

from seamark.api.rest_config import RestConfig
from seamark.checkpoint.executions import Sign, unsigned
from seamark.model.errors import PreflightError
from seamark.rest.actions import Actions
from seamark.rest.connections import MOST_HEADER_BYTES, Connections, Listener, guarded_server
from seamark.rest.guard import App, Guard, Message, refuse
from seamark.rest.live_job import LiveJob
from seamark.rest.routes import make_app

log = logging.getLogger(__name__)

STOP_S = 5.0
CONNECTIONS = 256
MOST_URL_BYTES = 8 * 1024
BURST_S = 6.0
"""A client silent for so long may send all requests saved meanwhile at once."""
CLIENTS = 1024
_LOOPBACK = re.compile(rb"(127(\.\d{1,3}){3}|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)


class RequestRates:
    """A token bucket for each client."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Note a request; return 0, or the seconds until the client may ask again."""
        now, full = self._clock(), self._per_second * BURST_S
        left, at = self._buckets.pop(client, (full, now))
        left = min(left + (now - at) * self._per_second, full)
        allowed = left >= 1
        self._buckets[client] = (left - 1 if allowed else left, now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second


class Protection(Guard):
    """ASGI middleware around the REST interface; `holds` as in `Guard`."""

    at_once = 4
    most_body = 64 * 1024
    headers: ClassVar = {
        "cache-control": "no-cache",
        "cross-origin-resource-policy": "same-origin",
        "x-content-type-options": "nosniff",
    }

    def __init__(
        self,
        app: App,
        config: RestConfig,
        connections: Connections,
        holds: Callable[[str | None], bool],
    ) -> None:
        super().__init__(app, connections, holds)
        self._config = config
        self._rates = RequestRates(config.requests_per_second)

    def refusal(
        self, scope: Message, headers: dict[bytes, bytes], client: str
    ) -> JSONResponse | None:
        """Return the refusal of a request; None if it is to be answered."""
        if self._config.is_loopback and not _LOOPBACK.fullmatch(headers.get(b"host", b"")):
            return refuse(421, "this driver answers on the loopback address only (Host header)")
        if len(scope["raw_path"]) + len(scope["query_string"]) > MOST_URL_BYTES:
            return refuse(414, f"a URL has at most {MOST_URL_BYTES} bytes here")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADER_BYTES:
            return refuse(431, f"headers have at most {MOST_HEADER_BYTES} bytes here, together")
        wait_s = self._rates.wait_s(client)
        if wait_s > 0:
            return refuse(
                429,
                f"more than {self._config.requests_per_second} requests a second from "
                + (client or "the holder of the token"),
                {"Retry-After": str(max(round(wait_s), 1))},
            )
        return None


class RestServer:
    """Serves one job from `start` to `stop` or the program's end; if disabled, does nothing."""

    def __init__(self, job: LiveJob, config: RestConfig) -> None:
        self._job = job
        # What routes use: FastAPI's caches keep those of hundreds of jobs that have ended.
        self._served: LiveJob = weakref.proxy(job)
        self._config = config
        self._actions = Actions(self._served)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._ends = False

    def start(self) -> str:
        """Listen, and return the URL for clients; "" if there is no server. Raises PreflightError
        if the address or the port cannot be had, or the certificate cannot be used."""
        if not self._config.enabled:
            return ""
        check_certificate(self._config)
        listener = listen(self._config)
        self._thread = threading.Thread(
            target=self._serve, args=[listener], name="seamark-rest", daemon=True
        )
        self._thread.start()
        return self._config.advertised_url(listener.getsockname()[1]) or url_of(
            self._config, listener
        )

    def _serve(self, listener: socket.socket) -> None:
        # Here, because FastAPI takes a sixth of a second for the pages. Meanwhile the job starts,
        # and clients that come too early wait in the listener's queue.
        connections = Connections(CONNECTIONS)
        app = make_app(self._served, self._actions)
        guarded = Protection(app, self._config, connections, self._actions.allows)
        tls = self._config.certificate
        self._server = guarded_server(guarded, connections, keep_alive_s=5, ssl_certfile=tls)
        if self._ends:
            self._server.should_exit = True
        self._server.run(sockets=[listener])

    def allow_changes(self, job_id: str) -> Sign:
        """Called when the job's id is known: make the token to change it. Return its signer."""
        return self._actions.open(job_id) if self._config.enabled else unsigned

    def stop(self) -> None:
        """Called when the job has ended. Clients polling for its end have a few seconds to learn of
        it. Then the server stops listening, and requests under way are answered within STOP_S."""
        self._actions.close()
        self._ends = True
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_S)


def check_certificate(config: RestConfig) -> None:
    """Raise PreflightError unless the certificate, if there is one, can be served."""
    if not config.certificate:
        return
    try:
        # The password is asked for at the terminal where the key has one; "" is none.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.certificate, password="")
    except (OSError, ValueError) as error:
        raise PreflightError(
            f"the REST interface cannot use rest.certificate {config.certificate!r}: {error}; give "
            "a PEM file with a private key without a password and its certificate chain"
        ) from None


def own_address(environment: Mapping[str, str]) -> str:
    """Return the address at which other machines reach this one.

    A pod's name is known to nobody else, so on Kubernetes it is the pod's address, which Spark puts
    into the driver's environment. In a container of YARN it is the node's name.
    """
    if "KUBERNETES_SERVICE_HOST" in environment:
        if pod := environment.get("SPARK_DRIVER_BIND_ADDRESS") or environment.get("POD_IP"):
            return pod
        with contextlib.suppress(OSError):
            return socket.gethostbyname(socket.gethostname())
    return environment.get("NM_HOST") or socket.gethostname()


def url_of(config: RestConfig, listener: socket.socket) -> str:
    """Return the address of a server for clients on other machines."""
    every = config.address in ("0.0.0.0", "::")  # addresses of this machine
    host = own_address(os.environ) if every else config.address
    place = f"[{host}]" if ":" in host else host
    return f"{config.scheme}://{place}:{listener.getsockname()[1]}"


def bound(config: RestConfig) -> Listener:
    """As `listen`, for the dashboard too; raises OSError."""
    family, kind, protocol, _, place = socket.getaddrinfo(
        config.address, config.port, type=socket.SOCK_STREAM
    )[0]
    listener = Listener(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def listen(config: RestConfig) -> socket.socket:
    """Return a socket listening where the config says. Raises PreflightError."""
    try:
        return bound(config)
    except OSError as error:
        raise PreflightError(
            f"the REST interface cannot listen on {config.address} port {config.port}: {error}; "
            "give another rest.port (0 takes a free one) or rest.address, or rest.enabled=false"
        ) from None
