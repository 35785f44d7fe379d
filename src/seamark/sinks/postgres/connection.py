"""Connections: the driver, deadlines on every call, secrets kept out of texts, errors sorted.

No call can hang. Connecting has a time-out, waiting for a lock has one at the server, and for
everything else a timer cuts the socket (`within`): a stopped or unreachable server enforces no
time-out of its own.
"""

import contextlib
import math
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from seamark.model.errors import ConfigurationError
from seamark.model.packages import load_driver
from seamark.sinks.internal.servers import one_line
from seamark.sinks.internal.sqlstates import LASTING, OF_A_ROW, class_of

CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_S = 10
_SETTINGS: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "seamark",
    # Rows are sent as UTF-8; a role's or a URL's other encoding would make other letters of them.
    "client_encoding": "UTF8",
}
# As libpq takes it apart: a password may hold a ? and a #, which elsewhere begin other parts.
_URL = re.compile(r"(postgres(?:ql)?)://(?:([^@/]*)@)?([^/?]*)(/[^?]*)?(?:\?(.*))?", re.S)
_HOST = r"(?:\[[^\]]*\]|[^:,@\[\]]*)(?::\d*)?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")
_SECRET_OPTION = re.compile(r"(?i)(password=)[^&]*")

BEGIN = (
    "BEGIN; SET LOCAL transaction_isolation = 'read committed'; "
    f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'; SET LOCAL statement_timeout = 0; "
    "SET LOCAL idle_in_transaction_session_timeout = 0; "
    "SELECT set_config('transaction_timeout', '0', true) "
    "WHERE current_setting('server_version_num')::int >= 170000; "
    # A role or server may have turned it off; a commit would then return before it is durable.
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)
"""Begin a transaction; no setting of the role or the server may end it early."""


driver = partial(load_driver, "psycopg", "PostgresSink needs the PostgreSQL driver", "postgres")


class Server:
    """The server's address and the credentials; picklable. Shows no secret. `timeout_s`: the
    longest wait for an answer."""

    def __init__(self, url: str, timeout_s: float = 20.0) -> None:
        self.url = url
        self.timeout_s = timeout_s
        parts = _URL.fullmatch(url)
        scheme, user, server, path, query = parts.groups("") if parts else [""] * 5
        # What is left of a password that ends at its own '@' or '/', or no number for a port.
        cut = "@" in (server if user else path) or not _HOSTS.fullmatch(server)
        if not scheme or cut or "\0" in unquote(url):
            # Never show the text: it may hold a password.
            raise ConfigurationError(
                "PostgresSink: url is not a PostgreSQL URL; give "
                "'postgresql://user:password@host:5432/database', with '@' and '/' in the password "
                "written as %40 and %2F"
            )
        database, secret = unquote(path[1:]), user.partition(":")[2]
        options = dict(parse_qsl(query.replace("+", "%2B")))  # libpq leaves a + as it is
        secrets = [
            secret,
            unquote(secret),
            *(v for k, v in options.items() if "password" in k.lower()),
        ]
        self._secrets = sorted({s for raw in secrets if raw for s in (raw, quote(raw, safe=""))})
        name = unquote(user.partition(":")[0])
        host = server or options.get("host") or "localhost"
        self.place = f"{database or options.get('dbname') or name} at {host}"
        shown = f"{user.partition(':')[0]}{':***' if secret else ''}@" if user else ""
        query = _SECRET_OPTION.sub(r"\1***", query)
        self.shown = f"{scheme}://{shown}{server}{path}" + (f"?{query}" if query else "")

    def connect(self) -> Any:
        """Return a connection in autocommit mode; raises the driver's Error."""
        limit = {"connect_timeout": math.ceil(min(CONNECT_TIMEOUT_S, self.timeout_s))}
        return driver().connect(
            self.url, autocommit=True, prepare_threshold=None, **_SETTINGS, **limit
        )

    def said(self, error: BaseException) -> str:
        """Return an error's text as one line, without secrets."""
        text = one_line(error, self._secrets)
        state = getattr(error, "sqlstate", None)
        return f"{text} (SQLSTATE {state})" if state else text


@contextlib.contextmanager
def within(connection: Any, seconds: float) -> Iterator[None]:
    """Cut the connection if the block has not ended after `seconds`; then raises the driver's
    OperationalError."""
    until = time.monotonic() + seconds
    watch = socket.socket(fileno=os.dup(connection.fileno()))
    timer = threading.Timer(seconds, _cut, (watch,))
    timer.daemon = True
    timer.start()
    try:
        yield
    except driver().Error as error:
        if time.monotonic() < until:
            raise
        raise driver().OperationalError(
            f"not done within {seconds:g} s; if the server is only slow, raise timeout="
        ) from error
    finally:
        timer.cancel()
        watch.close()


def _cut(watch: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the connection has just ended
        watch.shutdown(socket.SHUT_RDWR)


def may_pass(error: BaseException) -> bool:
    """Whether an error of the driver may be gone at the next try: the server is away, restarting,
    read-only or out of some resource, refuses the login, or another transaction holds a lock."""
    if state := class_of(error):
        return state not in LASTING
    return not isinstance(error, (driver().ProgrammingError, driver().DataError))


def blames_a_row(error: BaseException) -> bool:
    """Whether an error of the driver refuses a row."""
    return class_of(error) in OF_A_ROW
