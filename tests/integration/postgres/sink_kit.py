"""Common parts of the PostgreSQL tests: a schema, contexts, rows, and a reader's view."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.schema import Column, Schema
from seamark.sinks.postgres import PostgresSink
from seamark.verify.conformance import LineUnderTest, ServerUnderTest, SinkUnderTest
from tests.servers.postgres import PostgresServer

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
            connection.execute("SET lock_timeout = '10s'")  # a writer left open
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def sink_on(
    server: PostgresServer, schema: str, mode: str = "prepared", **how: Any
) -> PostgresSink:
    """Return a sink into the table ``orders`` of a schema."""
    if mode == "changes":  # upsert, with op
        mode, how = "upsert", {"op": "op", **how}
    keys = ["id"] if mode == "upsert" else []
    settings = {"url": server.url(), "keys": keys, **how}
    return PostgresSink(table=f"{schema}.orders", mode=mode, **settings)  # type: ignore[arg-type]


@contextlib.contextmanager
def sink_under_test(
    server: PostgresServer, mode: str, timeout: str = "20s"
) -> Iterator[SinkUnderTest]:
    """Make the conformance suite's needs, in a schema of its own."""
    staged = mode != "prepared"
    with fresh_schema(server) as schema:
        key = "PRIMARY KEY" if mode in ("upsert", "changes") else ""
        schema_of = (*SCHEMA, Column("op", "string")) if mode == "changes" else SCHEMA
        batch, refused = (
            numbers,
            pa.record_batch({"id": [1], "text": pa.array([None], pa.string())}),
        )
        if mode == "changes":
            batch, refused = inserts, refused.append_column("op", pa.array(["insert"]))
        server.execute(f"CREATE TABLE {schema}.orders (id bigint {key}, text text NOT NULL)")
        sink = sink_on(server, schema, mode, timeout=timeout)
        # As every job does at its start; some tests begin with a writer.
        committer = sink.create_committer(driver(schema=schema_of))
        committer.preflight()
        committer.close()
        yield SinkUnderTest(
            sink=sink,
            batch=batch,
            visible=lambda: visible(server, schema),
            writer_failpoint="stage-written" if staged else "transaction-prepared",
            commit_failpoints=("ledger-committed",)
            if staged
            else tuple(f"prepared-committed:{nth}" for nth in (1, 2, 3)),
            # Neither has a time-out: this is an administrator at work.
            drop=lambda dropped: server.execute(
                f"DROP TABLE {schema}.{dropped.stage}"
                if staged
                else f"ROLLBACK PREPARED '{dropped.handle}'"
            ),
            refused=lambda: refused,
            server=ServerUnderTest(kill=server.kill, restart=server.start),
            line=LineUnderTest(
                "127.0.0.1",
                server.port,
                lambda port: dataclasses.replace(sink, url=server.url(port=port)),
            ),
        )


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


def inserts(values: Sequence[int]) -> pa.RecordBatch:
    """Like `numbers`, as changes."""
    return numbers(values).append_column("op", pa.array(["insert"] * len(values), pa.string()))


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
    """Return the numbers visible to a reader."""
    return [row[0] for row in server.execute(f"SELECT id FROM {schema}.orders ORDER BY id")]
