"""How: plans of several sources and stateful operators; Spark's own report of a run tells the
operator of each number."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm


def test_sources_and_operators_are_shown_by_uid(tmp_path: Path, spark: SparkSession) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        lines = [{"id": i, "at": "2026-01-01T00:00:00Z"} for i in range(5 if name == "a" else 7)]
        (tmp_path / name / "0.json").write_text("\n".join(map(json.dumps, lines)))

    def source(name: str) -> sm.FileSource:
        return sm.FileSource(
            str(tmp_path / name), "json", "id BIGINT, at TIMESTAMP", ending="latest"
        )

    job = sm.Job("uids", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    # Declared in another order than they stand in the plan.
    b = job.source(source("b"), "source-b").withWatermark("at", "1 minute")
    a = job.source(source("a"), "source-a").withWatermark("at", "1 minute")
    once: DataFrame = a.union(b).dropDuplicatesWithinWatermark(["id"])
    counted = once.groupBy(F.window("at", "1 minute")).count()
    job.uid(once, "once")
    job.uid(counted, "counted")
    job.sink(counted.select("count"), sm.FileSink(str(tmp_path / "counts")), "counts")
    job.sink(a.select("id"), sm.FileSink(str(tmp_path / "raw")), "raw")
    job.run()
    first = job.checkpoints().history[-1]
    tasks = {task.uid: task for task in first.tasks}
    assert list(tasks)[-2:] == ["counts", "raw"]
    assert tasks["source-b"].rows == 7
    assert tasks["source-a"].rows >= 5, "a source that two branches read is counted once for each"
    assert tasks["once"].name == "dedupeWithinWatermark"
    assert tasks["counted"].name == "stateStoreSave"
    assert tasks["raw"].rows == 5
    assert not [uid for uid in tasks if uid.startswith(("operator-", "source-0", "source-1"))]


@pytest.mark.parametrize("more", ["operators", "readings"])
def test_a_checkpoint_with_other_numbers_is_refused_before_anything_is_written(
    tmp_path: Path, spark: SparkSession, more: str
) -> None:
    """Like an earlier version's: it computed a shared stream once for each sink."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text('{"id": 1, "at": "2026-01-01T00:00:00Z"}')

    def run(*, twice: bool) -> None:
        job = sm.Job("counts", sm.CheckpointConfig(storage=str(tmp_path / "store")))
        schema = "id BIGINT, at TIMESTAMP"
        source = sm.FileSource(str(tmp_path / "in"), "json", schema, ending="latest")
        rows = job.source(source, "rows").withWatermark("at", "1 minute")
        counted = rows.groupBy(F.window("at", "1 minute"), "id").count()
        out = counted.select("id", "count")
        if twice and more == "operators":
            out = counted.groupBy("window", "id").count().select("id", "count")
        job.sink(out, sm.FileSink(str(tmp_path / "out"), format="json"), "out")
        if twice and more == "readings":
            job.sink(rows.select("id"), sm.FileSink(str(tmp_path / "raw"), format="json"), "raw")
        job.run()

    run(twice=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    found = (
        "2 stateful operators, the program 1" if more == "operators" else "2 readings of sources"
    )
    with pytest.raises(sm.ConfigurationError, match=found) as refused:
        run(twice=False)
    assert "restore that, by uid" in str(refused.value)
    executions = tmp_path / "store/counts/executions"
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {p: b for p, b in after.items() if executions not in p.parents} == {
        p: b for p, b in before.items() if executions not in p.parents
    }


ROWS = "a BIGINT, b BIGINT, n BIGINT, m BIGINT, at TIMESTAMP"
CHANGES = {
    "function": ["max(n)", "min(n)", "'max' became 'min'"],
    "functions": ["max(n), min(n)", "min(n), max(n)", "'max' became 'min', 'min' became 'max'"],
    "session": ["session max(n)", "session min(n)", "'max' became 'min'"],
    "key": ["dedupe a", "dedupe b", "'a' became 'b'"],
    "order": ["distinct a, b", "distinct b, a", "'a' became 'b', 'b' became 'a'"],
    "join": ["join a", "join b", "'a' became 'b'"],
    "result": ["max(n) AS x", "max(n) AS y", ""],
    "case": ["dedupe a", "dedupe A", ""],
    "input": ["dedupe a", "wider dedupe a", ""],
}


@pytest.mark.parametrize("change", CHANGES)
def test_state_of_another_key_or_function_is_refused_before_anything_is_written(
    tmp_path: Path, spark: SparkSession, change: str
) -> None:
    """Spark compares types and places: a maximum went on as a minimum, without a word."""
    first, then, said = CHANGES[change]
    (tmp_path / "in").mkdir()

    def run(what: str, number: int) -> None:
        line = {"a": 1, "b": 2, "n": number, "m": 0, "at": "2026-01-01T00:00:00Z"}
        (tmp_path / f"in/{number}.json").write_text(json.dumps(line))
        mode = "update" if what.startswith(("max", "min")) else "append"
        storage = str(tmp_path / "store")
        job = sm.Job("kept", sm.CheckpointConfig(storage=storage), output_mode=mode)
        rows = job.source(sm.FileSource(str(tmp_path / "in"), "json", ROWS, ending="latest"), "in")
        rows = rows.withWatermark("at", "1 minute")
        verb, _, key = what.rpartition(" ")
        if verb == "join":
            other = job.source(
                sm.FileSource(str(tmp_path / "in"), "json", ROWS, ending="latest"), "other"
            )
            out = rows.join(other.select(F.col(key).alias("k")), F.col(key) == F.col("k"))
        elif verb.endswith("dedupe"):
            out = rows.dropDuplicates([key])
            out = out if verb == "wider dedupe" else out.select(key)
        elif what.startswith("distinct"):
            out = rows.select(*what.removeprefix("distinct ").split(", ")).distinct()
        elif verb == "session":
            window = F.session_window("at", "1 minute")
            out = rows.groupBy(window, "a").agg(F.expr(key)).drop("session_window")
        else:
            out = rows.groupBy("a").agg(*map(F.expr, what.split(", ")))
        job.uid(out, "kept")
        job.sink(out, sm.ConsoleSink(), "out")
        job.run()

    run(first, 1)
    if not said:
        run(then, 2)
        return

    def stored() -> dict[Path, bytes]:
        kept = tmp_path / "store/kept"
        files = [*(kept / "spark").rglob("*"), *(kept / "lease").iterdir()]
        return {path: path.read_bytes() for path in files if path.is_file()}

    before = stored()
    with pytest.raises(sm.ConfigurationError, match=f"operator 'kept' {said} since") as refused:
        run(then, 2)
    assert "restore that, by uid" in str(refused.value)
    assert stored() == before
    run(first, 3)


def test_a_start_in_another_time_zone_is_warned_of(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the setting it is the machine's: counts by day went on with other days."""
    (tmp_path / "in").mkdir()

    def run(number: int) -> list[str]:
        line = {"at": "2026-01-01T02:00:00Z"}
        (tmp_path / f"in/{number}.json").write_text(json.dumps(line))
        job = sm.Job("days", sm.CheckpointConfig(storage=str(tmp_path / "store")), "update")
        source = sm.FileSource(str(tmp_path / "in"), "json", "at TIMESTAMP", ending="latest")
        days = job.source(source, "in").groupBy(F.to_date("at").alias("day")).count()
        job.sink(job.uid(days, "days"), sm.ConsoleSink(), "out")
        caplog.clear()
        job.run()
        return [text for text in caplog.messages if "last run" in text]

    key = "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    try:
        spark.conf.set(key, "UTC")
        assert run(0) == run(1) == []
        spark.conf.set(key, "America/New_York")
        (warning,) = run(2)
        assert f"job days: {key} is America/New_York, and was UTC in the job's last" in warning
        assert run(3) == [], "it is told once"
    finally:
        spark.conf.set(key, str(before))


@pytest.mark.parametrize(
    ("later", "watermark"),
    [(32_472_144_000, "2998-12-31T23:59:00Z"), (1_700_000_000_000, "1699999999940000 ms since")],
    ids=["future", "milliseconds"],
)
def test_rows_dropped_as_late_are_told_once(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture,
    later: int, watermark: str,
) -> None:  # fmt: skip
    """A row with a time in the future closed all windows, and what came then was not counted. A
    watermark beyond the year 9999 could not be read: the job had no statistics."""
    (tmp_path / "in").mkdir()
    now = 1_700_000_000
    for number, at in enumerate((now, later, now, now, now, now)):
        file = tmp_path / f"in/{number}.json"
        file.write_text(json.dumps({"at": at}))
        os.utime(file, (1_700_000_000 + number,) * 2)
    job = sm.Job("late", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    once = {"maxFilesPerTrigger": "1"}
    source = sm.FileSource(str(tmp_path / "in"), "json", "at BIGINT", "latest", once)
    rows = job.source(source, "in").withColumn("at", F.timestamp_seconds("at"))
    rows = rows.withWatermark("at", "1 minute")
    counts = rows.groupBy(F.window("at", "1 minute")).count().select("count")
    job.sink(job.uid(counts, "minutes"), sm.ConsoleSink(), "out")
    job.run()
    (warning,) = [text for text in caplog.messages if "has dropped rows older" in text]
    assert warning.startswith("operator minutes: epoch ")
    assert f"which is at {watermark}" in warning and "far ahead of this machine's clock" in warning
