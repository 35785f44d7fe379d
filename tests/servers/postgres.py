"""PostgreSQL, as `seamark.dev` starts it."""

from __future__ import annotations

from collections.abc import Mapping

from seamark.dev import postgres
from tests.servers.memory import server_directory


class PostgresServer(postgres.PostgresServer):
    """`settings` are those of postgresql.conf."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(settings, root=server_directory("sm-postgres-"))
