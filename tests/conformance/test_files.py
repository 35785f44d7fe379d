"""FileSink under the conformance suite: each format on a local disk, two of them on HDFS and S3.

The directory, the NameNode and the S3 server are real; the reader is pyarrow's dataset on a local
disk, and elsewhere a reader of listings.
"""

from __future__ import annotations

import dataclasses
import io
import json
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet
import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.files import open_directory
from seamark.files.s3 import S3Directory
from seamark.model.schema import Column
from seamark.sinks.delta import DeltaSink
from seamark.sinks.files import FileSink
from seamark.sinks.files.pending import PendingFile
from seamark.verify.conformance import (
    ExpiryConformance,
    ForgettingConformance,
    LineConformance,
    LineUnderTest,
    OutageConformance,
    SinkConformance,
    SinkUnderTest,
    steps,
)
from seamark.verify.proxy import CuttingProxy
from tests.servers.disk import SmallDisk
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
RENAMES = ("file-renamed", "file-renamed:2", "file-renamed:3")
COMPLETIONS = tuple(name.replace("file-renamed", "upload-completed") for name in RENAMES)


def batches(form: str, *, partitioned: bool = False) -> Callable[[Any], pa.RecordBatch]:
    def batch(numbers: list[int]) -> pa.RecordBatch:
        rows = plain(numbers)
        return rows.append_column("k", pa.array(["a/b"] * len(numbers))) if partitioned else rows

    def plain(numbers: list[int]) -> pa.RecordBatch:
        texts = [f"row {n}" for n in numbers]
        if form == "json":
            lines = [json.dumps({"id": n, "text": t}) for n, t in zip(numbers, texts, strict=True)]
            return pa.record_batch([pa.array(lines, pa.string())], names=["value"])
        return pa.record_batch([pa.array(numbers, pa.int64()), texts], schema=SCHEMA)

    return batch


def checked(rows: pa.Table) -> list[int]:
    assert rows["text"].to_pylist() == [f"row {n}" for n in rows["id"].to_pylist()]
    return rows["id"].to_pylist()


@pytest.fixture(params=["parquet", "json", "csv"])
def under(request: pytest.FixtureRequest, tmp_path: Path) -> SinkUnderTest:
    return on_disk(tmp_path / "target", request.param)


def on_disk(target: Path, form: str) -> SinkUnderTest:
    sink = FileSink(target, format=form)  # type: ignore[arg-type]

    def drop(file: PendingFile) -> None:
        (target / f"_seamark/pending/{file.job_id}/{file.sink_uid}").joinpath(
            f"{file.handle}.pending"
        ).unlink()

    return SinkUnderTest(
        sink=sink,
        batch=batches(form),
        visible=lambda: checked(
            pa.dataset.dataset(sink.path, format=form, schema=SCHEMA).to_table()
        ),
        writer_failpoint="pending-written",
        commit_failpoints=RENAMES,
        gone=CommitOutcome.UNKNOWN,
        drop=drop,
        forget=lambda file: (target / file.handle).unlink(),
    )


class TestFiles(SinkConformance, ExpiryConformance, ForgettingConformance):
    pass


class TestOutages(OutageConformance):
    """The directory's disk is not mounted, and the line to S3 is away or silent. A rename needs no
    byte of a full disk."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture(params=["disk", "s3"])
    def under(self, request: pytest.FixtureRequest) -> SinkUnderTest:
        where = request.getfixturevalue(request.param)
        if isinstance(where, SmallDisk):
            made, outages = on_disk(where.path, "parquet"), {"not mounted": where.not_mounted}
            return dataclasses.replace(made, outages=outages)
        return through_a_proxy(where, **{"fs.s3a.connection.timeout": "1s"})


def through_a_proxy(s3: LocalS3, **settings: str) -> SinkUnderTest:
    made = under_test(s3)

    def through(port: int) -> FileSink:
        given = {**s3.spark_settings(f"http://127.0.0.1:{port}"), **settings}
        return dataclasses.replace(made.sink, hadoop=given)  # type: ignore[type-var]

    return dataclasses.replace(made, line=LineUnderTest("127.0.0.1", s3.port, through))


def to_hdfs_through_a_proxy(hdfs: LocalHdfs) -> SinkUnderTest:
    made = under_test(hdfs)

    def through(port: int) -> FileSink:
        path = urlsplit(made.sink.path).path  # type: ignore[attr-defined]
        return dataclasses.replace(made.sink, path=f"hdfs://127.0.0.1:{port}{path}")  # type: ignore[type-var]

    namenode = urlsplit(hdfs.uri).port
    assert namenode is not None
    return dataclasses.replace(made, line=LineUnderTest("127.0.0.1", namenode, through))


@pytest.fixture(params=["hdfs", "s3"])
def elsewhere(request: pytest.FixtureRequest) -> SinkUnderTest:
    return under_test(request.getfixturevalue(request.param))


def under_test(server: LocalHdfs | LocalS3) -> SinkUnderTest:
    """Parquet on HDFS, JSON lines on S3, both in a partition directory."""
    store, form = ("hdfs", "parquet") if isinstance(server, LocalHdfs) else ("s3", "json")
    path, settings = f"tests/{uuid.uuid4().hex}", {}
    if isinstance(server, LocalHdfs):
        uri = f"{server.uri}/{path}"
    else:
        uri, settings = f"s3a://{server.bucket}/{path}", server.spark_settings()
    sink = FileSink(uri, form, partition_by=["k"], hadoop=settings)
    directory: Any = open_directory(sink.path, sink.hadoop)

    def visible() -> list[int]:
        seen: list[int] = []
        for path in directory.tree():
            if path.startswith("_") or "/_" in path:  # as every reader does
                continue
            assert path.startswith("k=a%2Fb/part-")
            with directory.open(path) as file:
                data = io.BytesIO(file.read())
            read = pa.parquet.read_table if form == "parquet" else pa.json.read_json
            seen += checked(read(data))
        return seen

    def drop(file: PendingFile) -> None:
        if isinstance(directory, S3Directory):
            directory.abort_upload(file.handle, file.upload_id)
        else:
            directory.remove(
                f"_seamark/pending/{file.job_id}/{file.sink_uid}/{file.handle}.pending"
            )

    return SinkUnderTest(
        sink=sink,
        batch=batches(form, partitioned=True),
        visible=visible,
        writer_failpoint="pending-written",
        commit_failpoints=RENAMES if store == "hdfs" else COMPLETIONS,
        gone=CommitOutcome.UNKNOWN,
        drop=drop,
        forget=lambda file: directory.remove(file.handle),
    )


@pytest.mark.chaos  # minutes: the client tries again
class TestOutagesOfHdfs(OutageConformance):
    """The line to the NameNode is away or silent; the deadline of a call to it is shorter here."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture
    def under(self, hdfs: LocalHdfs, monkeypatch: pytest.MonkeyPatch) -> SinkUnderTest:
        monkeypatch.setattr("seamark.files.hdfs.CALL_DEADLINE_S", 2.0)
        return to_hdfs_through_a_proxy(hdfs)


def test_a_silent_namenode_costs_a_call_one_deadline(
    hdfs: LocalHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each file has a directory to be removed."""
    monkeypatch.setattr("seamark.files.hdfs.CALL_DEADLINE_S", 2.0)
    monkeypatch.setattr("seamark.sinks.files.committer.LONGEST_CALL_S", 1.0)
    made = to_hdfs_through_a_proxy(hdfs)
    assert made.line is not None
    with CuttingProxy(made.line.host, made.line.port) as proxy:
        sink: Any = made.line.through(proxy.port)
        committer = sink.create_committer(steps.driver())
        committer.preflight()
        parts = [p for n in range(3) for p in steps.write(made, steps.attempt(epoch=n), [n, n])[1]]
        for call, retry in (
            (committer.commit, CommitOutcome.RETRY), (committer.abort, AbortOutcome.RETRY)
        ):  # fmt: skip
            begun = time.monotonic()
            with proxy.outage("drops"):
                assert call(parts) == [retry] * 3
            assert time.monotonic() - begun < 4
        assert steps.until_proved(committer.abort, parts) == [AbortOutcome.ABORTED] * 3


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_a_silent_store_costs_the_abort_of_a_task_one_deadline(
    s3: LocalS3, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A task with many files: the rest of them is lingering."""
    monkeypatch.setattr("seamark.model.ignored.LONGEST_CLEANING_S", 1.0)
    rows = pa.record_batch({"n": range(6), "k": [f"{n}" for n in range(6)]})
    path = f"s3a://{s3.bucket}/tests/{uuid.uuid4().hex}"
    with CuttingProxy("127.0.0.1", s3.port) as proxy:
        settings = s3.spark_settings(f"http://127.0.0.1:{proxy.port}")
        settings["fs.s3a.connection.timeout"] = "1s"
        sink: Any = FileSink(path, "parquet", partition_by=["k"], hadoop=settings)
        if kind == "delta":
            sink = DeltaSink(path, ["k"], create_table=True, storage_options=settings)
        schema = (Column("n", "bigint"), Column("k", "string"))
        driver = dataclasses.replace(steps.driver(), schema=schema)
        committer = sink.create_committer(driver)
        committer.preflight()
        writer = sink.create_writer(steps.attempt())
        writer.write(rows)
        with proxy.outage("drops"):
            begun = time.monotonic()
            writer.abort()
            assert time.monotonic() - begun < 15
        left = [found.committable for found in committer.list_lingering()]
        assert left
        assert set(committer.abort(left)) == {AbortOutcome.ABORTED}
        assert not list(committer.list_lingering())


class TestLineToS3(LineConformance):
    @pytest.fixture
    def under(self, s3: LocalS3) -> SinkUnderTest:
        return through_a_proxy(s3)


@pytest.mark.chaos  # minutes: the client tries again after each cut
class TestLineToHdfs(LineConformance):
    """The line to the NameNode: where a file is, and whether it is published, is its word."""

    @pytest.fixture
    def under(self, hdfs: LocalHdfs) -> SinkUnderTest:
        return to_hdfs_through_a_proxy(hdfs)


class TestFilesElsewhere(SinkConformance, ExpiryConformance, ForgettingConformance):
    @pytest.fixture
    def under(self, elsewhere: SinkUnderTest) -> SinkUnderTest:
        return elsewhere

    def test_of_a_commit_and_an_abort_at_once_exactly_one_succeeds(
        self, under: SinkUnderTest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """S3Proxy ends an upload in several steps, and hears other requests between them: it
        completed an upload after answering that it was aborted. The sink is exclusive where the
        store is (docs/sinks/files.md), so here each request to S3 is one step."""
        one_step, call = threading.Lock(), S3Directory._call

        def alone(self: S3Directory, *operands: Any, **arguments: Any) -> Any:
            with one_step:
                return call(self, *operands, **arguments)

        monkeypatch.setattr(S3Directory, "_call", alone)
        super().test_of_a_commit_and_an_abort_at_once_exactly_one_succeeds(under)
