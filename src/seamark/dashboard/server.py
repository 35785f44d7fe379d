"""Runs the dashboard: a server of its own on the loopback address, until the user ends it."""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
from collections.abc import Callable
from types import FrameType

from seamark.api.rest_config import LOOPBACK
from seamark.dashboard.jobs import Jobs
from seamark.dashboard.routes import make_app
from seamark.model.errors import UserError
from seamark.rest.connections import Connections, Listener, guarded_server

CONNECTIONS = 512


def run_dashboard(storage: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve the jobs of `storage`, and return after SIGINT or SIGTERM. Called from the main thread.

    `port` 0 takes a free one. Once the server listens, `announce` is called with its address. After
    the # of the address stands the token to change jobs, told nowhere else. Raises UserError if the
    port is taken, or the storage cannot be read.
    """
    listener = Listener()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise UserError(
            f"port {port} of {LOOPBACK} cannot be had ({error.strerror}); give another one with "
            "--port, or --port 0 for any that is free"
        ) from None
    listener.listen()
    jobs = Jobs(storage)
    try:
        jobs.find_all()  # before the first browser asks: for some storages Spark is started
    except OSError as error:
        raise UserError(
            f"{storage} cannot be read ({error}); give another with --storage"
        ) from None
    token = secrets.token_urlsafe(32)
    connections = Connections(CONNECTIONS)
    server = guarded_server(
        make_app(jobs, token, connections),
        connections,
        keep_alive_s=30,
        timeout_graceful_shutdown=2,
    )
    # uvicorn ends at a signal, and then sends it again.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    announce(f"http://{LOOPBACK}:{listener.getsockname()[1]}/#token={token}")
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
