"""A location that is deleted, and begun anew by another query, while a run of the old one sleeps:
the new query's rows are all in the sink, and the old run stops in a line.

How: the two queries have workers of their own, played on real files. A call of the old run's to the
log lets the other query go on first.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint.batch_log import StoredLog
from seamark.checkpoint.envelope import create_record
from seamark.datasource import location, writers
from seamark.files import open_directory
from seamark.model.errors import CorruptRecordError, FencedError, LostTransactionError, SeamarkError
from seamark.operations.locations import read_location
from tests.unit.datasource.played import IDS, Query, log_of
from tests.unit.datasource.test_restarts import appending, ids


def sqlite(at: Path) -> Query:
    return Query(sink="sqlite", path=f"{at}/t.db", table="t", checkpointlocation=f"{at}/checkpoint")


def in_sqlite(at: Path) -> list[int]:
    with sqlite3.connect(at / "t.db") as connection:
        return [row[0] for row in connection.execute("SELECT id FROM t ORDER BY id")]


def written(query: Query, batch: int, *rows: int, name: str) -> Callable[[], None]:
    """Run the batch up to its commit; return the commit."""
    told = query.write(query.plan(IDS), batch, *rows, query=name)
    place = query.committing()
    return lambda: writers.BatchCommit(place).commit([told], batch)


def sleeps_before(
    owner: type, name: str, meanwhile: Callable[[], None], patch: pytest.MonkeyPatch
) -> None:
    """Let the next call happen after `meanwhile`."""
    method = getattr(owner, name)

    def call(self: Any, *given: Any) -> Any:
        patch.setattr(owner, name, method)
        meanwhile()
        return method(self, *given)

    patch.setattr(owner, name, call)


@pytest.mark.parametrize("kept", [True, False], ids=["kept-worker", "new-worker"])
@pytest.mark.parametrize("batch", [0, 1])
def test_before_its_commit(batch: int, kept: bool, tmp_path: Path) -> None:
    """Both tries may have the same number."""
    old, new = sqlite(tmp_path), sqlite(tmp_path)
    for number in range(batch):
        old.run(number, number)
    commit = written(old, batch, 100, name="q")
    if not kept:
        old.memories.pop("committer")
        told = old.write(old.plan(IDS), batch, 100, query="q")
        commit = lambda: writers.BatchCommit(old.committing()).commit([told], batch)  # noqa: E731
    shutil.rmtree(tmp_path / "checkpoint")
    new_commit = written(new, 0, 7, name="another")
    with pytest.raises(FencedError, match="was deleted while this run"):
        commit()
    new_commit()
    new.end_spark()
    new.run(1, 8, query="another")
    old.end_spark()
    new.end_spark()
    assert in_sqlite(tmp_path) == [*range(batch), 7, 8]


@pytest.mark.parametrize("batches", [0, 3])
def test_before_its_decision(batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = sqlite(tmp_path), sqlite(tmp_path)
    for number in range(batches):
        old.run(number, number)
    commit = written(old, batches, 100, name="q")
    commits: list[Callable[[], None]] = []

    def meanwhile() -> None:
        shutil.rmtree(tmp_path / "checkpoint")
        commits.append(written(new, 0, 7, name="another"))

    sleeps_before(StoredLog, "append", meanwhile, monkeypatch)
    with pytest.raises(FencedError, match="was deleted while this run"):
        commit()
    commits[0]()
    new.run(1, 8, query="another")
    old.end_spark()
    new.end_spark()
    assert in_sqlite(tmp_path) == [*range(batches), 7, 8]


def test_before_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new query's decision, under the same number, is not committed yet."""
    old, new = sqlite(tmp_path), sqlite(tmp_path)
    commit = written(old, 0, 100, name="q")

    def meanwhile() -> None:
        shutil.rmtree(tmp_path / "checkpoint")
        with pytest.raises(OSError, match="died"):
            patch_commit(new, monkeypatch)
        new.end_spark()

    sleeps_before(StoredLog, "mark_committed", meanwhile, monkeypatch)
    commit()
    new.run(0, 7, query="another")
    old.end_spark()
    new.end_spark()
    assert in_sqlite(tmp_path) == [7, 100]


def patch_commit(new: Query, patch: pytest.MonkeyPatch) -> None:
    def dies() -> None:
        raise OSError("died")

    sleeps_before(location._Sinks, "commit", dies, patch)
    written(new, 0, 7, name="another")()


def test_before_it_forgets_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = appending(tmp_path), appending(tmp_path)
    commit = written(old, 0, 100, name="q")
    commits: list[Callable[[], None]] = []

    def meanwhile() -> None:
        shutil.rmtree(tmp_path / "checkpoint")
        commits.append(written(new, 0, 7, name="another"))

    sleeps_before(location._Sinks, "forget", meanwhile, monkeypatch)
    commit()
    commits[0]()
    old.end_spark()
    new.end_spark()
    assert ids(tmp_path) == ["100", "7"]


def test_a_lost_batch_says_how_it_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = sqlite(tmp_path)
    with pytest.raises(OSError, match="died"):
        patch_commit(query, monkeypatch)
    query.end_spark()
    for staged in tmp_path.rglob("g1-e0-*.arrow"):
        staged.unlink()
    with pytest.raises(LostTransactionError, match="new location and the option adopt") as error:
        query.run(0, 7, query="another")
    assert "accept-loss" not in str(error.value)
    query.end_spark()
    query.options |= {"location": f"{tmp_path}/new", "adopt": "true"}
    query.run(0, 7, query="another")
    query.end_spark()
    assert in_sqlite(tmp_path) == [7]


@pytest.mark.parametrize("sink", ["files", "sqlite"])
def test_another_sink_before_a_decided_batch_is_committed(
    sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = sqlite(tmp_path)
    with pytest.raises(OSError, match="died"):
        patch_commit(query, monkeypatch)
    query.end_spark()
    before = query.options
    more = {"table": "t"} if sink == "sqlite" else {}
    checkpoint = before["checkpointlocation"]
    query.options = {
        "sink": sink,
        "path": f"{tmp_path}/x",
        "checkpointlocation": checkpoint,
        **more,
    }
    with pytest.raises(SeamarkError, match="another sink before, start it once with that one"):
        query.run(0, 7, query="another")
    query.end_spark()
    query.options = before
    query.run(0, 7, query="another")
    query.end_spark()
    assert in_sqlite(tmp_path) == [7]


def test_a_location_of_an_older_seamark_goes_on(tmp_path: Path) -> None:
    at = tmp_path / "checkpoint/seamark"
    body = {"job_id": 32 * "a", "lineage_id": 32 * "b", "name": "q", "first_epoch": 0}
    create_record(open_directory(str(at)), "job", "job.json", {**body, "spark_directory": ""})
    query = sqlite(tmp_path)
    query.run(0, 1)
    query.end_spark()
    query.run(0, 1)
    query.run(1, 2)
    query.end_spark()
    assert in_sqlite(tmp_path) == [1, 2]
    assert sorted(path.name for path in at.iterdir()) == ["executions", "job.json", "log"]
    assert read_location(str(at)).entries == (1, 2, 3, 4, 5)


def test_a_deleted_location_is_not_made_again_by_a_commit(tmp_path: Path) -> None:
    old = sqlite(tmp_path)
    commit = written(old, 0, 1, name="q")
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(FencedError, match="was deleted while this run"):
        commit()
    assert not (tmp_path / "checkpoint/seamark/job.json").exists()


def test_an_entry_that_is_deleted_once_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a run that has gone on meanwhile; or by hand, which is said."""
    query = sqlite(tmp_path)
    for _ in range(3):
        query.plan(IDS)
    log = StoredLog(open_directory(str(tmp_path / "checkpoint/seamark")))
    at = log_of(tmp_path / "checkpoint/seamark")

    def others_go_on() -> None:
        query.run(0, 1)
        for number in range(1, 4):
            (at / f"{number}.json").unlink()

    sleeps_before(StoredLog, "entry", others_go_on, monkeypatch)
    assert sorted(log.entries()) == [5]
    query.end_spark()
    (at / "5.json").unlink()
    with pytest.raises(CorruptRecordError, match="entries are missing below the newest"):
        query.plan(IDS)
