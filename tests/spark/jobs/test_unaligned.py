"""Unaligned jobs in one Spark session, behind a slow sink: savepoints, statistics, the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.model.errors import ConfigurationError, DamagedCheckpointError, RestoreError
from seamark.streaming.query import StreamQuery
from tests.chaos.driver import Driver, wait_until
from tests.chaos.slow_sink import SlowSQLiteSink
from tests.chaos.workload import read_column
from tests.spark.jobs.unaligned_app import slow_job
from tests.threads import RunningJob

ROWS = 600


def fill(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = (json.dumps({"id": number}) for number in range(ROWS))
    (tmp_path / "in/rows.json").write_text("\n".join(lines))


def written(tmp_path: Path, name: str = "job") -> list[int]:
    database = tmp_path / f"{name}.db"
    return read_column(database, "t", "id") if database.exists() else []


def test_a_bounded_job_ends_when_nothing_is_left(tmp_path: Path) -> None:
    fill(tmp_path)
    job = slow_job(tmp_path, ending="latest")
    job.run()
    assert written(tmp_path) == list(range(ROWS)), "every row once, in order"
    checkpoints = list(reversed(job.checkpoints().history))
    assert len(checkpoints) > 2
    assert [c.unaligned for c in checkpoints] == [True] * (len(checkpoints) - 1) + [False]
    sizes = [c.persisted_data for c in checkpoints]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0 < sizes[0]
    assert all(c.processed_data > 0 for c in checkpoints)
    (out,) = (task for task in checkpoints[0].tasks if task.uid == "out")
    assert out.subtasks[0].unaligned
    assert out.subtasks[0].persisted_data == checkpoints[0].persisted_data


def test_a_query_of_one_epoch_leaves_no_rows(tmp_path: Path, spark: SparkSession) -> None:
    """No epoch after it would write them. Those of a run before are written too."""
    fill(tmp_path)
    rows = spark.readStream.schema("id BIGINT").json(str(tmp_path / "in"))
    checkpoint = sm.CheckpointConfig(unaligned=True, aligned_timeout="200ms")

    def start(**trigger: Any) -> StreamQuery:
        sink = SlowSQLiteSink(str(tmp_path / "job.db"), table="t")
        writer = sm.write_stream(rows, sink, checkpoint=checkpoint).trigger(**trigger)
        return writer.option("checkpointLocation", str(tmp_path / "store/job")).start()

    query = start(processingTime="1 second")
    wait_until("an epoch", lambda: len(written(tmp_path)) > 0, 60)
    query.stop()
    assert len(written(tmp_path)) < ROWS, "nothing waits"
    (tmp_path / "in/more.json").write_text(
        "\n".join(json.dumps({"id": ROWS + number}) for number in range(ROWS))
    )
    query = start(once=True)
    query.awaitTermination()
    assert not query.job.checkpoints().history[0].unaligned
    # An epoch that the stopped query had planned is run again alone, as by Spark's own.
    assert written(tmp_path)[:ROWS] == list(range(ROWS))
    start(once=True).awaitTermination()
    assert written(tmp_path) == list(range(2 * ROWS))


def test_a_savepoint_has_no_channel_state(tmp_path: Path) -> None:
    """The interval is an hour: while rows wait, epochs run without it."""
    fill(tmp_path)
    job = slow_job(tmp_path)
    running = RunningJob(job)
    wait_until("two epochs", lambda: len(written(tmp_path)) > 0 and job.checkpoints().history, 60)
    savepoint = job.savepoint(str(tmp_path / "savepoints")).result(300)
    assert written(tmp_path) == list(range(ROWS)), "the savepoint's epoch wrote the rest"
    running.end()
    assert any(c.unaligned for c in job.checkpoints().history)
    slow_job(tmp_path, "restored", ending="latest").run(restore=savepoint)
    assert written(tmp_path, "restored") == []


def test_a_retained_checkpoint_takes_its_channel_state_into_another_job(tmp_path: Path) -> None:
    """The first job dies with an epoch decided and not committed, the restore while it copies, the
    restored job with rows in flight; both write into one table."""
    fill(tmp_path)
    app, first = Path(__file__).with_name("unaligned_app.py"), str(tmp_path / "store/job")
    options = {"home": str(tmp_path)}
    Driver(app, options, tmp_path / "first.log", "decided:3").die()
    before = written(tmp_path)
    assert 0 < len(before) < ROWS
    with pytest.raises(RestoreError, match="keeps its number of state partitions"):
        slow_job(tmp_path, "heir", "latest", "job").run(restore=first, parallelism=3)
    for failpoint in ("file-restored:5", "restore-copied", "prepared:2"):
        heir = {**options, "name": "heir", "restore": first}
        Driver(app, heir, tmp_path / f"{failpoint}.log", failpoint).die()
    slow_job(tmp_path, "heir", "latest", "job").run(restore=first)
    assert written(tmp_path) == list(range(ROWS)), "every row once, in order"


def test_damaged_channel_state_is_found_before_a_restored_job_exists(tmp_path: Path) -> None:
    fill(tmp_path)
    job = slow_job(tmp_path)
    running = RunningJob(job)
    running.wait_for_epochs(2)
    running.end()
    newest = job.checkpoints().history[0]
    assert newest.unaligned
    (file,) = (tmp_path / "store/job/channel-state").rglob("*.arrow")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DamagedCheckpointError, match=r"channel-state/.*do not match"):
        slow_job(tmp_path, "other", "latest").run(restore=f"{tmp_path}/store/job")
    assert not (tmp_path / "store/other/job.json").exists()


def test_rows_that_wait_for_other_columns_of_their_sink_are_not_taken_over(tmp_path: Path) -> None:
    """Their sink would take null for the new column of each, or fail in each epoch."""

    def job(name: str, *columns: str, sinks: int = 1) -> sm.Job:
        checkpoint = sm.CheckpointConfig(
            storage=str(tmp_path / "store"), interval="1h", unaligned=True, aligned_timeout="200ms"
        )
        made = sm.Job(name, checkpoint)
        source = sm.FileSource(str(tmp_path / "in"), format="json", schema="id BIGINT")
        rows = made.source(source, "in")
        for number in range(sinks):
            sink = SlowSQLiteSink(str(tmp_path / f"{number}.db"), table="t")
            made.sink(rows.selectExpr(*columns), sink, f"out-{number}")
        return made

    fill(tmp_path)
    before = "id", "array(named_struct('at', timestamp_seconds(id))) AS list", "'x' AS text"
    for name, sinks in (("one", 1), ("two", 2)):
        running = RunningJob(job(name, *before, sinks=sinks))
        running.wait_for_epochs(1)
        running.end()
        now = "id", "'x' AS other"
        unfit = r"for sink 'out-0' with the columns struct<id:bigint,list:.*,text:string>, and the"
        with pytest.raises(ConfigurationError, match=unfit):
            job(name, *now, sinks=sinks).run()
        with pytest.raises(RestoreError, match=f"nothing was written: .*{unfit}"):
            job("other", *now, sinks=sinks).run(restore=f"{tmp_path}/store/{name}")
        assert (
            job("other", *before, sinks=sinks).restore_plan(f"{tmp_path}/store/{name}").restorable
        )


@pytest.mark.parametrize("direct", [True, False])
def test_a_slow_function_is_interrupted_where_a_sink_takes_its_result_as_it_is(
    tmp_path: Path, direct: bool
) -> None:
    def slow(row: dict[str, int]) -> dict[str, int] | None:
        time.sleep(0.004)
        return {"id": -row["id"]} if row["id"] % 2 else None

    fill(tmp_path)
    checkpoint = sm.CheckpointConfig(
        storage=str(tmp_path / "store"), unaligned=True, aligned_timeout="200ms"
    )
    job = sm.Job("job", checkpoint)
    source = sm.FileSource(str(tmp_path / "in"), format="json", schema="id BIGINT", ending="latest")
    made = sm.process(job.source(source, "in"), slow, "id BIGINT", uid="slow", mode="row")
    rows = made if direct else made.where("id < 0")
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "job.db"), table="t"), "out")
    interrupted = "process slow runs in the tasks of out: unaligned epochs interrupt it"
    assert (interrupted in str(job.report())) == direct
    job.run()
    assert written(tmp_path) == [-number for number in range(1, ROWS, 2)]
    checkpoints = list(reversed(job.checkpoints().history))
    if direct:
        assert checkpoints[0].unaligned
        assert len(checkpoints) > 2
    else:  # the first epoch calls the function for each row
        assert checkpoints[0].sync_duration >= ROWS * 4


def test_rows_that_wait_for_a_function_are_processed_once_or_not_taken_over(tmp_path: Path) -> None:
    """The sink's input and the function's result have the same columns, so no row would look wrong:
    processed by none, or twice."""

    def negative(row: dict[str, int]) -> dict[str, int]:
        time.sleep(0.01)
        return {"id": -row["id"] - 1}

    def job(name: str = "job", *, processes: bool) -> sm.Job:
        checkpoint = sm.CheckpointConfig(
            storage=str(tmp_path / "store"), unaligned=True, aligned_timeout="200ms"
        )
        made = sm.Job(name, checkpoint)
        source = sm.FileSource(str(tmp_path / "in"), format="json", schema="id BIGINT")
        rows = made.source(source, "in")
        result = sm.process(rows, negative, "id BIGINT", uid="negative", mode="row")
        sink = sm.SQLiteSink(str(tmp_path / "job.db"), table="t")
        made.sink(result if processes else rows, sink, "out")
        return made

    fill(tmp_path)
    running = RunningJob(job(processes=True))
    wait_until("a row", lambda: running.error or written(tmp_path), 120)
    running.end()
    assert len(written(tmp_path)) < ROWS, "nothing waits"
    with pytest.raises(ConfigurationError, match=r"not yet processed by its sm\.process"):
        job(processes=False).run()
    with pytest.raises(RestoreError, match=r"nothing was written.*not yet processed by its sm\."):
        job("other", processes=False).run(restore=f"{tmp_path}/store/job")
    assert not (tmp_path / "store/other").exists()
    running = RunningJob(job(processes=True))
    wait_until("all rows", lambda: running.error or len(written(tmp_path)) == ROWS, 120)
    running.end()
    assert written(tmp_path) == [-number - 1 for number in range(ROWS)]


def test_a_function_gives_timestamps(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    fill(tmp_path)
    job = sm.Job("job", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    source = sm.FileSource(str(tmp_path / "in"), format="json", schema="id BIGINT", ending="latest")

    def stamped(row: dict[str, int]) -> dict[str, object]:
        return {"id": row["id"], "at": moment}

    rows = job.source(source, "in")
    made = sm.process(rows, stamped, "id BIGINT, at TIMESTAMP", uid="stamp", mode="row")
    job.sink(made, sm.FileSink(str(tmp_path / "direct"), format="parquet"), "direct")
    job.sink(made.where("id < 3"), sm.FileSink(str(tmp_path / "step"), format="parquet"), "step")
    job.run()
    for name, count in (("direct", ROWS), ("step", 3)):
        files = (tmp_path / name).glob("*.parquet")
        found = [row["at"] for path in files for row in pq.read_table(path).to_pylist()]
        assert [at.astimezone(timezone.utc) for at in found] == [moment] * count


def test_a_function_is_taken_as_it_is_when_declared(tmp_path: Path) -> None:
    """As PySpark takes that of `mapInArrow`, also where a sink's tasks call it."""
    fill(tmp_path)
    job = sm.Job("job", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    source = sm.FileSource(str(tmp_path / "in"), format="json", schema="id BIGINT", ending="latest")
    rows = job.source(source, "in").where("id = 0")
    for name in ("a", "b"):

        def named(row: dict[str, int]) -> dict[str, str]:
            return {"name": name}  # noqa: B023

        made = sm.process(rows, named, "name STRING", uid=name, mode="row")
        job.sink(made, sm.FileSink(str(tmp_path / f"direct-{name}")), f"direct-{name}")
        step = made.where("name > ''")
        job.sink(step, sm.FileSink(str(tmp_path / f"step-{name}")), f"step-{name}")
    job.run()
    for place in ("step", "direct"):
        for name in ("a", "b"):
            assert pq.read_table(tmp_path / f"{place}-{name}").to_pylist() == [{"name": name}]


@pytest.fixture
def zone_of_java(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "GMT+8")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("zone_of_java")
def test_a_zone_of_java_alone_and_times_without_a_zone(tmp_path: Path) -> None:
    fill(tmp_path)
    job = sm.Job("job", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    schema = "id BIGINT, `timestamp` STRING"
    source = sm.FileSource(str(tmp_path / "in"), format="json", schema=schema, ending="latest")
    noon = datetime(2026, 7, 1, 12)
    made = sm.process(
        job.source(source, "in").selectExpr("*", "TIMESTAMP_NTZ'2026-07-01 12:00:00' AS at"),
        lambda row: {"at": row["at"], "timestamp": row["id"]},
        "at TIMESTAMP_NTZ, `timestamp` BIGINT",
        uid="plain",
        mode="row",
    )
    job.sink(made, sm.FileSink(str(tmp_path / "out"), format="parquet"), "out")
    job.run()
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert len(rows) == ROWS
    assert {row["at"] for row in rows} == {noon}


@pytest.mark.usefixtures("zone_of_java")
@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("at TIMESTAMP", "id BIGINT"),
        ("list ARRAY<STRUCT<at: TIMESTAMP>>", "id BIGINT"),
        ("id BIGINT", "at TIMESTAMP"),
        ("id BIGINT", "by MAP<TIMESTAMP, STRING>"),
    ],
)
def test_a_zone_of_java_alone_and_timestamps(tmp_path: Path, given: str, made: str) -> None:
    fill(tmp_path)
    job = sm.Job("job", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    source = sm.FileSource(str(tmp_path / "in"), format="json", schema=given, ending="latest")
    rows = job.source(source, "in")
    with pytest.raises(ConfigurationError, match=r"'p'.*timeZone is 'GMT\+8'"):
        sm.process(rows, dict, made, uid="p", mode="row")
    sm.process(rows, lambda batch: batch, made, uid="p")


@pytest.mark.parametrize(
    ("columns", "made", "mode"),
    [
        (["id", "id"], "id BIGINT", "row"),
        (["id"], "n BIGINT, n BIGINT", "row"),
        (["id"], "n BIGINT, n BIGINT", "batch"),
    ],
)
def test_a_dict_cannot_have_two_columns_of_a_name(
    spark: SparkSession, columns: list[str], made: str, mode: str
) -> None:
    """The later one's values stood for both."""
    rows = spark.readStream.format("rate").load().selectExpr("value AS id")
    rows = rows.select(*columns)
    with pytest.raises(
        ConfigurationError, match=r"'p': its (input|schema) has the column .* twice"
    ):
        sm.process(rows, dict, made, uid="p", mode=mode)
