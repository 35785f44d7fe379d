"""Savepoints of a running job, restored into new ones: other partitions, another backend, the
operators in another order, while the first one goes on or has ended with its savepoint.

How: jobs in this process, over files of numbers, count them by two stateful operators into JSON
files; every run's sinks are read in the end and compared with an uninterrupted run's.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.model.errors import ConfigurationError, RestoreError, SavepointError
from seamark.savepoints.state.rows import read_rows, writing_session
from tests.every_change import FileChanges
from tests.threads import RunningJob


class Numbers:
    """A directory of input files; each holds the next hundred numbers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._files = itertools.count()

    def add(self) -> None:
        number = next(self._files)
        rows = [json.dumps({"number": 100 * number + i}) for i in range(100)]
        hidden = self.directory / f".{number}.json"
        hidden.write_text("\n".join(rows))
        hidden.rename(self.directory / f"{number}.json")


def declare(
    home: Path,
    name: str,
    numbers: Numbers,
    *,
    swapped: bool = False,
    added: bool = False,
    **config: Any,
) -> sm.Job:
    """Count numbers by their last digit and by their tens, and write each count as it grows."""
    config.setdefault("storage", str(home / "store"))
    job = sm.Job(name, sm.CheckpointConfig(interval="100ms", **config), "update")
    source = sm.FileSource(
        str(numbers.directory), format="json", schema="number BIGINT",
        options={"maxFilesPerTrigger": "1"},
    )  # fmt: skip
    rows = job.source(source, uid="numbers")

    def count(uid: str, key: str) -> tuple[str, DataFrame]:
        counted = job.uid(rows.groupBy(F.expr(key).alias("key")).count(), uid)
        return uid, counted

    counts = [count("digits", "number % 10"), count("tens", "number div 10 % 10 + 100")]
    if added:
        counts.insert(0, count("fives", "number % 5 + 1000"))
    for uid, counted in reversed(counts) if swapped else counts:
        job.sink(counted, FileChanges(str(home / name / uid), format="json"), uid=f"{uid}-out")
    return job


def shown(home: Path, *names: str) -> dict[int, list[int]]:
    """Return the counts shown for each key, by all of these jobs together."""
    found: dict[int, list[int]] = {}
    for name in names:
        for path in (home / name).rglob("*.json"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                found.setdefault(row["key"], []).append(row["count"])
    return {key: sorted(counts) for key, counts in found.items()}


def expected(files: int) -> dict[int, list[int]]:
    """Every key is in each file ten times."""
    counts = [10 * n for n in range(1, files + 1)]
    return dict.fromkeys([*range(10), *range(100, 110)], counts)


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    return Numbers(tmp_path / "in")


def test_a_job_ends_with_a_savepoint_and_goes_on_changed(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    numbers.add()
    first = RunningJob(declare(tmp_path, "first", numbers))
    first.wait_for_epochs(1)
    numbers.add()
    path = first.take("stop_with_savepoint", tmp_path / "savepoints")
    first.join()
    assert shown(tmp_path, "first") == expected(2)

    numbers.add()
    changed = declare(tmp_path, "second", numbers, swapped=True, state_backend="rocksdb")
    second = RunningJob(changed, restore=path, parallelism=3)
    second.wait_for_epochs(1)
    numbers.add()
    again = second.take("stop_with_savepoint", tmp_path / "savepoints")
    second.join()
    assert shown(tmp_path, "first", "second") == expected(4)

    # The jobs' own directories may be gone, and the savepoint moved.
    moved = tmp_path / "moved"
    Path(again.removeprefix("file:")).rename(moved)
    numbers.add()
    changed = declare(tmp_path, "third", numbers, added=True)
    # Restored twice, side by side: each job goes on by itself.
    third = RunningJob(changed, restore=str(moved), parallelism=1)
    fourth = RunningJob(declare(tmp_path, "fourth", numbers), restore=str(moved), parallelism=2)
    for heir in (third, fourth):
        heir.wait_for_epochs(1)
        heir.end()
    assert shown(tmp_path, "first", "second", "fourth") == expected(5)
    # The added operator begins empty.
    added = {1000 + key: [20] for key in range(5)}
    assert shown(tmp_path, "first", "second", "third") == {**expected(5), **added}


def test_savepoint_dir_says_where_and_what_does_not_fit_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, numbers: Numbers
) -> None:
    numbers.add()
    first = RunningJob(
        declare(tmp_path, "first", numbers, savepoint_dir=str(tmp_path / "savepoints"))
    )
    first.wait_for_epochs(1)
    # Rows in the running query's memory are not read from its files.
    deltas = {p: p.read_bytes() for p in (tmp_path / "store/first/spark").rglob("*.delta")}
    assert len(deltas) >= 2
    for delta in deltas:
        delta.write_bytes(b"altered")
    path = first.take("savepoint")
    for delta, found in deltas.items():
        delta.write_bytes(found)
    assert path.startswith(f"file://{tmp_path}/savepoints/savepoint-")
    state = sm.Savepoint(path).read_state("tens").collect()
    counts = {row["key"][0]: row["value"][0] for row in state}
    assert counts == dict.fromkeys(range(100, 110), 10)
    numbers.add()
    first.wait_for_epochs(2)  # it goes on
    first.end()

    # Under its old name Spark would go by the operators' numbers.
    exchanged = declare(tmp_path, "first", numbers, swapped=True)
    says = r"operator 0 of the checkpoint is 'digits', and 'tens' .* what another has left"
    with pytest.raises(ConfigurationError, match=says):
        exchanged.run()
    job = sm.Job("other", sm.CheckpointConfig(storage=str(tmp_path / "store")), "update")
    source = sm.FileSource(str(numbers.directory), format="json", schema="number BIGINT")
    rows = job.source(source, uid="numbers")
    counted = job.uid(rows.groupBy(F.expr("number % 10").alias("key")).count(), "digits")
    job.sink(counted, FileChanges(str(tmp_path / "other"), format="json"), uid="out")
    with pytest.raises(RestoreError, match=r"operator 'tens' \(10 rows of state\)"):
        job.run(path)
    with pytest.raises(RestoreError, match="no savepoint; a retained checkpoint keeps its number"):
        job.run(str(tmp_path / "store/first"), parallelism=2)
    Path(path.removeprefix("file:"), "savepoint.json").unlink()
    with pytest.raises((RestoreError, SavepointError)):
        job.run(path)
    assert not (tmp_path / "store/other").exists()


def test_a_restore_of_no_rows_leaves_the_active_session_alone(spark: SparkSession) -> None:
    """A job made afterwards would be of the restore's own session, without the user's settings."""
    before = SparkSession.getActiveSession()
    assert read_rows(writing_session(spark), []).collect() == []
    assert SparkSession.getActiveSession() is before
