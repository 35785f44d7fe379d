"""Connections: the URL, the session's settings, and the meaning of the server's error numbers.

The only module that knows PyMySQL. Every connection is in strict mode, in UTC, READ COMMITTED, and
has a deadline on every wait. PyMySQL's messages never hold the password; `Address` hides it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

from seamark.model.errors import ConfigurationError
from seamark.model.ignored import ignored
from seamark.model.packages import load_driver
from seamark.model.schema import quoted as quoted
from seamark.sinks.internal import servers
from seamark.sinks.internal.servers import split_url, url_options
from seamark.sinks.internal.sqlstates import LASTING, OF_A_ROW, class_of

CONNECT_TIMEOUT_S = 5
_SCHEMES = ("mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql")
_OPTIONS = {
    "unix_socket": str, "ssl_ca": str, "ssl_cert": str, "ssl_key": str,
    "ssl_verify_cert": bool, "ssl_verify_identity": bool,
}  # fmt: skip

# Set here, so the server refuses a row instead of altering it, whatever its default; and with
# backslash escapes, as written by `loading.py`. Without warnings `Loader` would see no alteration.
# The second part: a server's or an init_connect's others would cut our answers and deletes short,
# or begin a transaction where we end one.
SETTINGS = (
    "sql_mode='STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION', time_zone='+00:00', sql_notes=1, "
    "foreign_key_checks=1, unique_checks=1, "
    "sql_safe_updates=0, sql_select_limit=18446744073709551615, sql_big_selects=1, "
    "completion_type=0, wait_timeout=28800 "
    "/*!80000 , max_execution_time=0 */ "  # MySQL's; the others are MariaDB's
    "/*M!100300 , max_statement_time=0, idle_transaction_timeout=0, max_error_count=64 */ "
    "/*M!100300 , idle_write_transaction_timeout=0, idle_readonly_transaction_timeout=0 */"
)
_AFTER_OTHERS = {"wsrep_sync_wait": 15, "group_replication_consistency": "'BEFORE'"}

_DUPLICATE_KEY = 1062
NO_SUCH_TABLE = 1146
CUT = 1265
_LOCKED = frozenset({1205, 1213, 3572})
# The line is cut, or the server goes down, comes up, or is read-only for a moment (a failover).
_AWAY = frozenset({0, *range(2000, 2100), *range(1156, 1162), 1040, 1053, 1152, 1290, 1317, 1836,
                   1927, 3032, 3168})  # fmt: skip
# Beside the SQLSTATE, which is often a mere HY000, and which not all drivers tell.
_REFUSED_ROW = frozenset({1048, 1062, 1118, 1153, 1263, 1264, 1265, 1292, 1364, 1365, 1366, 1406,
                          1411, 1452, 1526, 1586, 1644, 1690, 3140, 3141, 3751, 3752, 3819, 3988,
                          4025, 4038, *range(3685, 3701)})  # fmt: skip
# An unknown column, wrong number of them, no right, no such trigger or function; a trigger's view
# is broken, it changes its own table, or its definer is gone.
_LASTING = frozenset({1054, 1136, 1142, 1143, 1305, 1356, 1360, 1370, 1442, 1449})
# Too many connections or statements of this user: 42000, as a wrong statement has.
_FULL = frozenset({1203, 1226})


@dataclass(frozen=True)
class Address(servers.Address):
    """The server's address, and the user to connect as."""

    database: str = ""


def parse_url(url: object, sink: str) -> Address:
    """Return the parts of ``mysql://user:password@host:port/database?ssl_ca=…``.

    Raises ConfigurationError, and never shows the URL in it: it may hold a password.
    """
    form = "give 'mysql://user:password@host:3306/database'"
    parts = split_url(url, sink, _SCHEMES, ", ".join(_SCHEMES), form)
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database or "\0" in database:
        raise ConfigurationError(f"{sink}: url names no database after the host; {form}")
    if not parts.username:
        raise ConfigurationError(f"{sink}: url names no user; {form}")
    options = url_options(parts.query, sink, _OPTIONS)
    # PyMySQL passes over the first of each without the second.
    for name, needed in (("ssl_verify_identity", "ssl_ca"), ("ssl_key", "ssl_cert")):
        if dict(options).get(name) and not dict(options).get(needed):
            raise ConfigurationError(f"{sink}: url has the option {name!r}; give {needed} too")
    return Address.of(parts, 3306, options=options, database=database)


driver = partial(load_driver, "pymysql", "MySQLSink needs PyMySQL", "mysql")


def connect(
    address: Address,
    *,
    timeout_s: float = 0.0,
    lock_timeout_s: int,
    local_infile: bool = False,
) -> Any:
    """Return a connection in autocommit mode.

    `timeout_s` limits one statement, by default the address's own; `lock_timeout_s` its wait for a
    lock. Raises PyMySQL's errors.
    """
    timeout_s = timeout_s or address.timeout_s
    module, options = driver(), dict(address.options)
    if "ssl_ca" in options:  # else PyMySQL takes any server for the one wanted
        options.setdefault("ssl_verify_cert", True)
    return module.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        database=address.database,
        charset="utf8mb4",
        autocommit=True,
        local_infile=local_infile,
        connect_timeout=min(CONNECT_TIMEOUT_S, address.timeout_s),
        read_timeout=timeout_s,
        write_timeout=timeout_s,
        init_command=(
            f"SET SESSION {SETTINGS}, autocommit=1, innodb_lock_wait_timeout={lock_timeout_s}, "
            f"lock_wait_timeout={lock_timeout_s}"
        ),
        **options,
    )


def read_committed(connection: Any) -> None:
    """Lock rows, never the gaps between them: one attempt must not hold up another's inserts."""
    execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def see_others(connection: Any) -> None:
    """In a cluster, let each statement wait for what other nodes have committed before it."""
    names = "', '".join(_AFTER_OTHERS)
    for name, value in rows(connection, f"SHOW VARIABLES WHERE Variable_name IN ('{names}')"):
        # AFTER, which also lets others see a commit at once, is kept.
        wanted = "'BEFORE_AND_AFTER'" if str(value).endswith("AFTER") else _AFTER_OTHERS[name]
        execute(connection, f"SET SESSION {name}={wanted}")


def execute(connection: Any, sql: str | bytes, values: Sequence[object] | None = None) -> int:
    """Run one statement; return the number of rows changed."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


def warnings(connection: Any, of: int = 0) -> str:
    """Return the first warnings of the last statement, which had some, of one number or of all."""
    found = rows(connection, "SHOW WARNINGS")
    if not found:  # a plain user of MySQL 9 may not set this
        return "the server warns and does not say of what: its max_error_count is 0"
    return "; ".join([str(said) for _, number, said in found if of in (0, number)][:3])


def rows(
    connection: Any, sql: str, values: Sequence[object] | None = None
) -> list[tuple[Any, ...]]:
    """Run one query; return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def prepared_xids(connection: Any) -> list[tuple[int, int, bytes]]:
    """Return the server's prepared XA transactions, whoever made them: format id, length of the
    gtrid, and the bytes of gtrid and bqual."""
    if "mariadb" in connection.get_server_info().lower():
        listed = rows(connection, "XA RECOVER")
        as_bytes = [d if isinstance(d, bytes) else d.encode("latin-1") for *_, d in listed]
    else:  # as hexadecimal: the bytes of other programs' xids need not be text
        listed = rows(connection, "XA RECOVER CONVERT XID")
        as_bytes = [bytes.fromhex(text.removeprefix("0x")) for *_, text in listed]
    return [(f, length, data) for (f, length, *_), data in zip(listed, as_bytes, strict=True)]


def close(connection: Any) -> None:
    """Close the connection in any state; the server rolls back everything not prepared."""
    if connection is not None:
        with ignored("the end of a connection to MySQL"):
            connection.close()


def number(error: BaseException) -> int:
    """Return the server's error number, or the client's (2000 to 2099)."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def is_away(error: BaseException) -> bool:
    """Whether the server may never have answered: nothing is known about the statement."""
    return isinstance(error, OSError) or number(error) in _AWAY


def is_over(error: BaseException) -> bool:
    """Whether the time for an answer was over."""
    return isinstance(error.__context__, TimeoutError)


def is_locked(error: BaseException) -> bool:
    """Whether another transaction holds a lock needed by the statement."""
    return number(error) in _LOCKED


def is_lasting(error: BaseException) -> bool:
    """Whether the statement will be refused again: for its rows, its table or the user's rights.
    Anything else may pass: no memory, a full disk, too many users, a failover."""
    if number(error) in _FULL:
        return False
    return class_of(error) in LASTING or number(error) in _LASTING or is_refused_row(error)


def is_duplicate(error: BaseException) -> bool:
    """Whether a row with the same key exists."""
    return number(error) == _DUPLICATE_KEY


def is_refused_row(error: BaseException) -> bool:
    """Whether the table refuses a row because of its values."""
    return class_of(error) in OF_A_ROW or number(error) in _REFUSED_ROW
