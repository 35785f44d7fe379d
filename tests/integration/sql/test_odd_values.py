"""SqlSink with odd values and odd names in each database, appended in two and upserted in two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from seamark.model.schema import Schema
from seamark.verify.conformance import ValuesConformance, ValuesUnderTest
from tests.integration.sql.sink_kit import DIALECTS


@pytest.mark.parametrize(
    ("dialect", "mode"),
    [("sqlite", "staged"), ("postgresql", "upsert"), ("mariadb", "upsert"), ("duckdb", "staged")],
)
class TestSql(ValuesConformance):
    @pytest.fixture
    def odd(
        self, request: pytest.FixtureRequest, dialect: str, mode: str
    ) -> Iterator[ValuesUnderTest]:
        with DIALECTS[dialect](request.getfixturevalue) as place:

            def read(schema: Schema) -> Mapping[int, Any]:
                return dict(place.execute("SELECT * FROM {}orders"))

            keys = ["n"] if mode == "upsert" else []
            yield ValuesUnderTest(
                lambda schema: place.sink(mode=mode, keys=keys),
                read,
                sql_floats=dialect in ("sqlite", "mariadb"),
            )
