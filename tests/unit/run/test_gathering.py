"""How many tasks the next epoch gets, by the reports of the last one."""

from __future__ import annotations

import pytest

from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.run.gathering import Gathering, must_be_apart
from seamark.sinks.files import FileSink
from seamark.spark.state_backend import ROCKSDB_PROVIDER

MB = 2**20
SINKS = {"small": FileSink("/data/a", target_file_size=8 * MB), "any": FileSink("/data/b")}


def epoch(count: int, megabytes: float, seconds: float, uid: str = "small") -> list[TaskReport]:
    """Return the reports of tasks that wrote so much, and took so long, together."""
    part = SinkReport(rows=1, file_bytes=round(megabytes * MB / count))
    return [TaskReport(n, 0, 100.0, 100.0 + seconds / count, {uid: part}) for n in range(count)]


@pytest.mark.parametrize(
    ("megabytes", "seconds", "tasks"),
    [
        (1, 0.2, 1),
        (8, 0.2, 1),
        (20, 0.2, 3),
        (1, 2.5, 3),  # one task would take 2.5 s
        (1, 60, 16),  # so many run at once
        (800, 60, 100),
    ],
)
def test_as_few_tasks_as_files_but_none_for_long(
    megabytes: float, seconds: float, tasks: int
) -> None:
    gathering = Gathering(SINKS, cores=16)
    assert gathering.tasks == 0
    gathering.after_epoch(epoch(200, megabytes, seconds))
    assert gathering.tasks == tasks


def test_an_epoch_without_rows_changes_nothing() -> None:
    gathering = Gathering(SINKS, cores=16)
    gathering.after_epoch(epoch(200, 20, 0.2))
    gathering.after_epoch([])
    gathering.after_epoch(epoch(200, 0, 3))
    assert gathering.tasks == 3


def test_the_sink_with_most_files_decides() -> None:
    sinks = {**SINKS, "large": FileSink("/data/c", target_file_size=MB)}
    gathering = Gathering(sinks, cores=16)
    gathering.after_epoch([*epoch(200, 20, 0.1), *epoch(200, 5, 0.1, "large")])
    assert gathering.tasks == 5


@pytest.mark.parametrize(
    ("seconds", "tasks"),
    [
        (0, 16),
        (15, 16),  # a task for each core
        (17, 32),  # two for each, one after the other
        (1000, 1008),  # more than there are: nothing is gathered
    ],
)
def test_without_a_size_each_core_has_tasks_of_a_second(seconds: float, tasks: int) -> None:
    gathering = Gathering({"any": SINKS["any"]}, cores=16)
    gathering.after_epoch(epoch(200, 20, seconds, "any"))
    assert gathering.tasks == tasks
    gathering.after_epoch([])  # an epoch that is skipped
    assert gathering.tasks == tasks


def test_partitions_of_two_operators_stay_apart() -> None:
    """In one task RocksDB refuses the second one's state behind an aggregation's."""
    assert must_be_apart(["Aggregate", "Deduplicate"], ROCKSDB_PROVIDER)
    assert not must_be_apart(["Aggregate", "Aggregate"], ROCKSDB_PROVIDER)
    assert not must_be_apart(["Deduplicate", "Join"], ROCKSDB_PROVIDER)
    assert not must_be_apart(["Aggregate", "Deduplicate"], "HDFSBackedStateStoreProvider")
    gathering = Gathering(SINKS, cores=16, apart=True)
    gathering.after_epoch(epoch(200, 20, 0.2))
    assert gathering.tasks == 0
