"""How: programs with mistakes, as users make them, are explained and run. Each job lies in a
storage of its own; no server is needed."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import seamark as sm
from seamark.files.location import real_place
from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding
from seamark.sources.fields import RandomInt
from seamark.spark.file_sources import FilesRead
from tests.threads import RunningJob

FIELDS = {"n": RandomInt(1, 9)}
REDIS = sm.RedisSink("redis://127.0.0.1:1", key="id")
PROGRAM = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
import seamark as sm
from seamark.sources.fields import RandomInt

def label(value):
    return str(value)

job = sm.Job("mistaken", sm.CheckpointConfig(storage={storage!r}, num_retained=1))
rows = job.source(sm.DatagenSource(rows_per_second=9, fields={{"n": RandomInt(1, 9)}}), uid="in")
rows = rows.withColumn("r", F.rand())
rows = rows.withColumn("u", F.expr("uuid()"))
rows = rows.withColumn("s", (F.randn() * 2).alias("s"))
rows = rows.withColumn("l", F.udf(label, StringType())("n"))
keyed = rows.selectExpr("string(n) AS id", "r", "u", "s", "l")
job.sink(keyed, sm.RedisSink("redis://:hunter22@127.0.0.1:1", key="id"), uid="cache")
kafka = sm.KafkaSink(
    "127.0.0.1:1", topic="out", transactional_id_prefix="p" * 90, transaction_timeout="5min"
)
job.sink(rows.selectExpr("string(n) AS value"), kafka, uid="out")
loose = sm.KafkaSink("127.0.0.1:1", topic="out", delivery_guarantee="at-least-once")
job.sink(rows.selectExpr("string(n) AS value"), loose, uid="loose")
if __name__ == "__main__":
    job.run()
"""


def codes(findings: Any) -> list[str]:
    return [one["code"] if isinstance(one, dict) else one.code.name for one in findings]


def found(job: sm.Job, code: str) -> list[Finding]:
    return [one for one in job.report().findings if one.code.name == code]


def test_a_program_with_mistakes_is_told_each_of_them(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(PROGRAM.format(storage=str(tmp_path / "store")))
    lines = {
        name: number
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        for name in ("rand()", "randn()", "def label")
        if name in line
    }
    told = subprocess.run(
        [sys.executable, "-m", "seamark", "explain", "--json", str(app)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert told.returncode == 2, told.stderr  # an error is among them
    report = json.loads(told.stdout)["mistaken"]
    assert "hunter22" not in told.stdout + told.stderr
    assert codes(report["findings"]) == [
        "KF004", "ST002", "ST002", "ST002", "CP001", "CP004", "SK001", "KF003", "ST003"
    ]  # fmt: skip
    assert {one["severity"] for one in report["findings"][1:8]} == {"warning"}
    by_code = {one["found"]: one for one in report["findings"]}
    for column, place in {
        "r: rand()": f"app.py:{lines['rand()']}",
        "u: uuid()": '"uuid()"',
        "s: randn()": f"app.py:{lines['randn()']}",
        "l: label()": f"app.py:{lines['def label']}",
    }.items():
        (text,) = [one for one in by_code if one.startswith(f"{column} at {place} ")]
        assert by_code[text]["subject"] == "sink `cache`"
    ends = {end["uid"]: end for end in report["sinks"]}
    assert {uid: end["guarantee"] for uid, end in ends.items()} == {
        "cache": "at-least-once", "out": "exactly-once", "loose": "at-least-once"
    }  # fmt: skip
    assert ends["out"]["chain"] == ["in", "out"]
    # And the job is refused, before anything is written.
    run = subprocess.run(
        [sys.executable, str(app)], capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 1
    assert "ConfigurationError: sink `out`: transaction timeout 300s is not above" in run.stderr
    assert "KF004" in run.stderr
    assert not (tmp_path / "store").exists()


def test_two_sinks_of_one_table_whose_rows_replace_each_other(
    tmp_path: Path, rate: DataFrame
) -> None:
    """Of two that append every row stays: one table may well take them."""
    for keys, findings in (((), 0), (("value",), 1)):
        job = sm.Job("shared", sm.CheckpointConfig(storage=str(tmp_path)))
        job.source(rate, "rate", replayable=True)
        for uid in ("one", "two"):
            job.sink(rate, sm.SQLiteSink(str(tmp_path / "shop.db"), "orders", keys=keys), uid)
        assert len(found(job, "SK002")) == findings


def test_lines_are_named_where_spark_keeps_none(
    tmp_path: Path, rate: DataFrame, spark: SparkSession
) -> None:
    job = sm.Job("lines", sm.CheckpointConfig(storage=str(tmp_path)))
    job.source(rate, "rate", replayable=True)
    rows = rate.withColumn("a", F.rand()).withColumn("b", F.rand())
    nothing = F.udf(lambda: 1, LongType()).asNondeterministic()
    rows = rows.mapInPandas(lambda frames: frames, rows.schema).withColumn("c", nothing())
    job.sink(rows.selectExpr("string(value) AS id", "a", "b", "c"), REDIS, "out")
    here = Path(__file__).read_text().splitlines()
    declared = next(n for n, line in enumerate(here, 1) if "REDIS, " + '"out")' in line)
    varying = [one.found for one in found(job, "ST002")]
    assert any(f"a: rand() at a line before test_findings.py:{declared} " in one for one in varying)
    nothing_at = next(n for n, line in enumerate(here, 1) if "nothing = F.udf" in line)
    assert any(f"c: <lambda>() at test_findings.py:{nothing_at} " in one for one in varying)
    (python,) = found(job, "ST003")
    assert "mapinpandas: <lambda>() at test_findings.py:" in python.found


def test_a_job_logs_its_warnings_and_stores_its_findings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from seamark.operations.reading import explain_job

    storage = tmp_path / "store"
    job = sm.Job("told", sm.CheckpointConfig(storage=str(storage), num_retained=1))
    rows = job.source(
        sm.DatagenSource(rows_per_second=9, number_of_rows=10, fields=FIELDS), uid="in"
    )
    for uid in ("one", "two"):
        job.sink(rows, sm.FileSink(str(tmp_path / uid), format="json"), uid)
    with caplog.at_level(logging.WARNING, "seamark"):
        job.run()
    (warned,) = [r.getMessage() for r in caplog.records if "CP004" in r.getMessage()]
    assert warned.startswith("checkpoint num_retained: it is 1")
    stored = explain_job("told", f"file://{storage}")["told"]
    assert stored == job.report()
    assert "plan: one, two share one stream" in str(stored)
    assert "CP004 checkpoint num_retained" in str(stored)


def test_a_second_job_on_a_running_jobs_target_is_warned(tmp_path: Path) -> None:
    storage = str(tmp_path / "store")

    def job(name: str) -> sm.Job:
        made = sm.Job(name, sm.CheckpointConfig(storage=storage, interval="100ms"))
        rows = made.source(sm.DatagenSource(rows_per_second=9, fields=FIELDS), uid="in")
        made.sink(rows, sm.FileSink(str(tmp_path / "out"), format="json"), "out")
        return made

    second = job("second")
    first = RunningJob(job("first"))
    first.wait_for_epochs(1)
    (shared,) = found(second, "SK002")
    assert shared.found.startswith(
        f"job 'first', which has not ended, also writes files: {tmp_path}"
    )
    first.end()
    assert found(second, "SK002") == []


class HastySink(sm.FileSink):
    """A user's own, for a system that gives up a file after a minute."""

    def check_transaction_scope(self, context: sm.SinkContext) -> None:
        if context.checkpoint_interval_s > 60:
            raise ConfigurationError(
                f"the archive drops a file after 60 s, and the interval is "
                f"{context.checkpoint_interval_s:g} s; lower it below 60 s"
            )


def test_a_sink_of_ones_own_refuses_the_jobs_settings(tmp_path: Path) -> None:
    def job(interval: str) -> sm.Job:
        config = sm.CheckpointConfig(storage=str(tmp_path / "store"), interval=interval)
        made = sm.Job(f"every-{interval}", config)
        rows = made.source(
            sm.DatagenSource(rows_per_second=9, number_of_rows=9, fields=FIELDS), uid="in"
        )
        made.sink(rows, HastySink(str(tmp_path / "out"), format="json"), "archive")
        return made

    slow = job("5min")
    (refusal,) = found(slow, "SK004")
    told = "the archive drops a file after 60 s, and the interval is 300 s"
    assert (refusal.subject, refusal.found) == ("sink `archive`", told)
    assert refusal.remedy == "lower it below 60 s"
    assert f"SK004 sink `archive`: {told}" in str(slow.report())
    with pytest.raises(ConfigurationError, match=told):
        slow.run()
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").rglob("*.json"))
    quick = job("1s")
    assert found(quick, "SK004") == []
    quick.run()
    assert list((tmp_path / "out").rglob("*.json"))


ADDING = {
    "files": lambda at: sm.FileSink(str(at)),
    "delta": lambda at: sm.DeltaSink(str(at), create_table=True),
    "sqlite": lambda at: sm.SQLiteSink(f"{at}.db", "t"),
    "postgres": lambda at: sm.PostgresSink("postgresql://u@127.0.0.1:1/d", "t", mode="staged"),
    "mysql": lambda at: sm.MySQLSink("mysql://u@127.0.0.1:1/d", "t", mode="staged"),
    "append": lambda at: sm.WriteAheadSink.spark_format("json", {"path": str(at)}),
}


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_result_that_comes_again_is_refused_by_sinks_that_add_rows(
    tmp_path: Path, rate: DataFrame, mode: str
) -> None:
    counts = rate.groupBy("value").count()
    settings = sm.CheckpointConfig(storage=f"file://{tmp_path}/store")
    job = sm.Job("again", settings, output_mode=mode)
    job.source(rate, "rate", replayable=True)
    for uid, sink in ADDING.items():
        job.sink(counts, sink(tmp_path / uid), uid)
    job.sink(counts.selectExpr("string(value) AS id", "count"), REDIS, "redis")
    function = sm.WriteAheadSink.foreach_batch(lambda df, token: None)
    job.sink(counts, function, "function")
    assert [f.subject for f in found(job, "SK006")] == [f"sink `{uid}`" for uid in ADDING]
    with pytest.raises(sm.ConfigurationError, match="SK006"):
        job.run()
    for uid, sink in ADDING.items():
        writer = sm.write_stream(counts, sink(tmp_path / uid)).outputMode(mode)
        with pytest.raises(sm.ConfigurationError, match=f"output mode is '{mode}'.*SK006"):
            writer.option("checkpointLocation", str(tmp_path / "ck" / uid)).start()
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_comes_once_may_be_added_in_update_mode(tmp_path: Path, rate: DataFrame) -> None:
    settings = sm.CheckpointConfig(storage=f"file://{tmp_path}/store")
    job = sm.Job("once", settings, output_mode="update")
    job.source(rate, "rate", replayable=True)
    late = rate.withWatermark("timestamp", "1 minute")
    job.sink(rate, sm.FileSink(str(tmp_path / "raw")), "raw")
    job.sink(late.dropDuplicates(["value", "timestamp"]), sm.FileSink(str(tmp_path / "b")), "b")
    # Spark repeats a key of these in each epoch in which it comes.
    rate.createOrReplaceTempView("rate")
    distinct = rate.sparkSession.sql("SELECT DISTINCT value FROM rate")
    job.sink(distinct, sm.FileSink(str(tmp_path / "c")), "c")
    assert [f.subject for f in found(job, "SK006")] == ["sink `c`"]


def test_a_sink_that_overwrites_earlier_epochs_is_refused(tmp_path: Path, rate: DataFrame) -> None:
    over = sm.WriteAheadSink.spark_format("json", {"path": str(tmp_path / "o")}, "overwrite")
    each = sm.WriteAheadSink.spark_format("json", {"path": f"{tmp_path}/{{epoch}}"}, "overwrite")
    counts = rate.groupBy("value").count()
    for mode, frame, refused in [
        ("append", rate, ["sink `over`"]), ("update", rate, ["sink `over`"]),
        ("update", counts, ["sink `over`"]), ("complete", counts, []),
    ]:  # fmt: skip
        settings = sm.CheckpointConfig(storage=f"file://{tmp_path}/store")
        job = sm.Job("over", settings, output_mode=mode)
        job.source(rate, "rate", replayable=True)
        job.sink(frame, over, "over")
        job.sink(frame, each, "each")
        assert [f.subject for f in found(job, "SK006")] == refused
        if refused:
            with pytest.raises(sm.ConfigurationError, match="delete the rows of the epochs before"):
                job.run()
    letters = sm.Job("letters", settings)
    letters.source(rate, "rate", replayable=True)
    rows = rate.selectExpr("string(value) AS id", "value")
    letters.sink(rows, REDIS, "out", on_bad_row="dead_letter", dead_letters=over)
    assert len(found(letters, "SK006")) == 1
    assert list(tmp_path.iterdir()) == []


def test_dead_letters_come_again_in_each_epoch_of_complete_mode(
    tmp_path: Path, rate: DataFrame
) -> None:
    counts = rate.groupBy("value").count().selectExpr("string(value) AS id", "count")
    letters = sm.FileSink(str(tmp_path / "letters"))
    for mode, refused in (("update", []), ("complete", ["sink `out.dead-letters`"])):
        settings = sm.CheckpointConfig(storage=f"file://{tmp_path}/store")
        job = sm.Job("letters", settings, output_mode=mode)
        job.source(rate, "rate", replayable=True)
        job.sink(counts, REDIS, "out", on_bad_row="dead_letter", dead_letters=letters)
        assert [f.subject for f in found(job, "SK006")] == refused
    with pytest.raises(sm.ConfigurationError, match="SK006"):
        job.run()
    assert list(tmp_path.iterdir()) == []


def test_a_file_source_that_passes_over_files_is_told(tmp_path: Path, spark: SparkSession) -> None:
    """By its own option, whatever Spark's setting is, and by the setting alone."""
    (tmp_path / "in").mkdir()
    setting, told = "spark.sql.files.ignoreCorruptFiles", []
    for option, value, session in (
        ("ignoreMissingFiles", "TRUE", "false"),
        ("ignoreCorruptFiles", "false", "true"),
        ("maxFilesPerTrigger", "1", "true"),
        ("cleanSource", "delete", "false"),
        ("cleanSource", "off", "false"),
    ):
        spark.conf.set(setting, session)
        try:
            reader = spark.readStream.schema("id LONG").option(option, value)
            job = sm.Job("skips", sm.CheckpointConfig(storage=str(tmp_path / "store")))
            rows = job.source(reader.json(str(tmp_path / "in")), "in", replayable=True)
            job.sink(rows, sm.FileSink(str(tmp_path / "out")), "out")
            told.append([one.found.split()[0] for one in found(job, "SC003")])
        finally:
            spark.conf.unset(setting)
    assert told == [["ignoreMissingFiles"], [], ["ignoreCorruptFiles"], ["cleanSource"], []]


def test_files_of_a_delta_table_and_s3_by_another_name(tmp_path: Path, rate: DataFrame) -> None:
    for sink, fed in (
        (sm.DeltaSink(str(tmp_path / "in"), create_table=True), True),
        (sm.DeltaSink(str(tmp_path / "in"), partition_by=["day"], create_table=True), True),
        (sm.DeltaSink(str(tmp_path / "out"), create_table=True), False),
    ):
        job = sm.Job("delta", sm.CheckpointConfig(storage=str(tmp_path / "store")))
        source = sm.FileSource(str(tmp_path / "in"), "parquet", "id LONG, day LONG")
        (tmp_path / "in").mkdir(exist_ok=True)
        job.sink(job.source(source, "in"), sink, "out")
        assert [one.weight.value for one in found(job, "SK007")] == ["error"] * fed
    for sink in (sm.FileSink("s3://lake/in"), sm.DeltaSink("s3a://lake/in", create_table=True)):
        assert FilesRead(real_place("s3n://lake/in"), False, "*").reads(sink.example_file)
        assert FilesRead(real_place("s3a://lake/*"), False, "*").reads(sink.example_file)
    assert list(sm.FileSink("s3://lake/in").places) == list(sm.FileSink("s3a://lake/in").places)


@pytest.mark.parametrize(
    ("read", "written", "by", "options", "fed"),
    [
        ("in", "in", (), {}, True),
        ("in", "in", ("day",), {}, True),
        ("link", "in", (), {}, True),
        ("in", "in/out", (), {}, False),
        ("in", "in/out", ("day",), {}, True),
        ("in", "in/day=1", (), {}, True),
        ("in", "in/out", (), {"recursiveFileLookup": True}, True),
        ("in", "in/_out", (), {"recursiveFileLookup": True}, False),
        ("in", "in", (), {"pathGlobFilter": "clicks-*"}, False),
        ("in", "input", (), {}, False),
        ("in/a", "in", (), {}, False),
        ("in/day=1", "in", ("day",), {}, True),
        ("in/day=1", "in", ("hour",), {}, False),
        ("*", "out", (), {}, True),
        ("{in,o*}", "out", (), {}, True),
        ("{in/x,out}", "out", (), {}, True),
        ("i*", "out", (), {}, False),
        ("*/x", "out", (), {}, False),
        ("in/*.parquet", "in", (), {}, True),
        ("in/clicks*", "in", (), {}, False),
    ],
)
def test_a_sink_of_files_that_its_source_would_read_is_refused(
    tmp_path: Path, spark: SparkSession, read: str, written: str, by: Any, options: Any, fed: bool
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to("in")
    path, target = str(tmp_path / read), str(tmp_path / written)
    if not {"*", "{"} & {*read}:
        Path(path).mkdir(exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    stream = spark.readStream.schema("id LONG, day LONG, hour LONG").options(**options)
    for kind in ("source", "plain"):
        job = sm.Job(kind, sm.CheckpointConfig(storage=str(tmp_path / "store")))
        source = sm.FileSource(path, "json", "id LONG, day LONG, hour LONG", options=options)
        given = {} if kind == "source" else {"replayable": True}
        rows = job.source(source if kind == "source" else stream.json(path), "in", **given)
        job.sink(rows, sm.FileSink(target, partition_by=by), "out")
        findings = found(job, "SK007")
        assert [one.weight.value for one in findings] == ["error"] * fed
        for one in findings:
            assert "source `in` reads files: /" in one.found
            assert f"this sink writes files: {target}:" in one.found
    if fed:
        writer = sm.write_stream(stream.json(path)).format("parquet").partitionBy(*by)
        writer = writer.option("checkpointLocation", str(tmp_path / "store/q"))
        with pytest.raises(ConfigurationError, match="a directory that the source does not read"):
            writer.start(target)
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["json", "delta"])
def test_a_sink_in_the_job_s_own_checkpoint_is_refused(
    tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    """Readers of JSON would get the checkpoint's records as rows."""
    (tmp_path / "in").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    rows = spark.readStream.schema("id LONG").json(str(tmp_path / "in"))
    target = str(tmp_path / "link/q/")
    for path, store, refused in (
        (target, "store", True),
        (str(tmp_path / "store/q/out"), "store", False),
        (str(tmp_path), "link", True),
        (str(tmp_path), "_checkpoints", False),
        (str(tmp_path / "st"), "store", False),
    ):
        job = sm.Job("q", sm.CheckpointConfig(storage=str(tmp_path / store)))
        sink = sm.FileSink(path, "json") if kind == "json" else sm.DeltaSink(path)
        job.sink(job.source(rows, "in", replayable=True), sink, "out")
        assert [one.subject for one in found(job, "SK008")] == ["sink `out`"] * refused
    writer = sm.write_stream(rows).format(kind).option("path", target)
    with pytest.raises(ConfigurationError, match="where the job's checkpoint is"):
        writer.option("checkpointLocation", str(tmp_path / "store/q")).start()
    assert not [*(tmp_path / "store").iterdir()]
