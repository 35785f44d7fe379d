"""A table is read back as it was written, or the reason is said why it cannot be.

How: the rows of every type of `test_sink_rows.py`, on a real server.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from seamark.checkpoint.row_hash import row_hashes, sums
from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.model.errors import OperationFailedError, UserError
from seamark.model.schema import Column
from seamark.sinks.mysql import MySQLSink
from tests.integration.mysql.sink_kit import context
from tests.integration.mysql.test_sink_rows import ARROW, ROWS, SCHEMA, commit
from tests.servers.mariadb import MariaDBServer


def read(sink: MySQLSink, schema: pa.Schema, **how: Any) -> list[FoundRows]:
    return list(sink.read_back(ReadBack(context(), schema, [], **how)))


def every_type() -> pa.RecordBatch:
    columns = zip(zip(*ROWS, strict=True), ARROW.types, strict=True)
    return pa.record_batch([pa.array(column, kind) for column, kind in columns], schema=ARROW)


def test_every_type_has_the_hash_of_the_ledger(mariadb: MariaDBServer, database: str) -> None:
    sink = MySQLSink(mariadb.url(database=database), "all types", create_table=True)
    batch = every_type()
    if "mariadb" not in str(mariadb.execute("SELECT @@version")).lower():
        with pytest.raises(UserError, match="column 'nested' has type json"):
            commit(sink, SCHEMA, batch)
            read(sink, ARROW)
        return
    commit(sink, SCHEMA, batch)
    (found,) = read(sink, ARROW)
    assert found.writers is None
    assert sums(row_hashes(found.rows)) == sums(row_hashes(batch))
    commit(sink, SCHEMA, batch, epoch=1)
    again = read(sink, ARROW, epoch_column="tiny")
    assert {(rows.epoch, len(rows.rows)) for rows in again} == {(-128, 2), (127, 2), (-1, 2)}
    with pytest.raises(OperationFailedError, match="does not exist"):
        read(MySQLSink(mariadb.url(database=database), "nowhere"), ARROW)


@pytest.mark.parametrize("kind", ["FLOAT", "CHAR(5)", "BINARY(5)", "ENUM('a', 'b')"])
def test_a_type_that_cannot_be_compared_is_named(
    mariadb: MariaDBServer, database: str, kind: str
) -> None:
    mariadb.execute(f"CREATE TABLE t (v {kind})", database=database)
    sink = MySQLSink(mariadb.url(database=database), "t")
    with pytest.raises(UserError, match=r"column 'v' has type .* cannot be compared"):
        read(sink, pa.schema([("v", pa.string())]))


def test_an_upserted_table_is_read_without_writers(mariadb: MariaDBServer, database: str) -> None:
    schema = (Column("k", "bigint"), Column("n", "bigint"))
    sink = MySQLSink(mariadb.url(database=database), "t", "upsert", keys=["k"], create_table=True)
    for epoch in range(2):
        rows = pa.record_batch({"k": [epoch, 1], "n": [epoch, epoch + 5]})
        commit(sink, schema, rows, epoch)
    (found,) = read(sink, rows.schema, by_transaction=False)
    assert (found.writers, found.epoch) == (None, None)
    assert sorted(zip(*found.rows.to_pydict().values(), strict=True)) == [(0, 0), (1, 6)]
