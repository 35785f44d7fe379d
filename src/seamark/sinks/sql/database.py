"""The database: its URL, connections with a deadline on every call, the meaning of errors.

No call hangs. SQLAlchemy knows no time-out that all drivers keep, so a session's calls run in a
thread of its own, which is left behind at the deadline together with its connection. What it does
later is harmless: the ledger's primary key lets one outcome stand, and rows that come into a stage
late are found by the next listing.
"""

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa

from seamark.files.deadline import CallHangsError, CallThread, Deadline
from seamark.model.errors import ConfigurationError, MissingDependencyError
from seamark.model.ignored import ignored
from seamark.model.redaction import redact, secrets_in
from seamark.sinks.internal.servers import one_line
from seamark.sinks.internal.sqlstates import class_of
from seamark.sinks.mysql import connection as mysql

T = TypeVar("T")
IN_A_FILE = ("sqlite", "duckdb")
"""Dialects whose URL names a file."""
LOCK_TIMEOUT_S = 10
IDLE_S = 30.0
"""The age of an unused connection at which its server, or a proxy, may have cut it."""
_FORM = "give 'dialect+driver://user:password@host:port/database'"
_EACH_CONNECTION = {
    "mysql": (
        f"SET SESSION {mysql.SETTINGS}, innodb_lock_wait_timeout={LOCK_TIMEOUT_S}, "
        f"lock_wait_timeout={LOCK_TIMEOUT_S}",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    ),
    "sqlite": ("PRAGMA synchronous=FULL",),
    "duckdb": ("SET TimeZone = 'UTC'",),
}
_BEGIN = {
    # For the transaction alone: a pooler may give the session to others behind it.
    "postgresql": (
        f"SELECT set_config('lock_timeout', '{LOCK_TIMEOUT_S}s', true), "
        "set_config('statement_timeout', '0', true), "
        "set_config('idle_in_transaction_session_timeout', '0', true), "
        "set_config('quote_all_identifiers', 'off', true), "  # SQLAlchemy would know no type
        "CASE WHEN current_setting('server_version_num')::int >= 170000 "
        "THEN set_config('transaction_timeout', '0', true) END, "
        # A role or server may have turned it off; a commit would then return before it is durable.
        "CASE current_setting('synchronous_commit') "
        "WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
    ),
    # Immediate: a transaction that reads the ledger and writes it later is never refused.
    "sqlite": "BEGIN IMMEDIATE",
}


class Database:
    """A database's address, and the engine for it. Shows no secret. `timeout_s`: the longest wait
    for an answer. `sink` is the sink's name in errors."""

    def __init__(self, url: str, timeout_s: float, sink: str) -> None:
        try:
            self.url = sa.make_url(url)
            if "@" in (self.url.host or ""):
                raise ValueError("the end of a password")
        except (sa.exc.ArgumentError, ValueError):  # its text may show a password
            raise ConfigurationError(
                f"{sink}: url cannot be taken apart; {_FORM}, with characters such as '@', '/' and "
                "':' in the password written as %40, %2F and %3A"
            ) from None
        try:
            self._dialect = self.url.get_dialect()
        except sa.exc.NoSuchModuleError:
            raise ConfigurationError(
                f"{sink}: url has the dialect {self.url.drivername[:40]!r}, which SQLAlchemy does "
                "not know here; install the package of this dialect, or correct the url"
            ) from None
        self.timeout_s = timeout_s
        name = self._dialect.name.partition(".")[0]  # Firebird's has two
        self.dialect: str = "mysql" if name == "mariadb" else name
        self.file: Path | None = None
        if self.dialect in IN_A_FILE:
            self.file = Path(self.url.database or ":memory:")
            if not self.file.is_absolute():
                raise ConfigurationError(
                    f"{sink}: url names the file {str(self.file)!r}; give an absolute path, as in "
                    f"'{self.dialect}:////var/lib/orders.db', which driver and executors share"
                )
        given = [self.url.password, *secrets_in(dict(self.url.query))]
        secrets = [s for s in given if isinstance(s, str) and s]
        self._secrets = sorted({one for raw in secrets for one in (raw, quote(raw, safe=""))})

    @property
    def staging_root(self) -> Path:
        """The directory of DuckDB's undecided rows: beside the database."""
        return Path(f"{self.file}.seamark")

    @property
    def shown(self) -> str:
        """The URL without secrets, and without options, which may have some."""
        return redact(self.url.set(query={}).render_as_string(hide_password=True))

    @property
    def place(self) -> str:
        """The database and its server, for people; without user and options."""
        host = f" at {self.url.host}" if self.url.host else ""
        return f"{self.url.database or self.dialect}{host}"

    def said(self, error: BaseException) -> str:
        """Return the driver's own text of an error as one line, without secrets."""
        return one_line(getattr(error, "orig", None) or error, self._secrets)

    @cached_property
    def engine(self) -> Any:
        """The engine. It keeps no connection. Raises MissingDependencyError without its driver."""
        try:
            engine = sa.create_engine(
                self.url, poolclass=sa.pool.NullPool, pool_reset_on_return=None,
                hide_parameters=True, connect_args=self._connect_arguments(),
            )  # fmt: skip
        except ImportError as error:
            raise MissingDependencyError(
                f"{self.shown}: the driver of this dialect is not installed ({error})"
            ) from None
        sa.event.listen(engine, "connect", self._connected)
        if begin := _BEGIN.get(self.dialect):
            sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine

    def prepare(self) -> None:
        """At a job's start: let readers of SQLite and its writer not wait for each other."""
        if self.dialect == "sqlite":
            with self._named_errors(), contextlib.closing(self.engine.raw_connection()) as raw:
                raw.cursor().execute("PRAGMA journal_mode=WAL")

    def connect(self) -> Any:
        """Return a new connection; raises SQLAlchemy's errors."""
        with self._named_errors():
            return self.engine.connect()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """SQLAlchemy lets the driver's errors through where no statement of its own meets them."""
        errors = self.engine.dialect.loaded_dbapi.Error
        try:
            yield
        except errors as error:
            raise sa.exc.OperationalError("", None, error) from error

    def _connect_arguments(self) -> dict[str, Any]:
        limit = math.ceil(min(5, self.timeout_s))
        most = 6 * self.timeout_s
        known: dict[str, dict[str, Any]] = {
            "pysqlite": {"timeout": self.timeout_s / 2, "check_same_thread": False},
            "psycopg": {"connect_timeout": limit, "client_encoding": "UTF8"},
            "psycopg2": {"connect_timeout": limit, "client_encoding": "UTF8"},
            "pymysql": {"connect_timeout": limit, "read_timeout": most, "write_timeout": most},
        }
        return known.get(self._dialect.driver, {})

    def _connected(self, connection: Any, _: Any) -> None:
        if self.dialect == "sqlite":
            connection.isolation_level = None  # no BEGIN of Python's own beside ours
        with contextlib.closing(connection.cursor()) as cursor:
            for statement in _EACH_CONNECTION.get(self.dialect, ()):
                cursor.execute(statement)
        if self.dialect == "mysql":
            mysql.see_others(connection)  # else the stage of a task at another node would be lost


database_at = lru_cache(maxsize=64)(Database)
"""The same `Database` for the same arguments: an engine asks its server a few things first, and a
worker has a writer for each task and epoch."""


class _Line:
    """One connection, made when it is first needed, and the thread that uses it. A thread left
    behind goes on with its own line, and never with its successor's."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.thread = CallThread("seamark-sql")
        self.connection: Any = None
        self.used = time.monotonic()

    def transaction(self, work: Callable[[Any], T], file: Path | None) -> T:
        """Do the work in one transaction. `file` must exist."""
        if file is not None:
            file.stat()
        if self.connection is None:
            self.connection = self._database.connect()
        with self.connection.begin():
            return work(self.connection)

    def close(self) -> None:
        """Close the connection in any state; the database rolls back what is not committed."""
        if self.connection is not None:
            with ignored("the end of a connection"), contextlib.suppress(CallHangsError):
                self.thread.call(self.connection.close, Deadline(2.0).left_s)
        self.thread.close()

    def cut(self) -> None:
        """End a call that hangs, if the driver shows its socket."""
        self.thread.close()
        if self.connection is not None:
            with ignored("the cut of a hanging connection"):
                raw = self.connection.connection.driver_connection
                descriptor = getattr(raw, "_sock", raw).fileno()  # PyMySQL keeps it there
                with socket.socket(fileno=os.dup(descriptor)) as line:
                    line.shutdown(socket.SHUT_RDWR)


class Session:
    """Work on a database: a transaction and a deadline for each piece of it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._line: _Line | None = None
        self.renewed = False
        """Whether a connection was given up because it was idle."""

    def run(self, work: Callable[[Any], T], *, limit_s: float = 0.0, create: bool = False) -> T:
        """Return the result of `work`, done in one transaction, which is then committed; or raise
        its error, and nothing of it is done.

        Raises TimeoutError after `limit_s` (by default the database's time-out); then it may still
        be done. `create`: the file of a database in one may be made; else FileNotFoundError, as the
        driver would make another where a disk is not mounted.
        """
        limit_s = limit_s or self._database.timeout_s
        if self._line is not None and time.monotonic() - self._line.used > IDLE_S:
            self.close()
            self.renewed = True
        self._line = line = self._line or _Line(self._database)
        once = partial(line.transaction, work, None if create else self._database.file)
        try:
            done = line.thread.call(once, Deadline(limit_s).left_s)
        except CallHangsError:
            self._line = None
            line.cut()
            raise TimeoutError(
                f"{self._database.shown}: not done within {limit_s:g} s; if the database is only "
                "slow, raise timeout="
            ) from None
        except BaseException as error:
            if not is_lasting(error):  # half an answer may be left in the connection
                self.close()
            raise
        line.used = time.monotonic()
        if self._database.dialect == "duckdb":  # no other process can read while it is open
            self.close()
        return done

    def close(self) -> None:
        """End the connection, if there is one."""
        line, self._line = self._line, None
        if line is not None:
            line.close()


def refuses_row(error: BaseException) -> bool:
    """Whether an error refuses a row for its values: by the driver, or before it was asked."""
    orig = getattr(error, "orig", None)
    if orig and mysql.is_refused_row(orig):  # it judges by SQLSTATE, and by MySQL's numbers
        return True
    if class_of(orig):
        return False
    if isinstance(error, (ValueError, ArithmeticError)):
        return True  # the driver cannot send the value
    if isinstance(error, sa.exc.StatementError) and not isinstance(error, sa.exc.DBAPIError):
        return True  # nor can SQLAlchemy
    return isinstance(error, (sa.exc.IntegrityError, sa.exc.DataError))


def is_lasting(error: BaseException) -> bool:
    """Whether a statement will be refused again: for its rows, its table or the user's rights.
    Anything else may pass."""
    orig = getattr(error, "orig", None)
    if orig and mysql.is_lasting(orig):
        return True
    if class_of(orig):
        return False
    return refuses_row(error) or isinstance(error, (sa.exc.ProgrammingError, sa.exc.CompileError))


def failures() -> tuple[type[Exception], ...]:
    """Return the kinds of error of a call on a database."""
    # TimeoutError is an OSError; drivers raise others at values that they cannot send.
    return (sa.exc.SQLAlchemyError, OSError, ValueError, ArithmeticError)
