"""Runs the REST interface in a thread of the driver, on a free port of the loopback address."""

from __future__ import annotations

import logging
import socket
import threading

import uvicorn

from tidemark.rest.actions import Actions
from tidemark.rest.routes import make_app
from tidemark.rest.views import JobView

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
STOP_S = 5.0


class RestServer:
    """Serves one job from `start` to `stop`; ends with the program in any case."""

    def __init__(self, job: JobView) -> None:
        self._actions = Actions(job)
        self._socket = socket.socket()
        self._server = uvicorn.Server(
            uvicorn.Config(
                make_app(job, self._actions),
                log_level="warning",
                access_log=False,
                lifespan="off",
                ws="none",
                timeout_keep_alive=5,
                limit_concurrency=64,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="tidemark-rest",
            daemon=True,
        )

    def start(self) -> str:
        """Listen, and return the address: ``http://127.0.0.1:<port>``."""
        self._socket.bind((LOOPBACK, 0))
        self._socket.listen(128)
        self._thread.start()
        return f"http://{LOOPBACK}:{self._socket.getsockname()[1]}"

    def allow_changes(self, job_id: str) -> None:
        """Called when the job's id is known: make its token, so that it can be changed."""
        self._actions.open(job_id)

    def stop(self) -> None:
        """Called when the job has ended. Stop listening; requests under way have a few seconds to
        be answered, and so have those who have told the job to end and ask whether it has."""
        self._actions.close()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        self._socket.close()
