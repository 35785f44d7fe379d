"""PostgreSQL, as `seamark.dev` starts it."""

from seamark.dev.postgres import PostgresServer

__all__ = ["PostgresServer"]
