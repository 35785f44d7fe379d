"""Runs the dashboard: a server of its own, until the user ends it.

On the loopback address it is for everybody on this machine, elsewhere for those who log in
(`login.py`).
"""

import contextlib
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seamark.api.rest_config import LOOPBACK, RestConfig
from seamark.dashboard.jobs import Jobs
from seamark.dashboard.login import Login, by_header
from seamark.dashboard.programs import Programs
from seamark.dashboard.routes import make_app
from seamark.jobs.token import token_in
from seamark.model.errors import ConfigurationError, PreflightError, UserError
from seamark.rest.connections import Connections, guarded_server
from seamark.rest.server import bound, check_certificate, url_of

CONNECTIONS = 512


@dataclass(frozen=True)
class Served:
    """Where the dashboard listens, and who may log in.

    port: 0 takes a free one.
    certificate: a PEM file with private key and certificate chain: HTTPS alone. None is plain HTTP.
    token_file: holds the dashboard's token; None makes a token, told by its address alone.
    header, proxies: as of `Login`, not yet checked.
    """

    address: str = LOOPBACK
    port: int = 8084
    certificate: Path | None = None
    token_file: Path | None = None
    header: str = ""
    proxies: Sequence[str] = ()

    def checked(self) -> tuple[RestConfig, Login]:
        """Return the address and certificate, checked as a driver's, and who may log in. Raises
        UserError."""
        try:
            pem = str(self.certificate) if self.certificate else None
            config = RestConfig(address=self.address, port=self.port, certificate=pem)
            check_certificate(config)
        except (ConfigurationError, PreflightError) as error:
            said = str(error).replace("rest.certificate", "--certificate")
            raise UserError(
                said.replace("RestConfig: address", "--address").replace(
                    "REST interface", "dashboard"
                )
            ) from None
        header, proxies = by_header(self.header, self.proxies)
        if self.token_file is None:
            token = secrets.token_urlsafe(32)
        else:
            token = token_in(self.token_file, f"--token-file {self.token_file}")
        return config, Login(token, config.is_loopback and not header, header, proxies)


def run_dashboard(
    storage: str, served: Served, programs: Programs, announce: Callable[[str], None]
) -> None:
    """Serve the jobs of `storage`, and return after SIGINT or SIGTERM. Called from the main thread.
    Browsers may start `programs`, and no others.

    Once the server listens, `announce` is called with its address. After the # of the address
    stands the token to change jobs, told nowhere else, unless the user has given the token or a
    proxy logs users in. Raises UserError if the address cannot be had, the storage cannot be read,
    or the login is not well given.
    """
    config, login = served.checked()
    listener = _listen(config)
    jobs = Jobs(storage)
    try:
        jobs.find_all()  # before the first browser asks: for some storages Spark is started
    except OSError as error:
        raise UserError(
            f"{storage} cannot be read ({error}); give another with --storage"
        ) from None
    connections = Connections(CONNECTIONS)
    server = guarded_server(
        make_app(jobs, programs, login, connections),
        connections,
        keep_alive_s=30,
        timeout_graceful_shutdown=2,
        ssl_certfile=config.certificate,
    )
    # uvicorn ends at a signal, and then sends it again.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    token = "" if served.token_file or login.header else f"#token={login.token}"
    announce(f"{url_of(config, listener)}/{token}")
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def _listen(config: RestConfig) -> socket.socket:
    try:
        return bound(config)
    except OSError as error:
        raise UserError(
            f"port {config.port} of {config.address} cannot be had ({error.strerror}); give "
            "another --address, or another --port; --port 0 takes any that is free"
        ) from None
