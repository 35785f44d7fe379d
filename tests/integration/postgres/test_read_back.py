"""A table is read back as it was written, each row with the transaction that inserted it.

How: a real server; rows of every type that can be compared, in both modes, beside rows of others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from seamark.checkpoint.row_hash import row_hashes, sums
from seamark.contracts.read_back import ReadBack
from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import UserError
from seamark.model.schema import Column
from tests.integration.postgres import sink_kit as kit
from tests.integration.postgres.test_sink_types import COLUMNS
from tests.servers.postgres import PostgresServer

NOT_COMPARED = ("ints", "texts", "sums", "days", "json", "map", "deep")


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    with kit.fresh_schema(postgres) as name:
        yield name


def asked(batch: pa.RecordBatch, committables: list[Any], **how: Any) -> ReadBack:
    return ReadBack(kit.driver(), batch.schema, committables, **how)


@pytest.mark.parametrize("mode", ["prepared", "staged"])
def test_each_row_has_its_transaction(postgres: PostgresServer, schema: str, mode: str) -> None:
    columns = {name: c for name, c in COLUMNS.items() if name not in NOT_COMPARED}
    shape = (Column("id", "int"), *(Column(n, c[0]) for n, c in columns.items()))
    sink = kit.sink_on(postgres, schema, mode, create_table=True)
    committer = sink.create_committer(kit.driver(schema=shape))
    committer.preflight()
    committables: list[Any] = []
    values = {name: pa.array(c[2], c[1]) for name, c in columns.items()}
    for epoch in range(2):
        ids = pa.array([3 * epoch, 3 * epoch + 1, None], pa.int32())
        batch = pa.record_batch({"id": ids, **values})
        committables += kit.write(sink, kit.attempt(epoch=epoch), batch)
        assert list(committer.commit(committables[-1:])) == [CommitOutcome.COMMITTED]
    committer.close()
    postgres.execute(f"INSERT INTO {schema}.orders (id) VALUES (-1)")
    postgres.execute(f"UPDATE {schema}.orders SET text = text WHERE id = 0")

    found = {rows.writers: rows.rows for rows in sink.read_back(asked(batch, committables))}
    assert sums(row_hashes(found[(1,)])) == sums(row_hashes(batch))
    assert len(found[(0,)]) == 2, "an update makes a row another transaction's"
    strange = [r.rows for r in sink.read_back(asked(batch, committables)) if r.writers == ()]
    assert sorted(row["id"] for rows in strange for row in rows.to_pylist()) == [-1, 0]

    by_epoch = list(sink.read_back(asked(batch, committables, epoch_column="id")))
    assert {rows.epoch for rows in by_epoch} == {-1, 0, 1, 3, 4}
    whole = list(sink.read_back(asked(batch, committables, by_transaction=False)))
    assert {rows.writers for rows in whole} == {None}


@pytest.mark.parametrize("name", NOT_COMPARED)
def test_a_column_that_cannot_be_compared_is_named(
    postgres: PostgresServer, schema: str, name: str
) -> None:
    spark, kind, _, _ = COLUMNS[name]
    sink = kit.sink_on(postgres, schema, create_table=True)
    committer = sink.create_committer(kit.driver(schema=(Column(name, spark),)))
    committer.preflight()
    committer.close()
    with pytest.raises(UserError, match=f"column '{name}' has type .* cannot be compared"):
        list(sink.read_back(asked(pa.record_batch({name: pa.array([], kind)}), [])))


def test_an_upserted_table_is_read_without_writers(postgres: PostgresServer, schema: str) -> None:
    sink = kit.sink_on(postgres, schema, "upsert", create_table=True)
    committer = sink.create_committer(kit.driver(schema=(Column("id", "bigint"),)))
    committer.preflight()
    batch = pa.record_batch({"id": [1, 2]})
    committer.commit(kit.write(sink, kit.attempt(), batch))
    committer.close()
    (found,) = sink.read_back(asked(batch, [], by_transaction=False))
    assert (found.writers, found.epoch, found.rows.to_pydict()) == (None, None, {"id": [1, 2]})


def test_large_rows_are_read_back(postgres: PostgresServer, schema: str) -> None:
    sink = kit.sink_on(postgres, schema, create_table=True)
    shape = Column("id", "int"), Column("text", "string"), Column("raw", "binary")
    committer = sink.create_committer(kit.driver(schema=shape))
    committer.preflight()
    texts = [None, "long,\n" * 1_500_000, "", "x"]
    raw = [b"", bytes(5_000_000), None, b"x"]
    batch = pa.record_batch({"id": pa.array(range(4), pa.int32()), "text": texts, "raw": raw})
    committables = kit.write(sink, kit.attempt(), batch)
    committer.commit(committables)
    committer.close()
    found = list(sink.read_back(asked(batch, committables)))
    assert {rows.writers for rows in found} == {(0,)}
    assert pa.Table.from_batches([rows.rows for rows in found]) == pa.Table.from_batches([batch])


def test_a_role_with_short_numbers_and_little_time(postgres: PostgresServer, schema: str) -> None:
    """A rounded number would be told as a row lost and another's; a large table takes its time."""
    sink = kit.sink_on(postgres, schema, create_table=True)
    committer = sink.create_committer(kit.driver(schema=(Column("x", "double"),)))
    committer.preflight()
    batch = pa.record_batch({"x": [0.1 + 0.2] * 1_000_000})
    committer.commit(kit.write(sink, kit.attempt(), batch))
    committer.close()
    try:
        postgres.execute("ALTER ROLE postgres SET extra_float_digits = 0")
        postgres.execute("ALTER ROLE postgres SET statement_timeout = 1000")
        reader = sink.read_back(asked(batch, [], by_transaction=False))
        found = [next(reader)]
        time.sleep(2)  # the server cannot send all the others meanwhile
        found += reader
    finally:
        with postgres.connect(options="-c statement_timeout=0") as connection:
            connection.execute("ALTER ROLE postgres RESET ALL")
    assert pa.Table.from_batches([rows.rows for rows in found]) == pa.Table.from_batches([batch])
