"""PostgresSink with op: `tests/changes_suite.py` on a real server, and the privilege it needs.

The conformance suite runs with op too (`test_sink_conformance.py`), deaths among it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seamark.model.errors import ConfigurationError, PreflightError
from seamark.sinks.postgres import PostgresSink
from tests.changes_suite import SCHEMA, ChangesSuite, ChangesUnderTest, commit, driver, write
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer


class TestPostgres(ChangesSuite):
    @pytest.fixture
    def under(self, postgres: PostgresServer) -> Iterator[ChangesUnderTest]:
        with kit.fresh_schema(postgres) as schema:
            postgres.execute(
                f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, text text NOT NULL, "
                "note text DEFAULT 'new', CHECK (text IS NOT NULL AND text <> 'bad'))"
            )
            select = f"SELECT id, text, note FROM {schema}.orders"
            yield ChangesUnderTest(
                kit.sink_on(postgres, schema, "upsert", op="op"),
                lambda: {key: (text, note) for key, text, note in postgres.execute(select)},
                lambda: postgres.execute(f"UPDATE {schema}.orders SET note = 'seen'") is not None,
                "new",
            )


def test_a_new_table_has_no_op_column(postgres: PostgresServer) -> None:
    with kit.fresh_schema(postgres) as schema:
        sink = kit.sink_on(postgres, schema, "upsert", op="op", create_table=True)
        committer = sink.create_committer(driver())
        committer.preflight()
        committer.close()
        commit(sink, write(sink, [(1, "a", "insert"), (2, "b", "insert"), (1, None, "delete")], 0))
        assert postgres.execute(f"SELECT * FROM {schema}.orders") == [(2, "b")]


def test_deletes_need_their_privilege(postgres: PostgresServer) -> None:
    with kit.fresh_schema(postgres) as schema:
        postgres.execute(
            f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, text text);"
            "DROP ROLE IF EXISTS changer; CREATE ROLE changer LOGIN;"
            f"GRANT USAGE, CREATE ON SCHEMA {schema} TO changer;"
            f"GRANT SELECT, INSERT, UPDATE ON {schema}.orders TO changer"
        )
        url = postgres.url(user="changer")
        for op, refused in ((None, False), ("op", True)):
            sink = kit.sink_on(postgres, schema, "upsert", op=op, url=url)
            schema_of = SCHEMA if op else SCHEMA[:2]
            committer = sink.create_committer(kit.driver(schema=schema_of))
            if refused:
                with pytest.raises(PreflightError, match=r"lacks DELETE.*GRANT DELETE ON"):
                    committer.preflight()
            else:
                committer.preflight()
            committer.close()


def test_op_without_upsert() -> None:
    with pytest.raises(ConfigurationError, match=r"no key.*give mode='upsert' and keys="):
        PostgresSink("postgresql://localhost/a", "orders", op="op")
