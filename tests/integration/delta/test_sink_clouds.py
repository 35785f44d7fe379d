"""DeltaSink on servers with the interfaces of Google's store and Azure's blobs: the conformance
suite. `make test-all` runs the part of it about the store, `make chaos` all of it.

Both servers forget when they are killed what they have answered, so none is.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest

from seamark.contracts.read_back import ReadBack
from seamark.model.errors import PreflightError
from seamark.sinks.delta import DeltaSink
from seamark.verify.conformance import (
    ExpiryConformance,
    LineUnderTest,
    OutageConformance,
    SinkConformance,
    SinkUnderTest,
)
from seamark.verify.conformance.steps import until_proved
from tests.integration.delta.sink_kit import (
    attempt,
    batch,
    by_key,
    driver,
    made,
    numbers,
    under_suite,
)
from tests.servers.azurite import AzuriteServer


@pytest.fixture(params=["gcs", "azure"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def sink(server: Any) -> DeltaSink:
    path = server.uri(f"{uuid.uuid4()}/orders")
    return made(path, ["part"], storage_options=server.row_settings())


@pytest.fixture
def under(sink: DeltaSink) -> SinkUnderTest:
    return under_suite(sink)


class TestWhatAStoreCouldBreak:
    """A part of the suite, for every run: the part about the store rather than the sink."""

    _checkpoints = SinkConformance._checkpoints
    test_killed = SinkConformance.test_a_commit_killed_at_each_failpoint_is_ended_by_the_next
    test_races = SinkConformance.test_of_a_commit_and_an_abort_at_once_exactly_one_succeeds


@pytest.mark.chaos
class TestDeltaOnClouds(SinkConformance, ExpiryConformance):
    """The whole of it."""


@pytest.mark.chaos
class TestChangesOnClouds(SinkConformance, ExpiryConformance):
    """The whole of it with keys and op."""

    @pytest.fixture
    def under(self, under: SinkUnderTest) -> SinkUnderTest:
        return by_key(under)


@pytest.mark.chaos  # minutes: each call waits until its client gives up
class TestOutages(OutageConformance):
    """The line to the store is away or silent."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture
    def under(self, server: Any, sink: DeltaSink, monkeypatch: pytest.MonkeyPatch) -> SinkUnderTest:
        for module in ("files.object_store", "sinks.delta.store"):
            monkeypatch.setattr(f"seamark.{module}.TIMEOUT_S", 3.0)

        def through(port: int) -> DeltaSink:
            options = server.row_settings(f"http://127.0.0.1:{port}")
            return dataclasses.replace(sink, storage_options=options)

        return dataclasses.replace(
            under_suite(sink), line=LineUnderTest("127.0.0.1", server.front.port, through)
        )


def test_rows_changes_and_an_audit(server: Any) -> None:
    """A new table is made; rows are merged by key, and read back by an audit."""
    path = server.uri(f"{uuid.uuid4()}/orders")
    sink = made(path, ["part"], storage_options=server.row_settings())
    keyed = dataclasses.replace(sink, keys=["id"])
    committables = []
    for epoch, (into, rows) in enumerate([(sink, range(10)), (keyed, range(5, 15))]):
        committer = into.create_committer(driver())
        committer.preflight()
        writer = into.create_writer(attempt(epoch=epoch))
        writer.write(batch(rows))
        found = writer.prepare_commit()
        until_proved(committer.commit, found)
        committables += found
        assert not list(committer.list_lingering())
    assert sorted(numbers(sink)) == list(range(15))
    audited = sink.read_back(ReadBack(driver(), batch([]).schema, committables))
    assert sorted(n for part in audited for n in part.rows["id"].to_pylist()) == list(range(15))


def test_a_wrong_key_is_refused_without_showing_it(azure: AzuriteServer) -> None:
    wrong = "d3JvbmctczNjcjN0"
    options = {**azure.row_settings(), f"fs.azure.account.key.{azure.host}": wrong}
    sink = DeltaSink(azure.uri("t/x"), create_table=True, storage_options=options)
    with pytest.raises(PreflightError, match="storage_options say where and as whom") as caught:
        sink.create_committer(driver()).preflight()
    assert wrong not in str(caught.value)
