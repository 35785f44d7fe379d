"""What the PostgreSQL tests share: a schema, contexts, rows, and what a reader sees."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tests.servers.postgres import PostgresServer
from tidemark.contracts.sink import SinkContext, WriterContext
from tidemark.model.schema import Column, Schema
from tidemark.sinks.postgres import PostgresSink

JOB, UID = "c0ffee00c0ffee00", "orders-out"
SCHEMA: Schema = (Column("id", "bigint"), Column("text", "string"))
MODES = ("prepared", "staged", "upsert")
_numbers = itertools.count(1)


@contextlib.contextmanager
def fresh_schema(server: PostgresServer) -> Iterator[str]:
    """Make an empty schema; in the end it and every prepared transaction are gone."""
    schema = f"t{next(_numbers)}"
    server.execute(f"CREATE SCHEMA {schema}")
    try:
        yield schema
    finally:
        with server.connect() as connection:
            for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
                connection.execute(f"ROLLBACK PREPARED '{gid}'")
            connection.execute("SET lock_timeout = '10s'")  # a writer that was left open
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def sink_on(
    server: PostgresServer, schema: str, mode: str = "prepared", **how: Any
) -> PostgresSink:
    """Return a sink into the table ``orders`` of a schema."""
    keys = ["id"] if mode == "upsert" else []
    settings = {"url": server.url(), "keys": keys, **how}
    return PostgresSink(table=f"{schema}.orders", mode=mode, **settings)  # type: ignore[arg-type]


def driver(generation: int = 1, schema: Schema = SCHEMA) -> SinkContext:
    return SinkContext(JOB, "orders", UID, generation, 5.0, schema)


def attempt(
    epoch: int = 0, partition: int = 0, *, generation: int = 1, number: int = 0
) -> WriterContext:
    return WriterContext(JOB, UID, generation, epoch, partition, number, epoch - 1)


def numbers(values: Sequence[int], text: str = "row") -> pa.RecordBatch:
    """One row for each number."""
    return pa.record_batch(
        {
            "id": pa.array(values, pa.int64()),
            "text": pa.array([f"{text} {v}" for v in values], pa.string()),
        }
    )


def write(sink: PostgresSink, context: WriterContext, *batches: pa.RecordBatch) -> list[Any]:
    """Write and flush; return the committables. Gives up after an error, as a task does."""
    writer = sink.create_writer(context)
    try:
        for batch in batches:
            writer.write(batch)
        return list(writer.prepare_commit())
    except BaseException:
        writer.abort()
        raise


def visible(server: PostgresServer, schema: str) -> list[int]:
    """Return the numbers that a reader sees."""
    return [row[0] for row in server.execute(f"SELECT id FROM {schema}.orders ORDER BY id")]
