"""PostgresSink under the conformance suite, in each mode: a real server, read by its own driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer
from tidemark.verify.conformance import SinkConformance, SinkUnderTest
from tidemark.verify.conformance.steps import driver


@pytest.fixture(params=kit.MODES)
def under(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[SinkUnderTest]:
    mode = request.param
    staged = mode != "prepared"
    with kit.fresh_schema(postgres) as schema:
        key = "PRIMARY KEY" if mode == "upsert" else ""
        postgres.execute(f"CREATE TABLE {schema}.orders (id bigint {key}, text text)")
        sink = kit.sink_on(postgres, schema, mode)
        # As every job does at its start; some tests begin with a writer.
        sink.create_committer(driver()).preflight()
        yield SinkUnderTest(
            sink=sink,
            batch=kit.numbers,
            visible=lambda: kit.visible(postgres, schema),
            writer_failpoint="stage-written" if staged else "transaction-prepared",
            commit_failpoints=("ledger-committed",)
            if staged
            else tuple(f"prepared-committed:{nth}" for nth in (1, 2, 3)),
        )


class TestPostgres(SinkConformance):
    pass
