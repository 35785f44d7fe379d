"""Every kind of stateful operator is drained: open results are emitted, and no state stays.

How: a job has one operator of each kind over numbered files of events; it is stopped, started again
and, with nothing new to read, drained. Its output of both runs is compared with a computation over
the events alone, and the savepoint of the drain must hold no row of event-time state. Operators on
processing time are in the same job.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.model.errors import UserError
from tests.chaos.driver import wait_until
from tests.spark.savepoints.stateful_programs import PROGRAMS, write_input
from tests.threads import RunningJob

FILES = 3
IN_SPARK = ("aggregation", "distinct_within_watermark", "session_windows", "join")
IN_PYTHON = ("transform_with_timers", "transform_with_ttl", "with_timeouts")


def with_timeouts(stream: DataFrame, other: DataFrame) -> DataFrame:
    """Say of each key how many rows it had when its time-out came, two minutes of event time after
    the watermark."""
    import pandas as pd

    def count(key: Any, frames: Any, state: Any) -> Any:
        n = state.get[0] if state.exists else 0
        if state.hasTimedOut:
            state.remove()
            yield pd.DataFrame({"k": [key[0]], "n": [n]})
        else:
            state.update((n + sum(len(frame) for frame in frames),))
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 120_000)

    return stream.groupBy("k").applyInPandasWithState(
        count, "k int, n long", "n long", "append", "EventTimeTimeout"
    )


def declare(home: Path, kinds: tuple[str, ...]) -> sm.Job:
    config = sm.CheckpointConfig(
        storage=str(home / "store"), interval="50ms", state_backend="rocksdb"
    )
    job = sm.Job("job", config)
    source = sm.FileSource(
        str(home / "in"), format="json", schema="k int, v int, ts long",
        options={"maxFilesPerTrigger": "1"},
    )  # fmt: skip
    rows = job.source(source, uid="events").withColumn("at", F.timestamp_seconds("ts"))
    events = rows.withWatermark("at", "5 seconds")
    for kind in kinds:
        made = {**PROGRAMS, "with_timeouts": with_timeouts}[kind](events, events)
        out = sm.FileSink(str(home / "out" / kind), format="json")
        job.sink(job.uid(made, kind), out, uid=f"{kind}-out")
    return job


def written(home: Path, kind: str) -> list[dict[str, Any]]:
    files = sorted((home / "out" / kind).glob("*.json"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def counted(rows: list[dict[str, Any]], *names: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.get(name) for name in names) for row in rows)


def expected_joins(events: list[dict[str, int]]) -> Counter[tuple[Any, ...]]:
    """Each left row with each right one of the five seconds before, or alone."""
    found: Counter[tuple[Any, ...]] = Counter()
    for left in (e for e in events if e["v"] == 0):
        near = [
            e for e in events
            if e["v"] > 3 and e["k"] == left["k"] and 0 <= left["ts"] - e["ts"] <= 5
        ]  # fmt: skip
        for right in near:
            found[left["k"], right["v"], left["ts"], right["ts"]] += 1
        if not near:
            found[left["k"], None, left["ts"], None] += 1
    return found


def expected_sessions(events: list[dict[str, int]]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for key in range(9):
        times = sorted(e["ts"] for e in events if e["v"] == 0 and e["k"] == key)
        sessions: list[list[int]] = []
        for at in times:
            if sessions and at <= sessions[-1][-1] + 3:
                sessions[-1].append(at)
            else:
                sessions.append([at])
        found.update((of[0], key, len(of)) for of in sessions)
    return found


def drain(started: RunningJob, home: Path) -> str:
    """Drain the job as soon as it runs; return the savepoint's path."""
    taken: list[Future[str]] = []

    def ask() -> bool:
        if started.error is not None:
            raise started.error
        try:
            taken.append(started.job.stop_with_savepoint(str(home / "savepoints"), drain=True))
        except UserError as error:
            said.append(str(error))
        return bool(taken)

    said: list[str] = []
    try:
        wait_until("the job runs", ask, 120, 0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}: {said[-1:]}") from None
    path = taken[0].result(240)
    started.join()
    return path


@pytest.mark.parametrize(
    ("kinds", "idle"),
    [
        pytest.param(("session_windows", "join"), True, id="idle"),
        pytest.param((*IN_SPARK, *IN_PYTHON), True, marks=pytest.mark.chaos, id="all-idle"),
        pytest.param((*IN_SPARK, *IN_PYTHON), False, marks=pytest.mark.chaos, id="all"),
    ],
)
def test_nothing_stays_open(
    spark: SparkSession, tmp_path: Path, kinds: tuple[str, ...], *, idle: bool
) -> None:
    for number in range(FILES):
        write_input(tmp_path / "in", number)
    started = RunningJob(declare(tmp_path, kinds))
    started.wait_for_epochs(FILES)
    if idle:  # the drained run has had no epoch: there is nothing new
        started.job.trigger_checkpoint().result(300)
        started.end()
        started = RunningJob(declare(tmp_path, kinds))
    record = sm.Savepoint(drain(started, tmp_path)).record
    assert record.drained
    held = {o.uid: {f.name: f.rows for s in o.stores for f in s.families} for o in record.operators}
    assert all(set(held[kind].values()) == {0} for kind in kinds if kind in IN_SPARK), held

    lines = [line for f in (tmp_path / "in").glob("*.json") for line in f.read_text().splitlines()]
    events = [json.loads(line) for line in lines]
    joined = counted(written(tmp_path, "join"), "k", "right_v", "left_at", "right_at")
    assert joined == expected_joins(events)
    assert any(right is None for _, right, _, _ in joined), "an outer join's lone rows"
    sessions = counted(written(tmp_path, "session_windows"), "start", "k", "count")
    assert sessions == expected_sessions(events)
    if kinds == ("session_windows", "join"):
        return
    windows = Counter((e["ts"] - e["ts"] % 5, e["k"]) for e in events)
    found = counted(written(tmp_path, "aggregation"), "start", "k", "n")
    assert found == Counter((start, k, n) for (start, k), n in windows.items())
    pairs = {(e["k"], e["v"]) for e in events}
    assert set(counted(written(tmp_path, "distinct_within_watermark"), "k", "v")) == pairs
    timers = {n: rows for n, rows in held["transform_with_timers"].items() if "Timers" in n}
    assert set(timers.values()) == {0}, "every timer has fired"
    assert held["transform_with_ttl"]["count"] == 9, "what goes by the clock stays"

    fired = [row for row in written(tmp_path, "transform_with_timers") if row["why"] != "rows"]
    assert {row["k"] for row in fired} == {e["k"] for e in events}
    of_key = Counter(e["k"] for e in events)
    assert counted(written(tmp_path, "with_timeouts"), "k", "n") == Counter(of_key.items())
    clock = written(tmp_path, "transform_with_ttl")
    assert max(row["n"] for row in clock) == max(of_key.values())
    assert all(row["why"] == "rows" for row in clock), "no timer of the clock has fired"
