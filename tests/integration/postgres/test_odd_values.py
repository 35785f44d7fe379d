"""PostgresSink with odd values and odd names, in each mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from seamark.model.schema import Schema
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.postgres import PostgresSink
from seamark.verify.conformance import ValuesConformance, ValuesUnderTest
from tests.integration.postgres.sink_kit import fresh_schema
from tests.servers.postgres import PostgresServer

_MICROS = (
    "extract(epoch FROM date_trunc('second', {}))::int8 * 1000000"
    " + extract(microseconds FROM {})::int8 % 1000000"
)
_SQL = {"date": "{} - date '1970-01-01'", "timestamp": _MICROS, "timestamp_ntz": _MICROS}


@pytest.mark.parametrize("mode", ["prepared", "upsert"])
class TestPostgres(ValuesConformance):
    @pytest.fixture
    def odd(self, postgres: PostgresServer, mode: Any) -> Iterator[ValuesUnderTest]:
        with fresh_schema(postgres) as place:

            def read(schema: Schema) -> Mapping[int, Any]:
                is_json = schema[1].type.startswith(("map<", "struct<"))
                form = "{}::text" if is_json else _SQL.get(schema[1].type, "{}")
                value = form.replace("{}", quoted(schema[1].name))
                return dict(postgres.execute(f"SELECT n, {value} FROM {place}.excluded"))

            keys = ["n"] if mode == "upsert" else []
            yield ValuesUnderTest(
                lambda schema: PostgresSink(
                    postgres.url(), f"{place}.excluded", mode, keys, create_table=True
                ),
                read,
                json_floats=True,
            )
