"""What only the database itself can tell at a start: whether its ledger proves anything, and which
texts it takes for one key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import PreflightError
from seamark.model.schema import Column
from seamark.sinks.internal.outcomes import LEDGER_EPOCHS
from seamark.sinks.mysql import MySQLSink
from seamark.sinks.postgres import PostgresSink
from seamark.sinks.sql import SqlSink
from seamark.sinks.sql.database import Session
from seamark.verify.conformance.steps import attempt, until_proved
from tests.integration.mysql.conftest import of_new_sessions
from tests.integration.sql.sink_kit import (
    NUMBERS,
    OP,
    Place,
    batch,
    committer,
    context,
    duckdb_place,
    mariadb_place,
    postgres_place,
    sqlite_place,
    write,
)
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer


def _with(sink: SqlSink, option: str) -> SqlSink:
    url = sink.database.url.update_query_string(option)
    return SqlSink(url.render_as_string(hide_password=False), sink.table)


def test_a_url_that_turns_transactions_off_is_refused(served: Place) -> None:
    """A kill between two statements of a commit would lose its rows."""
    with pytest.raises(PreflightError, match=r"stays after the end .* take autocommit out"):
        committer(_with(served.sink(), "autocommit=true"))
    (left,) = served.execute("SELECT count(*) FROM {}_seamark_sql_ledger")
    assert left == (0,)
    committer(served.sink())


def test_a_primary_key_that_is_not_enforced_is_refused(place: Place) -> None:
    place.execute(
        "CREATE TABLE {}_seamark_sql_ledger (handle VARCHAR(200), owner VARCHAR(90), "
        "epoch BIGINT, row_count BIGINT, outcome VARCHAR(9))"
    )
    with pytest.raises(PreflightError, match="takes two rows of one primary key; give a database"):
        committer(place.sink())
    assert place.execute("SELECT * FROM {}_seamark_sql_ledger") == []


@pytest.mark.parametrize("declared", ["{} PRIMARY KEY", "{}, UNIQUE (text)"])
@pytest.mark.parametrize(("dialect", "collation"),
                         [(sqlite_place, "NOCASE"), (sqlite_place, "RTRIM"),
                          (duckdb_place, "NOCASE"), (duckdb_place, "NOACCENT.NOCASE")])  # fmt: skip
def test_keys_of_a_file_that_may_be_one_for_the_database(
    tmp_path: Path,
    dialect: Callable[[Path], AbstractContextManager[Place]],
    collation: str,
    declared: str,
) -> None:
    """`row` would replace `Row`."""
    with dialect(tmp_path) as place:
        column = declared.format(f"text VARCHAR(9) COLLATE {collation}")
        place.execute(f"CREATE TABLE orders (id BIGINT, {column})")
        with pytest.raises(PreflightError, match=r"column 'text' has type .* would alter values"):
            committer(place.sink(mode="upsert", keys=["text"]))


@pytest.mark.parametrize("binary", ["BINARY", "binary"])
def test_an_index_of_sqlite_compares_every_byte_and_its_column_does_not(
    tmp_path: Path, binary: str
) -> None:
    with sqlite_place(tmp_path) as place:
        place.execute("CREATE TABLE orders (id BIGINT, text TEXT COLLATE NOCASE)")
        place.execute(f"CREATE UNIQUE INDEX by_text ON orders (text COLLATE {binary})")
        sink = place.sink(mode="upsert", keys=["text"])
        side = committer(sink)
        for number, text in enumerate("aAa"):
            rows = pa.record_batch({"id": [number], "text": [text]})
            side.commit(write(sink, rows, at=attempt(epoch=number)))
        assert place.execute("SELECT * FROM orders ORDER BY id") == [(1, "A"), (2, "a")]
        side.close()


def test_keys_that_may_be_one_for_postgresql(postgres: PostgresServer) -> None:
    """The server may lack ICU: the mark of its collations does."""
    with postgres_place(postgres) as place:
        schema = place.prefix.rstrip(".")
        place.execute("CREATE COLLATION {}anycase (provider = libc, locale = 'C')")
        place.execute(
            "CREATE TABLE {}orders (id BIGINT UNIQUE, text TEXT COLLATE {}anycase UNIQUE)"
        )
        committer(place.sink(mode="upsert", keys=["text"]))
        place.execute(
            "UPDATE pg_collation SET collisdeterministic = false WHERE "
            f"collname = 'anycase' AND collnamespace = '{schema}'::regnamespace"
        )
        with pytest.raises(PreflightError, match=r"column 'text' has type .* would alter values"):
            committer(place.sink(mode="upsert", keys=["text"]))
        committer(place.sink(mode="upsert", keys=["id"]))


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_role_of_another_encoding_writes_every_letter(
    postgres: PostgresServer, driver: str
) -> None:
    pytest.importorskip(driver)
    role = f"latin_{driver}"
    with postgres_place(postgres) as place:
        place.execute("CREATE TABLE {}orders (id BIGINT, text TEXT)")
        place.execute(
            f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 'pw'; "
            f"ALTER ROLE {role} SET client_encoding = 'LATIN1'"
        )
        url = sa.make_url(place.url).set(drivername=f"postgresql+{driver}", username=role)
        url = url.set(password="pw").render_as_string(hide_password=False)
        sink = dataclasses.replace(place.sink(), url=url)
        side = committer(sink)
        rows = pa.record_batch({"id": [1], "text": ["中ü"]})
        assert until_proved(side.commit, write(sink, rows)) == [CommitOutcome.COMMITTED]
        side.close()
        assert place.execute("SELECT text FROM {}orders") == [("中ü",)]


def test_an_older_row_in_a_child_of_postgresqls_is_replaced(postgres: PostgresServer) -> None:
    """A DELETE goes through the tables that inherit."""
    with postgres_place(postgres) as place:
        place.execute("CREATE TABLE {}orders (id BIGINT PRIMARY KEY, text TEXT)")
        place.execute("CREATE TABLE {}child () INHERITS ({}orders)")
        place.execute("INSERT INTO {}child VALUES (1, 'old'), (2, 'other')")
        sink = place.sink(mode="upsert", keys=["id"])
        side = committer(sink)
        side.commit(write(sink, batch([1])))
        found = place.execute("SELECT * FROM {}orders ORDER BY id")
        assert found == [(1, "row 1"), (2, "other")]
        side.close()


@pytest.mark.parametrize("declared", ["UNIQUE (text(3))", "PRIMARY KEY (text(3))"])
def test_keys_of_which_mariadb_looks_at_the_beginning_alone(
    mariadb: MariaDBServer, declared: str
) -> None:
    exact = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
    with mariadb_place(mariadb) as place:
        place.execute(f"CREATE TABLE orders (id BIGINT, text VARCHAR(99) {exact}, {declared})")
        with pytest.raises(PreflightError, match=r"column 'text' has type .* would alter values"):
            committer(place.sink(mode="upsert", keys=["text"]))


def test_names_of_duckdb_have_no_case(tmp_path: Path) -> None:
    with duckdb_place(tmp_path) as place:
        place.execute('CREATE SCHEMA "Shop"')
        place.execute('CREATE TABLE "Shop"."Orders" (id BIGINT PRIMARY KEY, text VARCHAR)')
        sink = place.sink(table="shop.orders", mode="upsert", keys=["id"])
        for text in ("first", "second"):
            side = committer(sink)
            assert side.commit(write(sink, batch([1], text))) == [CommitOutcome.COMMITTED]
        assert place.execute("SELECT * FROM shop.orders") == [(1, "second 1")]


def test_a_column_that_duckdb_computes_is_no_target(tmp_path: Path) -> None:
    with duckdb_place(tmp_path) as place:
        place.execute("CREATE TABLE orders (id BIGINT, n VARCHAR, text VARCHAR AS (n || 'x'))")
        with pytest.raises(PreflightError, match="Cannot insert into a generated column"):
            committer(place.sink())
        numbers = (context().schema[0],)
        committer(place.sink(), schema=numbers)


def test_a_virtual_table_of_sqlite_is_no_target(tmp_path: Path) -> None:
    """An R-tree keeps 32 bits of a double."""
    schema = (Column("id", "bigint"), Column("low", "double"), Column("high", "double"))
    with sqlite_place(tmp_path) as place:
        place.execute("CREATE VIRTUAL TABLE orders USING rtree(id, low, high)")
        with pytest.raises(PreflightError, match="orders is no table"):
            committer(place.sink(), schema=schema)


def test_a_stage_of_mariadb_takes_the_texts_of_its_target(mariadb: MariaDBServer) -> None:
    """The columns have the table's character set, which is not the database's."""
    with mariadb_place(mariadb) as place:
        for charset, taken in (("latin1", ["é"]), ("utf8mb4", ["é", "☃", "😀"])):
            place.execute("DROP TABLE IF EXISTS orders")
            place.execute(f"CREATE TABLE orders (id BIGINT, text TEXT) CHARACTER SET {charset}")
            sink = place.sink()
            side = committer(sink)
            writer = sink.create_selective_writer(attempt())
            texts = ["é", "☃", "😀"]
            refused = writer.write_accepted(pa.record_batch({"id": [1, 2, 3], "text": texts}))
            assert len(refused) == 3 - len(taken)
            assert side.commit(writer.prepare_commit()) == [CommitOutcome.COMMITTED]
            found = place.execute("SELECT text FROM orders ORDER BY id")
            assert [text for (text,) in found] == taken


def test_a_committer_waits_for_the_other_nodes_of_a_cluster(mariadb: MariaDBServer) -> None:
    """Else it could miss another node's stage, and call its rows lost."""
    with mariadb_place(mariadb) as place:
        session = Session(place.sink().database)
        asked = sa.text("SELECT @@SESSION.wsrep_sync_wait")
        assert session.run(lambda connection: connection.execute(asked).scalar()) == 15
        session.close()


def test_a_job_whose_name_differs_in_case_alone_has_a_ledger_of_its_own(staging: Place) -> None:
    sink = staging.sink()
    newest, old = LEDGER_EPOCHS * 3, 1
    outcomes = []
    for job, epoch in (("Orders", newest), ("orders", old)):
        side = sink.create_committer(dataclasses.replace(context(), job_id=job))
        side.preflight()
        at = dataclasses.replace(attempt(epoch=epoch), job_id=job)
        outcomes += side.commit(write(sink, batch([epoch]), at=at))
    assert outcomes == [CommitOutcome.COMMITTED] * 2
    assert staging.visible() == [old, newest]


@pytest.mark.parametrize("mode", ["staged", "upsert", "changes"])
@pytest.mark.parametrize("which", ["cut short", "serializable", "timed"])
def test_settings_of_mysqls_new_sessions(mariadb: MariaDBServer, mode: str, which: str) -> None:
    """They would show a part of a stage, refuse a delete, or begin and chain transactions."""
    keys, op = ([] if mode == "staged" else ["id"]), ("op" if mode == "changes" else None)
    with mariadb_place(mariadb) as place:
        with of_new_sessions(mariadb, which):
            sink = place.sink(mode="upsert" if keys else "staged", keys=keys, op=op)
            end = committer(sink, schema=OP if op else NUMBERS)
            for epoch in range(2):
                rows = batch([3 * epoch + 1, 3 * epoch + 2], op="insert" if op else "")
                if op and epoch:
                    rows = batch([1], op="delete")
                staged = write(sink, rows, at=attempt(epoch=epoch))
                assert until_proved(end.commit, staged) == [CommitOutcome.COMMITTED]
            end.close()
        assert place.visible() == ([2] if op else [1, 2, 4, 5])
        assert place.staged() == 0


def test_limits_of_postgresqls_sessions_end_no_commit_and_none_of_ours_is_left(
    postgres: PostgresServer,
) -> None:
    """A pooler in transaction mode gives the session to other programs, whose statements would wait
    for no lock longer than ours."""
    with postgres_place(postgres) as place:
        own = "statement_timeout=300", "quote_all_identifiers=on", "synchronous_commit=off"
        options = f"options={'%20'.join(f'-c%20{one}' for one in own)}"
        sink = _with(place.sink(), options)
        at = committer(sink)
        place.execute(
            "CREATE FUNCTION {}slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN PERFORM pg_sleep(0.4); RETURN NEW; END$$"
        )
        place.execute(
            "CREATE TRIGGER slow BEFORE INSERT ON {}orders FOR EACH ROW EXECUTE FUNCTION {}slow()"
        )
        assert until_proved(at.commit, write(sink, batch([1]))) == [CommitOutcome.COMMITTED]
        assert place.visible() == [1]
        names = "'lock_timeout', 'statement_timeout', 'synchronous_commit'"
        ask = f"SELECT setting FROM pg_settings WHERE name IN ({names}) ORDER BY name"

        def asked(connection: sa.Connection) -> list[str]:
            return list(connection.exec_driver_sql(ask).scalars())

        assert Session(sink.database).run(asked) == ["10000", "0", "on"]
        with sink.database.engine.connect() as connection:
            with connection.begin():
                asked(connection)
            raw = connection.connection.driver_connection
            assert [one for (one,) in raw.execute(ask)] == ["0", "300", "off"]


def test_stages_of_another_kind_of_sink_in_the_same_schema(served: Place) -> None:
    url = sa.make_url(served.url)
    name = "postgresql" if url.get_dialect().name == "postgresql" else "mysql"
    kind = PostgresSink if name == "postgresql" else MySQLSink
    plain = url.set(drivername=name).render_as_string(hide_password=False)
    other = kind(plain, f"{served.prefix}others")
    others = other.create_committer(context())
    others.preflight()
    writer = other.create_writer(attempt())
    writer.write(batch([1]))
    staged = list(writer.prepare_commit())
    own = committer(served.sink())
    made = write(served.sink(), batch([2]))
    assert [one.committable.handle for one in own.list_lingering()] == [made[0].handle]
    assert own.commit(made) == others.commit(staged) == [CommitOutcome.COMMITTED]
