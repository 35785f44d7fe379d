"""Runs the REST interface in a thread of the driver: where `RestConfig` says, or not at all."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading

from seamark.api.rest_config import RestConfig
from seamark.checkpoint.executions import Sign, unsigned
from seamark.model.errors import PreflightError
from seamark.rest.actions import Actions
from seamark.rest.connections import Connections, Listener, guarded_server
from seamark.rest.live_job import LiveJob
from seamark.rest.protection import Protection
from seamark.rest.routes import make_app

log = logging.getLogger(__name__)

STOP_S = 5.0
CONNECTIONS = 256


class RestServer:
    """Serves one job from `start` to `stop`; ends with the program in any case. Does nothing if the
    config has disabled it."""

    def __init__(self, job: LiveJob, config: RestConfig) -> None:
        self._config = config
        self._actions = Actions(job)
        connections = Connections(CONNECTIONS)
        app = make_app(job, self._actions)
        guarded = Protection(app, config, connections, self._actions.allows)
        self._server = guarded_server(guarded, connections, keep_alive_s=5)
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Listen, and return the URL for clients; "" if there is no server. Raises PreflightError
        if the address or the port cannot be had."""
        if not self._config.enabled:
            return ""
        listener = listen(self._config)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [listener]},
            name="seamark-rest",
            daemon=True,
        )
        self._thread.start()
        return f"http://{self._host()}:{listener.getsockname()[1]}"

    def _host(self) -> str:
        address = self._config.address
        if address in ("0.0.0.0", "::"):  # every address of this machine: clients take its name
            return socket.gethostname()
        try:
            return f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
        except ValueError:
            return address

    def allow_changes(self, job_id: str) -> Sign:
        """Called when the job's id is known: make the job's token, so its holders can change the
        job. Return the token's signer."""
        return self._actions.open(job_id) if self._config.enabled else unsigned

    def stop(self) -> None:
        """Called when the job has ended. Clients polling for its end have a few seconds to learn of
        it. Then the server stops listening, and requests under way are answered within STOP_S."""
        self._actions.close()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_S)


def listen(config: RestConfig) -> socket.socket:
    """Return a socket listening where the config says. Raises PreflightError if it cannot listen
    there."""
    try:
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
    except OSError as error:
        raise PreflightError(
            f"the REST interface cannot listen on {config.address} port {config.port}: {error}; "
            "give another rest.port (0 takes a free one) or rest.address, or rest.enabled=false"
        ) from None
    return listener
