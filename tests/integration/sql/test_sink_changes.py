"""SqlSink with op: `tests/changes_suite.py` on each database. A changed row is made anew, so there
are no columns of others to keep."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
import sqlalchemy as sa

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column
from seamark.sinks.sql import SqlSink
from seamark.verify.conformance.steps import attempt
from tests.changes_suite import ChangesSuite, ChangesUnderTest
from tests.chaos.driver import wait_until
from tests.integration.sql.sink_kit import OP, Place, batch, committer, write


class TestSql(ChangesSuite):
    @pytest.fixture
    def under(self, place: Place) -> ChangesUnderTest:
        null = "" if place.in_files else " NOT NULL"  # tasks cannot ask DuckDB for its table
        place.execute(f"CREATE TABLE {{}}orders (id BIGINT PRIMARY KEY, text VARCHAR(99){null})")
        return ChangesUnderTest(
            place.sink(mode="upsert", keys=["id"], op="op"),
            lambda: {key: (text, None) for key, text in place.execute("SELECT * FROM {}orders")},
            lambda: False,
            refuses_null=not place.in_files,
        )


def test_a_new_table_has_no_op_column_and_a_row_is_made_anew(place: Place) -> None:
    sink = place.sink(mode="upsert", keys=["id"], op="op")
    side = committer(sink, schema=OP)
    side.commit(write(sink, batch([1, 2], op="insert"), batch([1], op="delete")))
    assert place.execute("SELECT * FROM {}orders") == [(2, "row 2")]
    place.execute("ALTER TABLE {}orders ADD note VARCHAR(9) DEFAULT 'new'")
    place.execute("UPDATE {}orders SET note = 'seen'")
    side = committer(sink, 2, schema=OP)
    side.commit(write(sink, batch([2, 3], "again", op="update")))
    assert place.execute("SELECT * FROM {}orders ORDER BY id") == [
        (2, "again 2", "new"), (3, "again 3", "new"),
    ]  # fmt: skip


# Not MariaDB's innodb_trx: it is a cache that stays as it is while it is read every 100 ms.
WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mariadb": "SELECT CAST(variable_value AS INT) FROM information_schema.global_status "
    "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
}


def test_another_writer_inserts_the_same_key_at_once(served: Place) -> None:
    """As a second job does: its row was not there to be deleted, and is there at the insert."""
    sink = served.sink(mode="upsert", keys=["id"])
    side = committer(sink)
    staged = write(sink, batch([1, 2]))
    engine = sa.create_engine(served.url, poolclass=sa.NullPool)
    with ThreadPoolExecutor() as pool, engine.connect() as other:
        other.exec_driver_sql(f"INSERT INTO {served.prefix}orders VALUES (1, 'other')")
        outcome = pool.submit(side.commit, staged)
        asked = WAITING[engine.dialect.name]
        wait_until("it waits for the other", lambda: served.execute(asked) == [(1,)], 20)
        other.commit()
        assert list(outcome.result(60)) == [CommitOutcome.COMMITTED]
    assert served.execute("SELECT * FROM {}orders ORDER BY id") == [(1, "row 1"), (2, "row 2")]


def test_keys_of_two_columns(place: Place) -> None:
    sink = place.sink(mode="upsert", keys=["id", "text"])
    side = committer(sink)
    side.commit(write(sink, batch([1, 2]), batch([1], "other")))
    side.commit(write(sink, batch([2, 2, 1])))
    assert sorted(place.execute("SELECT * FROM {}orders")) == [
        (1, "other 1"), (1, "row 1"), (2, "row 2"),
    ]  # fmt: skip


def test_of_rows_of_one_key_the_last_wins(place: Place) -> None:
    """Within a batch, over the batches of a task, and over the tasks of a commit."""
    sink = place.sink(mode="upsert", keys=["id"])
    side = committer(sink)
    staged = [
        committable
        for part in range(3)
        for committable in write(
            sink, batch([1, 2, 1], f"a{part}"), batch([2], f"b{part}"), batch([3, 1], f"c{part}"),
            at=attempt(partition=part),
        )
    ]  # fmt: skip
    assert set(side.commit(staged)) == {CommitOutcome.COMMITTED}
    found = sorted(place.execute("SELECT * FROM {}orders"))
    assert found == [(1, "c2 1"), (2, "b2 2"), (3, "c2 3")]


def test_keys_of_bytes(place: Place) -> None:
    sink = place.sink(mode="upsert", keys=["id"])
    side = committer(sink, schema=(Column("id", "binary"), Column("n", "bigint")))
    keys = [b"a", b"a\0", b"a ", b"", b"\xff", b"a"]
    assert side.commit(write(sink, pa.record_batch({"id": keys, "n": range(6)}))) == [
        CommitOutcome.COMMITTED
    ]
    found = {bytes(key): n for key, n in place.execute("SELECT * FROM {}orders")}
    assert found == dict(zip(keys, range(6), strict=True))


def test_two_zeros_are_one_key(place: Place) -> None:
    """MariaDB groups them as two, and its index takes them for one."""
    sink = place.sink(mode="upsert", keys=["id"])
    side = committer(sink, schema=(Column("id", "double"), Column("n", "bigint")))
    staged = write(sink, pa.record_batch({"id": [0.0, -0.0, 1.5], "n": range(3)}))
    assert side.commit(staged) == [CommitOutcome.COMMITTED]
    assert sorted(place.execute("SELECT * FROM {}orders")) == [(0.0, 1), (1.5, 2)]


def test_op_without_upsert() -> None:
    with pytest.raises(ConfigurationError, match=r"no key.*give mode='upsert' and keys="):
        SqlSink("sqlite:////tmp/a.db", "orders", op="op")
