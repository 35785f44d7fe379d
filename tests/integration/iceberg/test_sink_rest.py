"""IcebergSink with Apache's REST catalog, a server of its own, which is killed, stopped, and behind
a line that is cut."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import uuid
from collections.abc import Iterator

import pytest

from seamark.verify.conformance import (
    ExpiryConformance,
    ForgettingConformance,
    LineConformance,
    LineUnderTest,
    OutageConformance,
    ServerConformance,
    ServerUnderTest,
    SinkConformance,
    SinkUnderTest,
)
from tests.integration.iceberg.sink_kit import by_key, made, under_suite
from tests.servers.iceberg_rest import IcebergRest
from tests.storage_servers import serving


@pytest.fixture(scope="module")
def rest() -> Iterator[IcebergRest]:
    yield from serving(IcebergRest)


@pytest.fixture
def under(rest: IcebergRest) -> SinkUnderTest:
    sink = made(rest.catalog, ["part"], table=f"s{uuid.uuid4().hex[:8]}.orders")

    @contextlib.contextmanager
    def stopped() -> Iterator[None]:
        rest.send(signal.SIGSTOP)
        try:
            yield
        finally:
            rest.send(signal.SIGCONT)

    return dataclasses.replace(
        under_suite(sink),
        server=ServerUnderTest(kill=rest.kill, restart=rest.restart),
        outages={"stopped": stopped},
        line=LineUnderTest(
            "127.0.0.1",
            rest.port,
            lambda port: dataclasses.replace(sink, catalog=rest.through(port)),
        ),
    )


class TestWhatAServerCouldBreak:
    """A part of the suite, for every run: the part about the catalog rather than the files."""

    _checkpoints = SinkConformance._checkpoints
    test_killed = SinkConformance.test_a_commit_killed_at_each_failpoint_is_ended_by_the_next
    test_races = SinkConformance.test_of_a_commit_and_an_abort_at_once_exactly_one_succeeds
    test_server = ServerConformance.test_prepared_rows_survive_kill_9_of_the_server
    test_cut_commit = LineConformance.test_a_commit_whose_line_is_cut_is_proved
    test_cut_abort = LineConformance.test_an_abort_whose_line_is_cut_is_proved


class TestChangesByKey:
    """The same about the snapshot that replaces files."""

    _checkpoints = SinkConformance._checkpoints
    test_killed = SinkConformance.test_a_commit_killed_at_each_failpoint_is_ended_by_the_next
    test_cut_commit = LineConformance.test_a_commit_whose_line_is_cut_is_proved

    @pytest.fixture
    def under(self, under: SinkUnderTest) -> SinkUnderTest:
        return by_key(under)


@pytest.mark.chaos  # minutes: each call waits until its deadline
class TestOutages(OutageConformance):
    """The server is killed or stopped; the line to it is away, silent, or cuts answers in half."""

    _checkpoints = SinkConformance._checkpoints


@pytest.mark.chaos
class TestIcebergByRest(
    SinkConformance, ExpiryConformance, ForgettingConformance, ServerConformance, LineConformance
):
    """The whole of it."""
