"""IcebergSink with its tables on S3: a server of its own, which is killed. Keys come from the
catalog's settings, or from Spark's."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path

import pytest

from seamark.files import HadoopSettings, open_directory
from seamark.verify.conformance import (
    ExpiryConformance,
    ForgettingConformance,
    OutageConformance,
    ServerConformance,
    ServerUnderTest,
    SinkConformance,
    SinkUnderTest,
)
from tests.integration.iceberg.sink_kit import made, under_suite
from tests.servers.s3 import LocalS3


def keys(s3: LocalS3) -> dict[str, str]:
    """Return pyiceberg's settings for the server."""
    return {
        "s3.endpoint": s3.endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": s3.access_key,
        "s3.secret-access-key": s3.secret_key,
    }


@pytest.fixture
def under(s3: LocalS3, tmp_path: Path) -> SinkUnderTest:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{s3.bucket}/{uuid.uuid4()}",
        **keys(s3),
    }
    files = open_directory(f"s3a://{s3.bucket}", HadoopSettings.given(s3.spark_settings(), "s3"))

    def drop(found: object) -> None:
        (path, *_) = found.sizes  # type: ignore[attr-defined]
        location = found.location  # type: ignore[attr-defined]
        files.remove(f"{location.removeprefix(f's3://{s3.bucket}/')}/{path}")

    return dataclasses.replace(
        under_suite(made(catalog, ["part"])), drop=drop, server=ServerUnderTest(s3.kill, s3.restart)
    )


class TestWhatS3CouldBreak:
    """A part of the suite, for every run: the part about the store rather than the sink."""

    _checkpoints = SinkConformance._checkpoints
    test_killed = SinkConformance.test_a_commit_killed_at_each_failpoint_is_ended_by_the_next
    test_listing = SinkConformance.test_a_recovery_lists_exactly_what_lingers
    test_server = ServerConformance.test_prepared_rows_survive_kill_9_of_the_server


@pytest.mark.chaos
class TestOutages(OutageConformance):
    """S3 is away, and the catalog is not."""

    _checkpoints = SinkConformance._checkpoints


@pytest.mark.chaos
class TestIcebergOnS3(SinkConformance, ExpiryConformance, ForgettingConformance, ServerConformance):
    """The whole of it."""


def test_sparks_own_settings_are_enough(s3: LocalS3, tmp_path: Path) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3a://{s3.bucket}/{uuid.uuid4()}",
    }
    sink = made(catalog, storage_options=s3.spark_settings())
    read = dataclasses.replace(sink, catalog={**catalog, **keys(s3)})
    under = under_suite(read)
    writing = dataclasses.replace(under, sink=sink)
    SinkConformance().test_a_repeated_commit_is_proved_and_adds_nothing(writing)
