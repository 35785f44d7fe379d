"""DeltaSink on a real S3 server: the conformance suite, with the server killed under it, and stores
with weak conditional writes (`tests/weak_s3.py`) before a server of their own. `make test-all` runs
the part of the suite about the store, `make chaos` all of it."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator

import pytest

from seamark.contracts.read_back import ReadBack
from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import PreflightError
from seamark.sinks.delta import DeltaSink
from seamark.verify.conformance import (
    ExpiryConformance,
    LineUnderTest,
    OutageConformance,
    ServerConformance,
    ServerUnderTest,
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
from tests.servers.s3 import LocalS3
from tests.storage_servers import serving
from tests.weak_s3 import Weakness, WeakS3


def options(s3: LocalS3, endpoint: str = "") -> dict[str, str]:
    return s3.spark_settings(endpoint)


@pytest.fixture
def sink(s3: LocalS3) -> DeltaSink:
    return made(f"s3a://{s3.bucket}/{uuid.uuid4()}/orders", ["part"], storage_options=options(s3))


@pytest.fixture
def under(s3: LocalS3, sink: DeltaSink) -> SinkUnderTest:
    return under_suite(sink, ServerUnderTest(kill=s3.kill, restart=s3.restart))


class TestWhatS3CouldBreak:
    """A part of the suite, for every run: the part about the store rather than the sink."""

    _checkpoints = SinkConformance._checkpoints
    test_killed = SinkConformance.test_a_commit_killed_at_each_failpoint_is_ended_by_the_next
    test_races = SinkConformance.test_of_a_commit_and_an_abort_at_once_exactly_one_succeeds
    test_server = ServerConformance.test_prepared_rows_survive_kill_9_of_the_server


@pytest.mark.chaos  # minutes: each call waits until its client gives up
class TestOutages(OutageConformance):
    """The line to S3 is away or silent."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture
    def under(self, s3: LocalS3, sink: DeltaSink) -> SinkUnderTest:
        def through(port: int) -> DeltaSink:
            given = {**options(s3, f"http://127.0.0.1:{port}"), "fs.s3a.connection.timeout": "1s"}
            return dataclasses.replace(sink, storage_options=given)

        return dataclasses.replace(
            under_suite(sink), line=LineUnderTest("127.0.0.1", s3.port, through)
        )


@pytest.mark.chaos
class TestDeltaOnS3(SinkConformance, ExpiryConformance, ServerConformance):
    """The whole of it."""


class TestChangesThatS3CouldBreak:
    """With keys and op: rows are staged there, and read for the merge at the commit."""

    _checkpoints = SinkConformance._checkpoints
    test_killed = SinkConformance.test_a_commit_killed_at_each_failpoint_is_ended_by_the_next

    @pytest.fixture
    def under(self, under: SinkUnderTest) -> SinkUnderTest:
        return by_key(under)


@pytest.mark.chaos
class TestChangesOnS3(SinkConformance, ExpiryConformance, ServerConformance):
    """The whole of it with keys and op."""

    @pytest.fixture
    def under(self, under: SinkUnderTest) -> SinkUnderTest:
        return by_key(under)


@pytest.fixture(scope="module")
def unsigned() -> Iterator[LocalS3]:
    """A server behind a proxy; it takes altered requests."""
    yield from serving(lambda: LocalS3(signed=False))


@pytest.mark.parametrize(
    "weakness", [Weakness.IGNORES, pytest.param(Weakness.LOOKS_FIRST, marks=pytest.mark.chaos)]
)
def test_a_store_with_two_winners_is_refused(unsigned: LocalS3, weakness: Weakness) -> None:
    with WeakS3(unsigned.port, weakness) as proxy:
        path = f"s3a://{unsigned.bucket}/{uuid.uuid4()}/orders"
        sink = DeltaSink(path, create_table=True, storage_options=options(unsigned, proxy.endpoint))
        with pytest.raises(PreflightError, match="does not keep the condition of a write"):
            sink.create_committer(driver()).preflight()


def test_a_commit_whose_reply_is_lost_is_found_in_the_log(unsigned: LocalS3) -> None:
    """The entry is written; its writer's own retry finds the name taken, and by itself."""
    direct = made(
        f"s3a://{unsigned.bucket}/{uuid.uuid4()}/orders", storage_options=options(unsigned)
    )
    writer = direct.create_writer(attempt())
    writer.write(batch(range(10)))
    committables = writer.prepare_commit()
    with WeakS3(unsigned.port, Weakness.LOSES_REPLY) as proxy:
        sink = DeltaSink(direct.path, storage_options=options(unsigned, proxy.endpoint))
        outcomes = until_proved(sink.create_committer(driver()).commit, committables)
        assert proxy.replies_lost == 1
    assert outcomes == [CommitOutcome.ALREADY_COMMITTED]
    assert sorted(numbers(direct)) == list(range(10))
    audited = direct.read_back(ReadBack(driver(), batch([]).schema, committables))
    assert sorted(n for part in audited for n in part.rows["id"].to_pylist()) == list(range(10))
