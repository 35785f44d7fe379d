"""PostgreSQL, as `seamark.dev` starts it."""

from __future__ import annotations

from collections.abc import Mapping

from seamark.dev import postgres
from tests.servers.memory import server_directory


class PostgresServer(postgres.PostgresServer):
    """`settings` are those of postgresql.conf."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings, root=server_directory("sm-postgres-"))


class Standby(PostgresServer):
    """A streaming standby of `primary`, as it is when this starts."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__()
        self._primary = primary

    def _first_start(self) -> None:
        self._run("pg_basebackup", "-D", self._data, "-d", self._primary.url(), "-c", "fast", "-R")
        self.start()

    def promote(self) -> None:
        """Fail over to it; it has what the primary had sent."""
        self.execute("SELECT pg_promote()")
