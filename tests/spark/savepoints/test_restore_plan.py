"""A restore plan's verdict on changed programs, and the restore's agreement: operators inserted,
removed, exchanged; a transformWithState beginning empty; state with a changed schema; a claimed
savepoint; retained checkpoints.

How: jobs in this process, over files of numbers, end with a savepoint; plans are made with other
programs, and every file is compared before and after; then some of them are run, and their counts
compared with those of the numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import seamark as sm
from seamark.jobs.registry import find_job
from seamark.model.errors import ConfigurationError, RestoreError
from seamark.savepoints.claims import claim
from seamark.spark.hadoop_files import open_files
from tests.chaos.driver import wait_until
from tests.every_change import FileChanges
from tests.spark.savepoints.test_savepoints import Numbers, shown
from tests.threads import RunningJob

OPERATORS = {"digits": "number % 10", "tens": "number div 10 % 10 + 100"}


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    return Numbers(tmp_path / "in")


class Counting(StatefulProcessor):
    """Counts rows in the variable ``n``; its state can be declared in other ways."""

    def __init__(self, shape: str) -> None:
        self._shape = shape

    def init(self, handle: Any) -> None:
        schemas = {
            "column": "n long, later long",
            "type": "n string",
            "two": "n long, m long",
            "swapped": "m long, n long",
        }
        self._n = handle.getValueState("n", schemas.get(self._shape, "n long"))
        if self._shape == "variable":
            self._later = handle.getValueState("later", "n long")

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Iterator[Row], times: Any
    ) -> Iterator[Row]:
        count = sum(1 for _ in rows)
        old = self._n.get() if self._n.exists() else (0, 0)
        n, later = old[0] + count, count
        if self._shape in ("two", "swapped"):
            self._n.update((n, n))
        elif self._shape == "column":
            later += old[1] or 0
            self._n.update((n, later))
        else:
            self._n.update((n,))
        if self._shape == "variable":
            later += self._later.get()[0] if self._later.exists() else 0
            self._later.update((later,))
        yield Row(key=key[0], count=n, later=later)

    def close(self) -> None:
        pass


def counted(rows: DataFrame, uid: str) -> DataFrame:
    return rows.groupBy(F.expr(OPERATORS[uid]).alias("key")).count()


def processed(shape: str, *, initial: bool = False) -> Callable[[DataFrame, str], DataFrame]:
    def make(rows: DataFrame, uid: str) -> DataFrame:
        keys = rows.selectExpr("number % 10 AS key").groupBy("key")
        schema = "key long, count long, later long"
        history = rows.sparkSession.range(10).selectExpr("id AS key", "7 AS n").groupBy("key")
        given = {"initialState": history} if initial else {}
        return keys.transformWithState(Counting(shape), schema, "update", "none", **given)

    return make


def sums_as_text(rows: DataFrame, uid: str) -> DataFrame:
    key = F.expr(OPERATORS[uid]).alias("key")
    return rows.groupBy(key).agg(F.max(F.col("number").cast("string")).alias("count"))


def declare(
    home: Path,
    name: str,
    numbers: Numbers,
    operators: dict[str, Callable[[DataFrame, str], DataFrame]],
    **config: Any,
) -> sm.Job:
    """A job with one sink for each operator."""
    checkpoint = sm.CheckpointConfig(storage=str(home / "store"), interval="100ms", **config)
    job = sm.Job(name, checkpoint, "update")
    source = sm.FileSource(
        str(numbers.directory), format="json", schema="number BIGINT",
        options={"maxFilesPerTrigger": "1"},
    )  # fmt: skip
    rows = job.source(source, uid="numbers")
    for uid, make in operators.items():
        named = job.uid(make(rows, uid), uid)
        job.sink(named, FileChanges(str(home / name / uid), format="json"), uid=f"{uid}-out")
    return job


def saved_job(home: Path, name: str, numbers: Numbers, *what: Any, **config: Any) -> str:
    """Run a job over the first file and end it with a savepoint; return its path."""
    numbers.add()
    first = RunningJob(declare(home, name, numbers, *what, **config))
    first.wait_for_epochs(1)
    path = first.take("stop_with_savepoint", home / "savepoints")
    first.join()
    return path


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in directory.rglob("*")
    }


def actions(plan: Any) -> dict[str, str]:
    return {part.uid: part.action.value for part in plan.operators}


def test_a_plan_says_what_becomes_of_each_part_and_touches_nothing(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    both = {"digits": counted, "tens": counted}
    path = saved_job(tmp_path, "first", numbers, both)
    before = contents(tmp_path)

    def plan(
        operators: Any = both, path: str = path, name: str = "second", backend: str = "rocksdb",
        **how: Any,
    ) -> Any:  # fmt: skip
        job = declare(tmp_path, name, numbers, operators, state_backend=backend)
        found = job.restore_plan(path, **how)
        json.dumps(found.to_json())
        return found

    # Two operators of one type have exchanged their numbers, and there is a third.
    tws = processed("variable")
    found = plan({"more": tws, "tens": counted, "digits": counted}, parallelism=7)
    assert found.restorable
    assert actions(found) == {"digits": "mapped", "tens": "mapped", "more": "new"}
    assert [(o.repartitioned, o.converted, o.evolved, o.rows) for o in found.operators[:2]] == [
        (True, True, False, 10)
    ] * 2
    assert found.operators[2].type == "transformWithStateInPySparkExec"
    assert [(s.uid, s.action.value) for s in found.sources] == [("numbers", "mapped")]
    assert found.target.partitions == 7
    begun = processed("variable", initial=True)
    (problem,) = plan({"digits": counted, "tens": counted, "more": begun}).problems
    assert problem.startswith(
        "operator 'more' is new, and Spark gives an operator its initialState"
    )
    same = plan(backend="hashmap")
    assert [(o.repartitioned, o.converted) for o in same.operators] == [(False, False)] * 2

    gone = plan({"digits": counted})
    (problem,) = gone.problems
    assert "operator 'tens' (10 rows of state)" in problem
    assert actions(gone) == {"digits": "mapped", "tens": "dropped"}
    assert plan({"digits": counted}, allow_non_restored_state=True).restorable

    (problem,) = plan({"digits": sums_as_text, "tens": counted}).problems
    assert problem.startswith("operator 'digits' (stateStoreSave): Spark cannot go on")
    assert "struct<count:bigint> and is struct<max:string> now" in problem
    refused = plan({"digits": tws, "tens": sums_as_text, "more": tws}, backend="hashmap")
    assert len(refused.problems) == 3, refused.problems
    assert "is transformWithStateInPySparkExec in the program" in refused.problems[0]
    assert "operator 'tens'" in refused.problems[1]
    assert "operator 'more' (transformWithStateInPySparkExec): the hashmap" in refused.problems[2]

    checkpoint = str(tmp_path / "store/first")
    kept = plan(path=checkpoint, backend="hashmap")
    assert (kept.kind, kept.restorable, actions(kept)) == (
        "checkpoint", True, {"digits": "mapped", "tens": "mapped"}
    )  # fmt: skip
    swapped = plan({"tens": counted, "digits": counted}, checkpoint, backend="hashmap")
    assert "operator 0 of the checkpoint is 'digits', and 'tens' in the program" in str(swapped)
    assert len(swapped.problems) == 2
    other = plan(path=checkpoint, parallelism=2, claim_mode="claim")
    said = (
        "is no savepoint; a retained checkpoint keeps its number",
        "state is of state_backend 'hashmap', and the program's is 'rocksdb'",
        "claim_mode='claim' is for savepoints",
    )
    assert all(text in problem for text, problem in zip(said, other.problems, strict=True))
    (problem,) = plan({"digits": sums_as_text, "tens": counted}, checkpoint,
                      backend="hashmap").problems  # fmt: skip
    assert "struct<count:bigint> and is struct<max:string> now" in problem
    own = plan(name="first")
    assert own.restorable and own.supersedes.directory == f"file://{tmp_path}/store/first"
    assert own.supersedes.again is None, "the job has ended with this savepoint"
    assert own.target.directory == f"file://{tmp_path}/store/first/lineages/2"

    copy = tmp_path / "copy"
    shutil.copytree(path.removeprefix("file:"), copy)
    heir = f"file://{tmp_path}/store/first"
    id_ = find_job(f"{tmp_path}/store", "first").start.job_id
    claim(open_files(spark, copy.as_uri()), id_, "heir", heir)
    (problem,) = plan(path=str(copy)).problems
    assert f"was claimed by job 'heir' ({heir})" in problem
    shutil.rmtree(copy)
    with pytest.raises(RestoreError, match="operator 'tens'"):
        declare(tmp_path, "second", numbers, {"digits": counted}).run(path)
    assert contents(tmp_path) == before


def test_a_new_source_behind_the_watermark_is_warned_of(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    more = Numbers(tmp_path / "more")

    def windows(name: str, **sources: Numbers) -> sm.Job:
        job = sm.Job(name, sm.CheckpointConfig(storage=str(tmp_path / "store"), interval="100ms"))
        rows = None
        for uid, of in sources.items():
            source = sm.FileSource(str(of.directory), format="json", schema="number BIGINT")
            read = job.source(source, uid=uid)
            rows = read if rows is None else rows.union(read)
        assert rows is not None
        timed = rows.withColumn("at", F.timestamp_seconds("number"))
        timed = timed.withWatermark("at", "5 seconds")
        counts = timed.groupBy(F.window("at", "10 seconds")).count().select("count")
        job.sink(job.uid(counts, "windows"), sm.FileSink(str(tmp_path / name), "json"), uid="out")
        return job

    numbers.add()
    first = RunningJob(windows("first", numbers=numbers))
    first.wait_for_epochs(1)
    path = first.take("stop_with_savepoint", tmp_path / "savepoints")
    first.join()
    assert windows("second", numbers=numbers).restore_plan(path).warnings == ()
    (warning,) = windows("third", numbers=numbers, more=more).restore_plan(path).warnings
    assert warning == (
        "source 'more' begins anew; operators of event time drop its rows older than the "
        "watermark, 1970-01-01T00:01:34Z"
    )


@pytest.mark.parametrize("saved", [True, False], ids=["savepoint", "checkpoint"])
def test_a_restore_in_another_time_zone_is_warned_of(
    spark: SparkSession, tmp_path: Path, numbers: Numbers, saved: bool
) -> None:
    """Counts by day went on with other days, and nothing said so."""
    key = "spark.sql.session.timeZone"
    path = saved_job(tmp_path, "first", numbers, {"digits": counted})
    path = path if saved else str(tmp_path / "store/first")
    second = declare(tmp_path, "second", numbers, {"digits": counted})
    assert second.restore_plan(path).warnings == ()
    before = str(spark.conf.get(key))
    try:
        spark.conf.set(key, "Asia/Tokyo")
        (warning,) = second.restore_plan(path).warnings
    finally:
        spark.conf.set(key, before)
    assert f"{key} is Asia/Tokyo, and was {before} in the job's last run" in warning


def test_a_source_of_another_kind_does_not_go_on_from_an_offset(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    """Spark's file source would take the number for a place in its log, and leave out as many
    files; a socket's for the lines that it has sent."""
    files = sm.FileSource(
        str(numbers.directory), "json", "number BIGINT", options={"maxFilesPerTrigger": "1"}
    )
    rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    sockets = spark.readStream.format("socket").option("host", "localhost").option("port", 9)

    def reading(source: Any, name: str) -> sm.Job:
        job = sm.Job(name, sm.CheckpointConfig(storage=str(tmp_path / "store"), interval="100ms"))
        own = None if isinstance(source, sm.FileSource) else True
        rows = job.source(source, uid="in", replayable=own)
        job.sink(rows.selectExpr("*"), sm.FileSink(str(tmp_path / name), "json"), uid="out")
        return job

    first = RunningJob(reading(rate, "first"))
    wait_until("rows", lambda: shown_numbers(tmp_path / "first", "value"), 120)
    path = first.take("stop_with_savepoint", tmp_path / "savepoints")
    first.join()
    before = contents(tmp_path)
    origins = (path, " of 'rate'"), (str(tmp_path / "store/first"), "")
    for origin, of in origins:
        (problem,) = reading(files, "second").restore_plan(origin).problems
        assert re.match(rf"source 'in' is at the offset \d+{of}, from which 'FileSource'", problem)
    (problem,) = reading(sockets.load(), "second").restore_plan(path).problems
    assert "of 'rate', from which 'socket', its kind in the program, cannot go on" in problem
    assert contents(tmp_path) == before
    with pytest.raises(ConfigurationError, match="from which 'FileSource', its kind in the prog"):
        reading(files, "first").run()

    numbers.add()
    running = RunningJob(reading(files, "second"), restore=path, allow_non_restored_state=True)
    wait_until("rows", lambda: len(shown_numbers(tmp_path / "second", "number")) == 100, 120)
    running.end()
    assert shown_numbers(tmp_path / "second", "number") == list(range(100))


def shown_numbers(directory: Path, column: str) -> list[int]:
    lines = [line for file in directory.rglob("*.json") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)[column] for line in lines)


def test_operators_are_removed_and_added_and_the_savepoint_is_claimed(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    path = saved_job(tmp_path, "first", numbers, {"digits": counted, "tens": counted})
    numbers.add()
    changed = {"more": processed("column"), "tens": counted}
    heir = declare(tmp_path, "heir", numbers, changed, state_backend="rocksdb")
    how = {"allow_non_restored_state": True, "parallelism": 3, "claim_mode": "claim"}
    running = RunningJob(heir, restore=path, **how)
    running.wait_for_epochs(1)
    wait_until("disposed", lambda: not Path(path.removeprefix("file:")).exists(), 60)
    assert heir.restore_plan(str(tmp_path / "store/first")).problems, "callable while it runs"
    running.end()
    # Of "tens" the second file's counts; of the transformWithState those of the second file alone.
    assert shown(tmp_path, "heir") == {
        **{100 + key: [20] for key in range(10)},
        **{key: [10] for key in range(10)},
    }
    # The same command again, as after a crash: the savepoint is gone, the job goes on by itself.
    assert heir.restore_plan(path, **how).restored  # type: ignore[arg-type]
    numbers.add()
    again = declare(tmp_path, "heir", numbers, changed, state_backend="rocksdb")
    running = RunningJob(again, restore=path, **how)
    wait_until("counts", lambda: shown(tmp_path, "heir")[100] == [20, 30], 120)
    running.end()


@pytest.mark.parametrize(
    ("encoding", "shape"),
    [("unsaferow", "variable"), pytest.param("avro", "column", marks=pytest.mark.chaos)],
)
def test_state_whose_schema_spark_can_evolve(
    spark: SparkSession, tmp_path: Path, numbers: Numbers, encoding: str, shape: str
) -> None:
    """A new state variable; with Avro also a new column, through two savepoints, so the second
    holds rows older than the column."""
    spark.conf.set("spark.sql.streaming.stateStore.encodingFormat", encoding)
    try:
        path = saved_job(
            tmp_path, "first", numbers, {"counts": processed("old")}, state_backend="rocksdb"
        )

        def evolved(name: str, shape: str = shape) -> sm.Job:
            operators = {"counts": processed(shape)}
            return declare(tmp_path, name, numbers, operators, state_backend="rocksdb")

        (problem,) = evolved("second", "type").restore_plan(path).problems
        assert "its value was struct<n:bigint> and is struct<n:string> now" in problem
        plan = evolved("second").restore_plan(path, parallelism=3)
        assert [(o.action.value, o.evolved) for o in plan.operators] == [("mapped", True)]
        hidden = numbers.directory / ".few"
        hidden.write_text("\n".join(json.dumps({"number": n}) for n in range(3)))
        hidden.rename(numbers.directory / "few.json")
        second = RunningJob(evolved("second"), restore=path, parallelism=3)
        second.wait_for_epochs(1)
        assert shown(tmp_path, "second") == {n: [11] for n in range(3)}
        if encoding != "avro":
            second.end()
            return
        path = second.take("stop_with_savepoint", tmp_path / "savepoints")
        second.join()
        numbers.add()
        third = RunningJob(evolved("third"), restore=path, parallelism=2)
        third.wait_for_epochs(1)
        third.end()
        assert shown(tmp_path, "third") == {n: [21 if n < 3 else 20] for n in range(10)}
        rows = [
            json.loads(line)
            for file in (tmp_path / "third").rglob("*.json")
            for line in file.read_text().splitlines()
        ]
        assert {row["key"]: row["later"] for row in rows} == {
            n: 11 if n < 3 else 10 for n in range(10)
        }
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.encodingFormat")


def by_two(*keys: str) -> Callable[[DataFrame, str], DataFrame]:
    def make(rows: DataFrame, uid: str) -> DataFrame:
        rows = rows.selectExpr("number % 10 AS digit", "number div 10 % 10 AS ten")
        return rows.groupBy(*keys).count()

    return make


def aggregated(*functions: Column) -> Callable[[DataFrame, str], DataFrame]:
    def make(rows: DataFrame, uid: str) -> DataFrame:
        return rows.groupBy(F.expr("number % 10").alias("key")).agg(*functions)

    return make


def test_state_that_would_be_read_as_something_else(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    """Spark compares the types of the state's columns alone, and goes on from a sum as a maximum,
    and with exchanged keys. A new name can be the same column's, so it is only told."""
    total, most = F.sum("number").alias("x"), F.max("number").alias("y")
    first = {
        "function": aggregated(total),
        "order": aggregated(total, most),
        "keys": by_two("digit", "ten"),
        "renamed": counted_by("key"),
        "same": aggregated(total),
    }
    path = saved_job(tmp_path, "first", numbers, first)
    changed = {
        "function": aggregated(most),
        "order": aggregated(most, total),
        "keys": by_two("ten", "digit"),
        "renamed": counted_by("other"),
        "same": aggregated(total.alias("z")),
    }
    plan = declare(tmp_path, "second", numbers, changed).restore_plan(path)
    refused = {re.search(r"operator '(\w+)'", p)[1]: p for p in plan.problems}  # type: ignore[index]
    assert refused.keys() == {"function", "order", "keys"}
    assert all("would read its state as something else" in p for p in refused.values())
    assert "its value was struct<sum:bigint> and is struct<max:bigint> now" in refused["function"]
    assert "was struct<digit:bigint,ten:bigint> and is struct<ten:" in refused["keys"]
    (told,) = (w for w in plan.warnings if "other names" in w)
    assert "operator 'renamed'" in told and "was struct<key:bigint> and is struct<other:" in told
    rest = {uid: make for uid, make in changed.items() if uid in ("renamed", "same")}
    with pytest.raises(RestoreError, match="something else"):
        declare(tmp_path, "second", numbers, changed).run(path)
    kept = declare(tmp_path, "second", numbers, {**first, **rest}).restore_plan(path)
    assert not kept.problems


def counted_by(name: str) -> Callable[[DataFrame, str], DataFrame]:
    return lambda rows, uid: rows.selectExpr(f"number % 10 AS {name}").groupBy(name).count()


def sides(swapped: bool) -> Callable[[DataFrame, str], DataFrame]:
    def make(rows: DataFrame, uid: str) -> DataFrame:
        left = rows.where("number % 2 = 0").selectExpr("number AS even")
        right = rows.where("number % 2 = 1").selectExpr("number AS odd")
        return (right.join(left, F.expr("odd = even + 1")) if swapped
                else left.join(right, F.expr("odd - 1 = even")))  # fmt: skip

    return make


def test_a_join_whose_sides_change_places(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    path = saved_job(tmp_path, "first", numbers, {"pairs": sides(False)})
    second = declare(tmp_path, "second", numbers, {"pairs": sides(True)})
    (problem,) = second.restore_plan(path).problems
    assert "would read its state as something else" in problem


def test_variables_whose_columns_change_places(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    operators = {"counts": processed("two")}
    path = saved_job(tmp_path, "first", numbers, operators, state_backend="rocksdb")
    swapped = {"counts": processed("swapped")}
    second = declare(tmp_path, "second", numbers, swapped, state_backend="rocksdb")
    (problem,) = second.restore_plan(path).problems
    assert "its value was struct<n:bigint,m:bigint> and is struct<m:bigint,n:bigint> now" in problem
