"""MySQLSink with odd values and odd names: XA and upsert, by LOAD DATA and by INSERT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from seamark.model.schema import Schema, quoted
from seamark.sinks.mysql import MySQLSink
from seamark.verify.conformance import ValuesConformance, ValuesUnderTest
from tests.servers.mariadb import MariaDBServer


@pytest.mark.parametrize(
    ("mode", "infile"), [("xa", 1), ("upsert", 0)], ids=["xa-load-data", "upsert-insert"]
)
class TestMySQL(ValuesConformance):
    @pytest.fixture
    def odd(
        self, mariadb: MariaDBServer, database: str, mode: Any, infile: int
    ) -> Iterator[ValuesUnderTest]:
        def read(schema: Schema) -> Mapping[int, Any]:
            value = quoted(schema[1].name)
            if schema[1].type.startswith(("date", "timestamp")):
                value = f"CAST({value} AS CHAR)"
            return dict(mariadb.execute(f"SELECT n, {value} FROM s", database=database))

        mariadb.execute(f"SET GLOBAL local_infile={infile}")
        keys = ["n"] if mode == "upsert" else []
        yield ValuesUnderTest(
            lambda schema: MySQLSink(
                mariadb.url(database=database), "s", mode, keys, create_table=True
            ),
            read,
            sql_floats=True,
        )
        mariadb.execute("SET GLOBAL local_infile=1")
