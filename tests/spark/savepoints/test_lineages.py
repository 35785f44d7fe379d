"""A restore under the name of a job: its next lineage, in the same directory.

How: `counting_job` counts the clicks of small files by page, one file an epoch, and writes each
count; so the counts tell how often each epoch was written. What is superseded is compared byte for
byte. The killed restores are processes of their own (`lineage_app.py`), and count single rows.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.jobs.checkpoint_history import lineages_in
from seamark.jobs.listing import directory_of
from seamark.jobs.registry import find_job, list_jobs
from seamark.model.errors import FencedError, RestoreError
from seamark.model.job_state import JobState
from seamark.protocol.verdicts import DriverState
from seamark.savepoints.restore import lineage
from tests.chaos.driver import Driver
from tests.spark.savepoints.restore_app import add_clicks, counting_job, counts
from tests.spark.savepoints.test_restore import contents


def make(folder: Path, epochs: int = 3) -> None:
    for part in range(epochs):
        add_clicks(folder, part * 30)
    counting_job(folder, "job").run()


def of_first(folder: Path) -> dict[str, str]:
    """The files of the first lineage, but its leases."""
    found = contents(folder / "store/job")
    return {k: v for k, v in found.items() if not k.startswith(("lineages/", "lease/"))}


def body(folder: Path, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "store/job" / path).read_bytes())["body"]
    return found


def test_a_restore_under_the_jobs_own_name_begins_its_next_lineage(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path)
    store = str(tmp_path / "store")
    old = find_job(store, "job")
    path = f"{store}/job/epochs/0"
    plan = counting_job(tmp_path, "job").restore_plan(path)
    assert plan.restorable, plan.problems
    told = plan.to_json()["supersedes"]
    assert told == {
        "jid": old.start.job_id, "directory": f"file://{store}/job", "epoch": 2,
        "epochs-again": [1, 2], "rows-again": 6,
    }, told  # fmt: skip
    assert "epochs 1 to 2 already (6 rows)" in str(plan.warnings)
    assert not (tmp_path / "store/job/lineages").exists()

    before = of_first(tmp_path)
    add_clicks(tmp_path, 90)
    counting_job(tmp_path, "job").run(restore=path)
    assert counts(tmp_path, "job") == [10, 20, 30, 20, 30, 40]
    after = of_first(tmp_path)
    assert {k: after[k] for k in before} == before
    assert all("sealed." in name for name in after.keys() - before.keys())  # as a stop leaves them
    (newest, *_) = sorted((tmp_path / "store/job/lease").iterdir(), key=lambda p: -int(p.stem))
    new = body(tmp_path, "lineages/2/job.json")
    assert body(tmp_path, f"lease/{newest.name}")["superseded_by"] == {
        "lineage": 2, "job_id": new["job_id"], "path": f"file://{path}", "epoch": 0,
    }  # fmt: skip
    assert {"job_id", "lineage_id"} <= {k for k in new if new[k] != body(tmp_path, "job.json")[k]}

    # Found by the name it is the new one; the old one by its id, superseded for good.
    assert lineages_in(store, "job") == ["job", "job/lineages/2"]
    assert find_job(store, "job").start.job_id == new["job_id"]
    assert directory_of(store, "job") == "job/lineages/2"
    by_id = find_job(store, old.start.job_id)
    assert (by_id.state, by_id.directory, by_id.name) == (JobState.SUPERSEDED, "job", "job")
    assert [one.state for one in list_jobs(store)] == [JobState.SUPERSEDED, JobState.FINISHED]

    # It goes on, with and without the same path; its first lineage is not written again.
    first = contents(tmp_path / "store/job/epochs"), list((tmp_path / "store/job/lease").iterdir())
    add_clicks(tmp_path, 120)
    counting_job(tmp_path, "job").run()
    add_clicks(tmp_path, 150)
    with caplog.at_level("WARNING"):
        counting_job(tmp_path, "job").run(restore=path)
    assert "was restored from" in caplog.text and "after its own epoch 4" in caplog.text
    assert counts(tmp_path, "job") == [10, 20, 30, 20, 30, 40, 50, 60]
    assert counting_job(tmp_path, "job").checkpoints().latest_completed.id == 5  # type: ignore[union-attr]

    # And once more, from its own newest checkpoint: nothing is written again.
    add_clicks(tmp_path, 180)
    counting_job(tmp_path, "job").run(restore=f"{store}/job")
    assert lineages_in(store, "job")[-1] == "job/lineages/3"
    assert counts(tmp_path, "job") == [10, 20, 30, 20, 30, 40, 50, 60, 70]
    assert first == (
        contents(tmp_path / "store/job/epochs"), list((tmp_path / "store/job/lease").iterdir())
    )  # fmt: skip

    # No driver begins in a superseded lineage again, whatever it has read before.
    with pytest.raises(FencedError, match="was the last one here"):
        job = counting_job(tmp_path, "job")
        job._current = lambda: f"file://{store}/job"  # type: ignore[method-assign]
        job.run()

    # Cancelled with its checkpoints, the current lineage alone is deleted, and the job begins anew.
    cancelled = counting_job(tmp_path, "job", externalized_retention="DELETE_ON_CANCELLATION")
    cancelled._prepare(None, lineage_options(), "micro-batch").supervisor._delete_checkpoints()
    assert not (tmp_path / "store/job/lineages/3").exists()
    assert (tmp_path / "store/job/lineages/2/job.json").exists()
    assert lineages_in(store, "job")[-1] == "job/lineages/3"


def lineage_options() -> Any:
    from seamark.savepoints.restore.options import RestoreOptions

    return RestoreOptions("job")


def test_what_stands_in_the_way_is_said_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, 2)
    path = f"{tmp_path}/store/job/epochs/0"
    before = contents(tmp_path / "store")
    with monkeypatch.context() as running:
        running.setattr(lineage, "driver_state", lambda *_: DriverState.LIVES)
        with pytest.raises(RestoreError, match=r"job 'job' is running; .*seamark stop -p job"):
            counting_job(tmp_path, "job").run(restore=path)
    # Decided and not committed, and the program has no such sink any more.
    store = tmp_path / "store/job"
    (store / "epochs/1/committed.json").unlink()
    before = contents(tmp_path / "store")
    job = sm.Job("job", sm.CheckpointConfig(storage=str(tmp_path / "store")), "update")
    source = sm.FileSource(
        str(tmp_path / "in"), format="json", schema="id BIGINT, page STRING", ending="latest"
    )
    counted = job.source(source, "in").groupBy("page").count()
    job.sink(counted, sm.SQLiteSink(str(tmp_path / "other.db"), "counts", keys=["page"]), "other")
    with pytest.raises(RestoreError, match="sink 'out' has 1 unsettled transactions of the job"):
        job.run(restore=path)
    assert contents(tmp_path / "store") == before


POINTS = (
    "generation-claimed", "recovered", "lineage-settled", "restore-begun", "state-restored:1",
    "restore-copied", "restored", "superseded",
)  # fmt: skip


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_a_restore_is_killed_at_each_of_its_points_one_after_another(tmp_path: Path) -> None:
    """`stop -p`, then a changed program with another parallelism, killed at each point in turn."""
    app, options = Path(__file__).with_name("lineage_app.py"), {"folder": str(tmp_path)}
    assert Driver(app, {**options, "until": 3}, tmp_path / "1.log").wait(300) == 0
    path = (tmp_path / "path").read_text()
    again = {**options, "restore": path, "parallelism": 3, "changed": True, "until": 6}
    for point in POINTS:
        Driver(app, again, tmp_path / f"{point}.log", point).die()
        if point == "restore-copied":  # until the last lease the old lineage goes on by itself
            assert Driver(app, {**options, "until": 4}, tmp_path / "old.log").wait(300) == 0
            path = (tmp_path / "path").read_text()
            again |= {"restore": path}
    last = Driver(app, again, tmp_path / "last.log")
    assert last.wait(300) == 0, last.tail()
    with sqlite3.connect(tmp_path / "rows.db") as database:
        rows = sorted(row for (row,) in database.execute("SELECT id FROM rows"))
        totals = dict(database.execute("SELECT page, count(*) FROM counts GROUP BY page"))
    assert rows == list(range(6 * 30)), "a row is lost or doubled"
    assert totals == dict.fromkeys(("p0", "p1", "p2"), 60)
    files = [
        json.loads(line)["id"]
        for file in (tmp_path / "out").glob("*.json")
        for line in file.read_text().splitlines()
    ]
    assert sorted(files) == rows
    assert lineages_in(str(tmp_path / "store"), "job")[-1] != "job"


def test_a_location_of_write_stream_goes_on_in_its_next_lineage(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = tmp_path / "checkpoints/clicks"

    def run() -> None:
        rows = spark.readStream.schema("id BIGINT, page STRING").option("maxFilesPerTrigger", 1)
        writer = sm.write_stream(rows.json(str(tmp_path / "in")).select("id")).format("json")
        writer = writer.option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(location)).trigger(availableNow=True)
        writer.start().awaitTermination()

    def written() -> list[int]:
        files = (tmp_path / "out").glob("*.json")
        return sorted(json.loads(line)["id"] for f in files for line in f.read_text().splitlines())

    def of_spark() -> dict[str, str]:
        found = contents(location)
        return {
            k: v for k, v in found.items() if k.startswith(("offsets/", "commits/", "sources/"))
        }

    add_clicks(tmp_path, 0)
    add_clicks(tmp_path, 30)
    run()
    before = of_spark()
    add_clicks(tmp_path, 60)
    with monkeypatch.context() as restoring:
        restoring.setenv("SEAMARK_RESTORE", str(location))
        run()
    add_clicks(tmp_path, 90)
    run()
    assert written() == list(range(120)), "a row is lost or doubled"
    assert of_spark() == before
    assert (location / "lineages/2/commits/3").exists() and (location / "lineages/2/job.json")
    assert find_job(str(tmp_path / "checkpoints"), "clicks").directory == "clicks/lineages/2"
