"""MySQLSink with odd values and odd names: XA and upsert, by LOAD DATA and by INSERT; on MariaDB
and on MySQL 8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from seamark.model.schema import Schema, quoted
from seamark.sinks.mysql import MySQLSink
from seamark.verify.conformance import ValuesConformance, ValuesUnderTest
from tests.integration.mysql.conftest import fresh_database
from tests.servers.mariadb import MariaDBServer


@pytest.mark.parametrize(
    ("kind", "mode", "infile"),
    [("mariadb", "xa", 1), ("mariadb", "upsert", 0), ("mysql8", "xa", 1)],
    ids=["xa-load-data", "upsert-insert", "mysql8-xa-load-data"],
)
class TestMySQL(ValuesConformance):
    @pytest.fixture
    def odd(
        self, request: pytest.FixtureRequest, kind: str, mode: Any, infile: int
    ) -> Iterator[ValuesUnderTest]:
        server: MariaDBServer = request.getfixturevalue(kind)
        server.execute(f"SET GLOBAL local_infile={infile}")
        keys = ["n"] if mode == "upsert" else []
        with fresh_database(server) as database:

            def read(schema: Schema) -> Mapping[int, Any]:
                value = quoted(schema[1].name)
                if schema[1].type.startswith(("date", "timestamp")):
                    value = f"CAST({value} AS CHAR)"
                return dict(server.execute(f"SELECT n, {value} FROM s", database=database))

            yield ValuesUnderTest(
                lambda schema: MySQLSink(
                    server.url(database=database), "s", mode, keys, create_table=True
                ),
                read,
                sql_floats=True,
            )
        server.execute("SET GLOBAL local_infile=1")
