"""Rows of a keyed operator that is too slow wait with their key, and are processed in order.

How: jobs over small files, with a function that sleeps at each row, so that rows are left at every
deadline. The judge is a plain model of the function: a row's number, sum and count show whether a
row of its key was lost, came twice or came out of order.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

import seamark as sm
from seamark.model.errors import ConfigurationError
from seamark.model.failpoints import reached_line
from seamark.run.held_watermark import KeyedEpochs
from tests.chaos.driver import Driver, wait_until
from tests.spark.jobs.keyed_programs import (
    CONFIG,
    KEYS,
    NUMBERED,
    SCHEMA,
    START,
    Input,
    Keys,
    Moments,
    Numbering,
    check_numbers,
    check_sessions,
    numbered,
    numbering_job,
    results,
    sessions_job,
    with_watermark,
)
from tests.threads import RunningJob

UNALIGNED: dict[str, Any] = {"unaligned": True, "aligned_timeout": "300ms"}
ZONE = "spark.sql.session.timeZone"
END = {"k": "~end", "v": 0, "at": START + 1_000_000}
"""A row far in the future: it drives the watermark on."""


def wait_for_rows(home: Path, running: RunningJob, rows: int) -> None:
    def there() -> bool:
        if running.error is not None:
            raise running.error
        return len(results(home / "out")) >= rows

    wait_until(f"{rows} rows", there, 300)


def run_until_rows_wait(home: Path, given: Input) -> None:
    """Run a slow job for its first results, and end it while rows wait."""
    running = RunningJob(numbering_job(home, 0.02, **UNALIGNED), parallelism=2)
    wait_for_rows(home, running, 1)
    running.end()
    assert len(results(home / "out")) < given.rows, (
        "nothing was in flight: make the function slower"
    )
    newest = running.job.checkpoints().history[0]
    assert newest.unaligned
    (operator,) = (task for task in newest.tasks if task.persisted_data)
    assert operator.kind == "operator"
    assert newest.persisted_data == operator.persisted_data
    assert [subtask.unaligned for subtask in operator.subtasks] == [True, True]


def finish(home: Path, given: Input, name: str = "numbers", **how: Any) -> None:
    given.add()  # behind the rows that wait
    running = RunningJob(numbering_job(home, 0.0, name=name), **how)
    wait_for_rows(home, running, given.rows)
    running.end()
    check_numbers(home, given)


def test_rows_past_the_deadline_wait_and_keep_their_order(tmp_path: Path) -> None:
    given = Input(tmp_path / "in", rows=100)
    given.add(files=2)
    run_until_rows_wait(tmp_path, given)
    finish(tmp_path, given)  # aligned: the rows that wait come first


def test_no_key_is_passed_by_while_rows_arrive(tmp_path: Path) -> None:
    """Epochs drain what waits without new rows, too."""
    given = Input(tmp_path / "in", rows=60)
    given.add(files=6)
    running = RunningJob(numbering_job(tmp_path, 0.01, **UNALIGNED), parallelism=2)
    wait_for_rows(tmp_path, running, given.rows)
    assert running.job.checkpoints().counts.completed > 6, "no epoch was cut"
    running.end()
    check_numbers(tmp_path, given)


def test_timers_keep_their_order_with_the_rows_that_wait(tmp_path: Path) -> None:
    given = Input(tmp_path / "in", rows=40)
    given.add(files=4)
    running = RunningJob(sessions_job(tmp_path, 0.02, **UNALIGNED), parallelism=2)
    wait_for_rows(tmp_path, running, 1)
    running.end()  # the next driver does not know the times of the rows that wait
    running = RunningJob(sessions_job(tmp_path, 0.01, **UNALIGNED))

    def complete() -> bool:
        if running.error is not None:
            raise running.error
        given.put([END])
        rows = [row for row in results(tmp_path / "out") if row["k"] != END["k"]]
        timers = {(row["k"], row["at"] + 7) for row in rows if row["what"] == "row"}
        return sum(row["what"] == "row" for row in rows) == given.rows and len(rows) == (
            given.rows + len(timers)
        )

    wait_until("all rows and timers", complete, 300, pause_s=0.5)
    running.end()
    check_sessions(tmp_path, given)


def test_two_jobs_over_one_stream_hold_the_watermark_each_for_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How: the second one begins an epoch when the first has rows in flight, and has not yet looked
    what its tasks have told."""
    given = Input(tmp_path / "in", rows=100)
    given.add()
    first = sessions_job(tmp_path, 0.02, **UNALIGNED)
    second = sm.Job("second", sm.CheckpointConfig(**CONFIG, storage=str(tmp_path / "store")))
    second.source(first.declaration.sources["events"].dataframe, "events", replayable=True)
    rows = first.declaration.sinks["out"].dataframe
    second.sink(rows, sm.FileSink(str(tmp_path / "second"), format="json"), uid="out")
    begin, end = KeyedEpochs.begin, KeyedEpochs.end
    ended, begun = threading.Event(), threading.Event()

    def begun_by_the_second(self: Any, *given: Any) -> None:
        begin(self, *given)
        if self._deadline_s is None:
            begun.set()

    def end_of_the_first(self: Any, epoch: int, *given: Any) -> Any:
        if self._deadline_s is not None and epoch == 0:
            ended.set()
            assert begun.wait(120)
        return end(self, epoch, *given)

    monkeypatch.setattr(KeyedEpochs, "begin", begun_by_the_second)
    monkeypatch.setattr(KeyedEpochs, "end", end_of_the_first)
    running = RunningJob(first, parallelism=2)
    assert ended.wait(120)
    other = RunningJob(second, parallelism=2)
    next_epoch = tmp_path / "store/sessions/spark/offsets/1"
    wait_until("the next epoch", next_epoch.exists, 120)
    watermark_ms = json.loads(next_epoch.read_text().splitlines()[1])["batchWatermarkMs"]
    running.end()
    other.end()
    assert 0 < watermark_ms <= (START + 1) * 1000, (
        "most rows wait, and some are of the first second"
    )


def test_a_stream_beside_keeps_its_own_watermark(tmp_path: Path) -> None:
    """Rows of the keyed stream are far ahead of those of another one, which has state too. Spark
    drops a row as late by the watermark of the epoch before."""
    given, other = Input(tmp_path / "in", rows=40), Input(tmp_path / "other", rows=0)
    given.add()
    other.put([{"k": "a", "v": 1, "at": START - 1000}])
    job = sessions_job(tmp_path, 0.02, **UNALIGNED)
    source = sm.FileSource(str(tmp_path / "other"), "json", SCHEMA)
    old = with_watermark(job.source(source, uid="other")).dropDuplicates(["k", "at"])
    job.sink(old, sm.FileSink(str(tmp_path / "old"), format="json"), uid="old")
    running = RunningJob(job, parallelism=2)
    wait_for_rows(tmp_path, running, given.rows)
    checkpoints = running.job.checkpoints().history
    assert any(c.unaligned for c in checkpoints), "nothing was in flight: make the function slower"
    for rows, k in ((2, "b"), (3, "c")):
        other.put([{"k": k, "v": 1, "at": START - 1000 + rows}])
        wait_until(f"row {k}", lambda: len(results(tmp_path / "old")) >= rows, 120)  # noqa: B023
    running.end()
    assert sorted(row["k"] for row in results(tmp_path / "old")) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "kind", ["canonical", pytest.param("native", marks=pytest.mark.chaos), "checkpoint"]
)
def test_another_job_goes_on_with_the_rows_that_wait(tmp_path: Path, kind: str) -> None:
    given = Input(tmp_path / "in", rows=100)
    given.add(files=2)
    job = numbering_job(tmp_path, 0.02, **UNALIGNED)
    running = RunningJob(job, parallelism=2)
    wait_for_rows(tmp_path, running, 1)
    if kind == "checkpoint":
        running.end()
        path = str(tmp_path / "store/numbers")
    else:
        path = job.stop_with_savepoint(str(tmp_path / "savepoints"), type=kind).result(300)
        running.join()
    assert len(results(tmp_path / "out")) < given.rows
    finish(
        tmp_path, given, "restored", restore=path, parallelism=3 if kind == "canonical" else None
    )


def unaligned_driver(home: Path, name: str, failpoint: str | None = None, **more: Any) -> Driver:
    config = {**UNALIGNED, "touched": str(home / "touched")}
    options = {"home": str(home), "slow_s": 0.02, "config": config, **more}
    app = Path(__file__).with_name("keyed_app.py")
    return Driver(app, options, home / f"{name}.log", failpoint)


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("pre-committed:2", marks=pytest.mark.chaos),
        "prepared:3",
        "decided:3",
        pytest.param("sealed:2", marks=pytest.mark.chaos),
    ],
)
def test_killed_while_rows_wait(tmp_path: Path, failpoint: str) -> None:
    given = Input(tmp_path / "in", rows=100)
    given.add(files=3)
    for number in range(2):  # the second driver dies in an epoch that runs again
        unaligned_driver(tmp_path, f"driver-{number}", failpoint).die()
    assert len(results(tmp_path / "out")) < given.rows
    finish(tmp_path, given)


@pytest.mark.chaos
def test_a_frozen_driver_that_wakes_up_changes_no_state(tmp_path: Path) -> None:
    """Its tasks then end an epoch that its successor, dead by now, has ended at another row. The
    driver's Python sleeps a while longer: else it would find the new lease and cancel them."""
    given = Input(tmp_path / "in", rows=100)
    given.add(files=3)
    frozen = unaligned_driver(tmp_path, "frozen")
    successor, gate = successor_of(tmp_path, "decided:1")
    wait_until("a row", lambda: bool(results(tmp_path / "out")), 120)
    epoch = freeze_in_its_tasks(tmp_path, frozen)
    gate.touch()
    successor.die()
    assert (tmp_path / f"store/numbers/spark/commits/{epoch}").exists()
    before = state_after(tmp_path, epoch)
    assert before
    for process in frozen.tree():
        if process.pid != frozen.pid:
            process.resume()

    def rewritten() -> bool:
        return {partition for partition, *_ in state_after(tmp_path, epoch) - before} == {"0", "1"}

    wait_until("the state of its tasks", rewritten, 120)
    fenced(frozen)
    finish(tmp_path, given)


def freeze_in_its_tasks(home: Path, driver: Driver) -> int:
    """Freeze a driver when tasks of an epoch have begun and none has ended; return the epoch."""
    jvm, touched = driver.jvm().pid, home / "touched"
    for _ in range(10):
        before = newest_epoch(home)
        wait_until("an epoch's begin", lambda: newest_epoch(home) > before, 60, pause_s=0.001)  # noqa: B023
        epoch = newest_epoch(home)
        touched.unlink(missing_ok=True)
        wait_until("a row of it", touched.exists, 60, pause_s=0.001)
        os.kill(jvm, signal.SIGSTOP)
        driver.freeze()
        if newest_epoch(home) == epoch and not state_after(home, epoch):
            return epoch
        driver.thaw()
    raise AssertionError("too slow to freeze a driver in its tasks, 10 times")


def state_after(home: Path, epoch: int) -> set[tuple[str, str, int]]:
    """Return partition, name and time of each file with the state after an epoch."""
    files = (home / "store/numbers/spark/state/0").glob(f"*/{epoch + 1}[_.]*zip")
    return {(path.parent.name, path.name, path.stat().st_mtime_ns) for path in files}


def test_a_frozen_driver_that_wakes_up_cannot_decide_for_its_successor(tmp_path: Path) -> None:
    """Both have stored an attempt at the same epoch, cut at other rows, and the older one decides
    first: with its own state."""
    given = Input(tmp_path / "in", rows=100)
    given.add(files=3)
    frozen = unaligned_driver(tmp_path, "frozen", "prepared:3@stop")
    successor, gate = successor_of(tmp_path, "prepared:1@stop")
    stopped(frozen)
    epoch = newest_epoch(tmp_path)
    decision = tmp_path / f"store/numbers/spark/commits/{epoch}"
    gate.touch()
    stopped(successor)
    assert newest_epoch(tmp_path) == epoch
    assert not decision.exists()
    fenced(frozen)
    assert decision.exists()
    successor.thaw()
    wait_until("the decision is void", lambda: "is void" in successor.text(), 120)
    successor.kill_tree()
    finish(tmp_path, given)


def successor_of(home: Path, failpoint: str) -> tuple[Driver, Path]:
    """Start a driver that cuts its epochs elsewhere; it waits for the returned path."""
    gate = home / "gate"
    more = {"slow_s": 0.005, "gate": str(gate)}
    return unaligned_driver(home, "successor", failpoint, **more), gate


def stopped(driver: Driver) -> None:
    line = reached_line("prepared", stops=True)
    wait_until("it stops", lambda: line in driver.text(), 120)


def fenced(driver: Driver) -> None:
    driver.thaw()
    assert driver.wait(120) == 1
    assert "FencedError" in driver.text(), driver.tail()
    driver.kill_tree()


def newest_epoch(home: Path) -> int:
    offsets = home / "store/numbers/spark/offsets"
    return max(int(path.name) for path in offsets.iterdir() if path.name.isdigit())


@pytest.mark.parametrize("failpoint", [None, "decided:2"])
def test_a_drain_processes_the_rows_that_wait(tmp_path: Path, failpoint: str | None) -> None:
    given = Input(tmp_path / "in", rows=100)
    given.add()
    app = Path(__file__).with_name("keyed_app.py")
    options = {"home": str(tmp_path), "slow_s": 0.02, "config": UNALIGNED, "drain": True}
    driver = Driver(app, options, tmp_path / "driver.log", failpoint)
    if failpoint:
        driver.die()
        assert len(results(tmp_path / "out")) < given.rows
        finish(tmp_path, given)
        return
    assert driver.wait(120) == 0, driver.tail()
    assert list((tmp_path / "savepoints").iterdir())
    check_numbers(tmp_path, given)


def test_a_bounded_job_in_event_time_ends_with_all_rows_and_timers(tmp_path: Path) -> None:
    given = Input(tmp_path / "in", rows=40)
    given.add(files=3)
    given.put([END])
    app, config = Path(__file__).with_name("keyed_app.py"), {**UNALIGNED, "ending": "latest"}
    options = {"home": str(tmp_path), "slow_s": 0.01, "config": config, "job": "sessions"}
    Driver(app, options, tmp_path / "driver.log", "prepared:2").die()
    assert len(results(tmp_path / "out")) < given.rows
    sessions_job(tmp_path, 0.0, **config).run()
    check_sessions(tmp_path, given)


def test_after_a_kill_the_greatest_event_time_is_remembered(
    tmp_path: Path, spark: SparkSession
) -> None:
    """It came with a row that the killed driver has processed: timers fire without a later one."""

    def partition(key: str) -> int:
        return int(spark.sql(f"SELECT pmod(hash('{key}'), 2)").head()[0])

    far = next(key for key in map(str, range(20)) if partition(key) != partition("a"))
    given = Input(tmp_path / "in", rows=100)
    given.add(keys="a")
    given.put([{**END, "k": far}])
    app = Path(__file__).with_name("keyed_app.py")
    options = {"home": str(tmp_path), "slow_s": 0.03, "config": UNALIGNED, "job": "sessions"}
    Driver(app, options, tmp_path / "driver.log", "decided:5").die()
    before = results(tmp_path / "out")
    assert far in {row["k"] for row in before}
    assert len(before) < given.rows
    running = RunningJob(sessions_job(tmp_path, 0.0))
    ats = {row["at"] for row in given.read() if row["k"] == "a"}
    wait_for_rows(tmp_path, running, given.rows + 1 + len(ats))
    running.end()
    check_sessions(tmp_path, given)


def test_a_bounded_job_that_would_never_end_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    job = sm.Job(
        "bounded",
        sm.CheckpointConfig(storage=str(tmp_path / "store"), state_backend="rocksdb", **UNALIGNED),
    )
    source = sm.FileSource(str(tmp_path / "in"), "json", "k STRING, v BIGINT", ending="latest")
    rows = job.source(source, uid="events")
    result = sm.keyed_process(rows, "k", Numbering(0), uid="numbering", output_schema=NUMBERED)
    job.sink(result, sm.FileSink(str(tmp_path / "out"), format="json"), uid="out")
    with pytest.raises(ConfigurationError, match="Spark would run epochs for its timers"):
        job.run()


def test_a_batch_gives_the_same(tmp_path: Path, spark: SparkSession) -> None:
    rows = [(k, v) for v in range(40) for k in KEYS[:3]]
    frame = spark.createDataFrame(rows, "k STRING, v BIGINT").coalesce(1)
    result = sm.keyed_process(frame, "k", Numbering(0), uid="numbering", output_schema=NUMBERED)
    found = sorted((row.n, row.v, row.total, row.seen) for row in result.collect() if row.k == "b")
    assert found == numbered(list(range(40)))


def test_a_key_is_the_same_in_rows_and_timers(spark: SparkSession) -> None:
    """Spark gives a timer's key as it is in its state: a timestamp without a zone, bytes that have
    no hash."""
    types = "b BINARY, t TIMESTAMP, s STRUCT<d: DOUBLE, t: TIMESTAMP>, x STRING"
    twice_2_30 = "timestamp_seconds(1729987200 + 1800 + 3600 * id)"  # the end of summer time
    frame = spark.range(2).selectExpr(
        "string(id)::BINARY b",
        f"{twice_2_30} t",
        f"struct(double('NaN') d, {twice_2_30} t) s",
        "CAST(NULL AS STRING) x",
    )
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "Europe/Berlin")
    try:
        result = sm.keyed_process(
            frame, ["b", "t", "s", "x"], Keys(), uid="keys",
            output_schema=f"what STRING, text STRING, {types}",
        )  # fmt: skip
        found = result.selectExpr("what", "text", "to_json(struct(b, t, s, x)) given").collect()
        given = {row.json for row in frame.selectExpr("to_json(struct(*)) json").collect()}
    finally:
        spark.conf.set(ZONE, before)
    assert {row.given for row in found if row.what == "row"} == given
    rows = sorted((row.text, row.given) for row in found if row.what == "row")
    assert rows == sorted((row.text, row.given) for row in found if row.what == "timer")
    assert len(rows) == 2


def test_a_moment_comes_out_of_the_state_as_it_went_in(spark: SparkSession) -> None:
    """Spark's state gives it without a zone, as local time."""
    frame = spark.sql("SELECT 'a' k, timestamp_seconds(1767268800) at")
    result = sm.keyed_process(
        frame, "k", Moments(), uid="moments", output_schema="k STRING, at TIMESTAMP"
    )
    assert [row[0] for row in result.selectExpr("unix_seconds(at)").collect()] == [1767268800]


def test_a_result_of_another_type_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1)], "k STRING, v BIGINT")
    dated = NUMBERED.replace("v BIGINT", "v DATE")
    result = sm.keyed_process(frame, "k", Numbering(0), uid="numbering", output_schema=dated)
    with pytest.raises(PythonException, match=r"keyed_process 'numbering': v is 1; give a date"):
        result.collect()


def test_wrong_values_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1)], "k STRING, v BIGINT")
    good: dict[str, Any] = {"uid": "x", "output_schema": NUMBERED}

    def refused(message: str, *given: Any, **more: Any) -> None:
        with pytest.raises(ConfigurationError, match=message):
            sm.keyed_process(*given, **{**good, **more})

    refused("uid is 'a b'", frame, "k", Numbering(0), uid="a b")
    refused("give a DataFrame, found list", [], "k", Numbering(0))
    refused("keys is \\[\\]", frame, [], Numbering(0))
    refused("keys has 'nosuch'.*'k', 'v'", frame, "nosuch", Numbering(0))
    for key in ("array(v)", "named_struct('a', array(v))", "parse_json('1')"):
        frame_of_key = frame.selectExpr(f"{key} AS x", "v")
        refused(r"key 'x' is (array|struct|variant).*to_json\(x\)", frame_of_key, "x", Numbering(0))
    refused("a column comes twice", frame, ["k", "k"], Numbering(0))
    refused("give an object, Numbering\\(\\)", frame, "k", Numbering)
    refused("processor is function", frame, "k", lambda row: row)
    refused("time_mode is 'Never'", frame, "k", Numbering(0), time_mode="Never")
    refused("needs one TIMESTAMP column", frame, "k", Numbering(0), time_mode="EventTime")
    refused("output_schema is 'k STRIN'", frame, "k", Numbering(0), output_schema="k STRIN")
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "GMT+8")
    try:
        timed = frame.selectExpr("k", "array(current_timestamp()) AS v")
        refused(r"keyed_process 'x'.*timeZone is 'GMT\+8'.*'\+08:00'$", timed, "k", Numbering(0))
        sm.keyed_process(frame, "k", Numbering(0), **good)
    finally:
        spark.conf.set(ZONE, before)
    locked = Numbering(0)
    locked.socket = (line for line in ())  # type: ignore[attr-defined]
    refused("cannot be pickled", frame, "k", locked)
    (tmp_path / "in").mkdir()
    job = numbering_job(tmp_path, 0, state_backend="hashmap")
    with pytest.raises(
        ConfigurationError, match="needs CheckpointConfig\\(state_backend='rocksdb'"
    ):
        job.run()
    job = numbering_job(tmp_path, 0)
    conf = job.declaration.sinks["out"].dataframe.sparkSession.conf
    conf.set(ZONE, "Asia/Tokyo")
    try:
        with pytest.raises(ConfigurationError, match=r"it is 'Asia/Tokyo' now.*before keyed_proc"):
            job.run()
    finally:
        conf.set(ZONE, before)
    job = numbering_job(tmp_path, 0)
    with pytest.raises(ConfigurationError, match=r"'numbering'.*has it already"):
        job.source(sm.FileSource(str(tmp_path), "json", "v INT"), uid="numbering")
        job.run()
