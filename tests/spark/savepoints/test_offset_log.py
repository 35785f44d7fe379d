"""Spark's offset log of version 2, and sources with names of Spark's own: queries go on from it,
savepoints hold it, and the verbs show it.

How: the same queries run with ``spark.sql.streaming.offsetLog.formatVersion`` 2, some with
`DataStreamReader.name`; each row must be in the output once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader

import seamark as sm
from seamark.checkpoint.spark_files import read_offsets
from seamark.model.errors import ConfigurationError
from seamark.savepoints.restore.origin import open_job
from seamark.savepoints.take.checkpoint import sources_of_job
from seamark.spark.hadoop_files import open_files
from tests.every_change import FileChanges
from tests.spark.jobs.test_write_stream import ids
from tests.threads import RunningJob

VERSION = "spark.sql.streaming.offsetLog.formatVersion"
EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
SINK_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSinkEvolution"
pytestmark = pytest.mark.skipif(
    not hasattr(DataStreamReader, "name"), reason="Spark before 4.2 has one version"
)


@pytest.fixture
def version_2(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(VERSION, "2")
    yield
    spark.conf.unset(VERSION)


@pytest.fixture
def named(spark: SparkSession, version_2: None) -> Iterator[None]:
    spark.conf.set(EVOLUTION, "true")
    yield
    spark.conf.unset(EVOLUTION)


def put(tmp_path: Path, folder: str, number: int) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / f"{number}.json").write_text(json.dumps({"id": number}))


def stream(spark: SparkSession, tmp_path: Path, folder: str, name: str = "") -> DataFrame:
    reader = spark.readStream.format("json").schema("id BIGINT")
    return (reader.name(name) if name else reader).load(str(tmp_path / folder))


def run(tmp_path: Path, frame: DataFrame, query: str = "q") -> sm.Job:
    writer = sm.write_stream(frame).format("json").option("path", str(tmp_path / "out"))
    writer = writer.option("checkpointLocation", str(tmp_path / "ck" / query))
    made = writer.trigger(availableNow=True).start()
    made.awaitTermination()
    return made.job


def last_entry(tmp_path: Path, query: str = "q") -> str:
    entries = (tmp_path / "ck" / query / "offsets").glob("[0-9]*")
    return max(entries, key=lambda path: int(path.name)).read_text()


@pytest.mark.parametrize("shape", ["one", "itself", "around"])
def test_a_query_goes_on(tmp_path: Path, spark: SparkSession, version_2: None, shape: str) -> None:
    times = {"one": [1, 0], "itself": [2, 0], "around": [2, 1]}[shape]
    expected: list[int] = []
    for number in range(3):
        put(tmp_path, "a", number)
        put(tmp_path, "b", 100 + number)
        expected += [number] * times[0] + [100 + number] * times[1]
        a, b = stream(spark, tmp_path, "a"), stream(spark, tmp_path, "b")
        frame = {"one": a, "itself": a.union(a), "around": a.union(b).union(a)}[shape]
        run(tmp_path, frame)
        assert ids(spark, tmp_path / "out") == sorted(expected)
    assert last_entry(tmp_path).startswith("v2\n")
    files = open_files(spark, str(tmp_path / "ck/q"), make=False)
    epoch = max(int(name) for name in files.list("offsets") if name.isdigit())
    assert set(read_offsets(files, epoch)) == {"one": {"0"}, "itself": {"1"}}.get(shape, {"1", "2"})


def test_named_sources_come_and_go_by_their_names(
    tmp_path: Path, spark: SparkSession, named: None
) -> None:
    def read(folder: str) -> DataFrame:
        return stream(spark, tmp_path, folder, {"a": "zebra", "b": "bee", "c": "_c"}[folder])

    for folder in "abc":
        put(tmp_path, folder, ord(folder))
    job = run(tmp_path, read("a").union(read("b")))
    assert list(job.declaration.sources) == ["zebra", "bee"]
    assert "zebra" in str(job.report())
    shown = sources_of_job(open_job(spark, f"file://{tmp_path}/ck/q", ""))
    assert {source.uid: source.offset for source in shown} == {
        "zebra": {"logOffset": 0},
        "bee": {"logOffset": 0},
    }
    for folder in "abc":
        put(tmp_path, folder, 10 * ord(folder))
    run(tmp_path, read("c").union(read("a")))  # without b, and in another order
    a, b, c = map(ord, "abc")
    assert ids(spark, tmp_path / "out") == sorted([a, 10 * a, b, c, 10 * c])
    run(tmp_path, read("b").union(read("c")).union(read("a")))
    assert ids(spark, tmp_path / "out") == sorted([a, 10 * a, b, 10 * b, c, 10 * c])
    spark.conf.unset(EVOLUTION)
    with pytest.raises(sm.ConfigurationError, match="have names of Spark's own"):
        run(tmp_path, stream(spark, tmp_path, "a"))
    run(tmp_path, stream(spark, tmp_path, "a"), "numbered")
    spark.conf.set(EVOLUTION, "true")
    with pytest.raises(sm.ConfigurationError, match="have no names of Spark's own"):
        run(tmp_path, read("a"), "numbered")


@pytest.mark.parametrize("names", [False, True])
def test_a_savepoint_holds_it_and_restores_by_uid(
    tmp_path: Path, spark: SparkSession, version_2: None, names: bool
) -> None:
    """The restored program has its sources in another order, and one more."""
    spark.conf.set(EVOLUTION, str(names).lower())

    def job(name: str, folders: str) -> sm.Job:
        checkpoint = sm.CheckpointConfig(storage=f"file://{tmp_path}/store", interval="100ms")
        made = sm.Job(name, checkpoint, output_mode="update")
        frames = [
            made.source(stream(spark, tmp_path, f, f"{f}_s" * names), f"uid-{f}", replayable=True)
            for f in folders
        ]
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.union(frame)
        counts = made.uid(rows.groupBy("id").count(), "counts")
        made.sink(counts, FileChanges(str(tmp_path / "out"), "json"), "out")
        return made

    try:
        for folder in "abc":
            put(tmp_path, folder, ord(folder))
        first = RunningJob(job("first", "ab"))
        first.wait_for_epochs(1)
        path = first.take("stop_with_savepoint", tmp_path / "savepoints")
        first.join()
        for folder in "abc":
            put(tmp_path, folder, 10 * ord(folder))
        second = job("second", "cba")
        second.restore_plan(path)
        again = RunningJob(second, restore=path)
        again.wait_for_epochs(1)
        again.end()
        written = [json.loads(line) for file in (tmp_path / "out").glob("*.json")
                   for line in file.read_text().splitlines()]  # fmt: skip
        expected = [ord(f) * times for f in "abc" for times in (1, 10)]
        assert sorted(row["id"] for row in written) == sorted(expected)
        assert {row["count"] for row in written} == {1}
        log = max(
            (tmp_path / "store/second/spark/offsets").glob("[0-9]*"),
            key=lambda entry: int(entry.name),
        ).read_text()
        assert log.startswith("v2\n" if names else "v1\n")
    finally:
        spark.conf.unset(EVOLUTION)


@pytest.mark.parametrize("uid", ["in", "in-put"])
def test_a_declared_source_has_its_uid_for_its_name(
    tmp_path: Path, spark: SparkSession, named: None, uid: str
) -> None:
    put(tmp_path, "a", 1)
    job = sm.Job("named", checkpoint=sm.CheckpointConfig(storage=f"file://{tmp_path}/store"))
    source = sm.FileSource(str(tmp_path / "a"), "json", "id BIGINT", ending="latest")
    if uid == "in-put":
        with pytest.raises(ConfigurationError, match=r"'in-put'.*letters, digits"):
            job.source(source, uid=uid)
        return
    job.sink(job.source(source, uid=uid), sm.FileSink(f"file://{tmp_path}/out", "json"), uid="o")
    job.run()
    assert ids(spark, tmp_path / "out") == [1]
    assert '\nin:{"logOffset":0}' in (tmp_path / "store/named/spark/offsets/0").read_text()


def test_a_sink_needs_no_name_where_spark_wants_one(
    tmp_path: Path, spark: SparkSession, version_2: None
) -> None:
    spark.conf.set(SINK_EVOLUTION, "true")
    try:
        for number in range(2):
            put(tmp_path, "a", number)
            run(tmp_path, stream(spark, tmp_path, "a"))
    finally:
        spark.conf.unset(SINK_EVOLUTION)
    assert ids(spark, tmp_path / "out") == [0, 1]
