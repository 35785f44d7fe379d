"""How: one real stateful job of four epochs; every test compares its directory before and after
(except tests killing it first); restores of it into new jobs, and reads of their SQLite tables. A
job to be killed runs in a process of its own (`restore_app.py`)."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.dev.java_server import free_ports
from seamark.files.local import LocalDirectory
from seamark.model import failpoints
from seamark.model.errors import DamagedCheckpointError, RecordNotStoredError, RestoreError
from seamark.savepoints.record import write_taking
from seamark.spark.hadoop_files import open_files
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3
from tests.spark.savepoints.restore_app import add_clicks, counting_job, counts

EPOCHS = 4


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of a finished job ``first``; epochs 0 to 3 counted to 10, 20, 30 and 40."""
    folder = tmp_path_factory.mktemp("restore")
    for part in range(EPOCHS):
        add_clicks(folder, part * 30)
    counting_job(folder, "first").run()
    assert counts(folder, "first") == [10, 20, 30, 40]
    add_clicks(folder, EPOCHS * 30)
    return folder


@pytest.fixture(autouse=True)
def untouched(first: Path) -> Iterator[None]:
    before = contents(first / "store/first")
    yield
    assert contents(first / "store/first") == before


def identity(folder: Path, job: str) -> dict[str, object]:
    body: dict[str, object] = json.loads((folder / f"store/{job}/job.json").read_bytes())["body"]
    return body


def test_an_origin_whose_store_is_away_is_told_in_a_line(first: Path) -> None:
    (port,) = free_ports(1)
    path = f"hdfs://127.0.0.1:{port}/jobs/first"
    says = rf"^restore of {path} into file://{first}/store/away: .*Exception: .* begin it again"
    for ask in (counting_job(first, "away").run, counting_job(first, "away").restore_plan):
        with pytest.raises(RecordNotStoredError, match=says) as told:
            ask(path)
        assert "\n" not in str(told.value)
    assert not (first / "store/away/job.json").exists()


def test_the_newest_checkpoint_goes_on_in_two_new_jobs(first: Path) -> None:
    for name in ("one", "two"):
        counting_job(first, name).run(restore=str(first / "store/first"))
    assert counts(first, "one") == counts(first, "two") == [50]
    ids = {str(identity(first, job)["job_id"]) for job in ("first", "one", "two")}
    assert len(ids) == 3
    assert identity(first, "one")["first_epoch"] == EPOCHS
    assert sorted(p.name for p in (first / "store/one/spark/commits").glob("[0-9]*")) == ["3", "4"]
    # The same command once more, as after a crash: the job goes on by itself.
    counting_job(first, "one").run(restore=str(first / "store/first"))
    assert counts(first, "one") == [50]


def test_an_older_epoch_goes_on_from_there(first: Path) -> None:
    counting_job(first, "older").run(restore=str(first / "store/first/epochs/1"))
    assert counts(first, "older") == [30, 40, 50]
    # A restored job's own checkpoints can be restored too, its first one among them.
    counting_job(first, "again").run(restore=str(first / "store/older/epochs/1"))
    assert counts(first, "again") == [30, 40, 50]


def test_the_command_line_wins_over_the_program(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMARK_RESTORE", str(first / "store/first/epochs/2"))
    counting_job(first, "environment").run(restore="/nowhere")
    assert counts(first, "environment") == [40, 50]


def test_what_cannot_be_restored_is_said(first: Path, tmp_path: Path) -> None:
    def refused(name: str, path: Path) -> str:
        with pytest.raises(RestoreError) as found:
            counting_job(first, name).run(restore=str(path))
        return str(found.value)

    assert "holds no checkpoint of a Seamark job" in refused("new", tmp_path / "nothing")
    (tmp_path / "day/savepoint-1f2e-77aa").mkdir(parents=True)
    above = refused("new", tmp_path / "day")
    assert f"give one that it holds: file://{tmp_path}/day/savepoint-1f2e-77aa" in above
    (tmp_path / "file").touch()
    assert "file is a file; give the directory of a savep" in refused("new", tmp_path / "file")
    assert not (tmp_path / "nothing").exists()
    write_taking(LocalDirectory(tmp_path / "cut"), "1" * 32, "first", str(first / "store/first"), 2)
    cut = refused("new", tmp_path / "cut")
    assert "cut is not a whole savepoint" in cut and "dispose --incomplete" in cut
    assert "holds those of epochs 0 to 3" in refused("new", first / "store/first/epochs/9")
    assert not (first / "store/new").exists()


def test_another_program_is_refused_before_anything_is_written(first: Path) -> None:
    job = counting_job(first, "two-sources")
    source = sm.FileSource(str(first / "in"), format="json", schema="id BIGINT", ending="latest")
    job.sink(job.source(source, "in2"), sm.FileSink(str(first / "files")), "files")
    with pytest.raises(RestoreError, match="offsets of 1 sources, the program reads 2"):
        job.run(restore=str(first / "store/first"))
    job = sm.Job("no-state", sm.CheckpointConfig(storage=str(first / "store")))
    job.sink(job.source(source, "in"), sm.FileSink(str(first / "files")), "files")
    with pytest.raises(RestoreError, match=r"operators 0 \(stateStoreSave\), .* has none"):
        job.run(restore=str(first / "store/first"))
    job = counting_job(first, "other-backend", state_backend="rocksdb")
    with pytest.raises(RestoreError, match="state_backend 'hashmap', and the program's is 'rocks"):
        job.run(restore=str(first / "store/first"))
    for name in ("two-sources", "no-state", "other-backend"):
        assert not (first / "store" / name).exists()


def test_a_running_checkpoint_that_is_deleted_meanwhile_is_said(
    first: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    shutil.copytree(first / "store/first", tmp_path / "first")
    deleted = tmp_path / "first/spark/state/0/0/1.delta"
    monkeypatch.setattr(  # as the running job's maintenance would do, at just this moment
        failpoints, "reached", lambda name: name == "restore-begun" and deleted.unlink()
    )
    with pytest.raises(Exception, match="has deleted this checkpoint meanwhile"):
        job = counting_job(first, "new", storage=str(tmp_path / "store"))
        job.run(restore=str(tmp_path / "first"))
    assert (tmp_path / "store/new/restoring.json").exists()
    assert not (tmp_path / "store/new/job.json").exists()


def run_app(folder: Path, name: str, *path: Path, failpoint: str) -> None:
    """Run the program until it kills itself at `failpoint`."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.savepoints.restore_app",
            str(folder),
            name,
            *map(str, path),
        ],
        env=os.environ | {"SEAMARK_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


@pytest.mark.parametrize(
    "failpoint",
    [
        "file-restored:6",
        pytest.param("restore-begun", marks=pytest.mark.chaos),
        pytest.param("restore-copied", marks=pytest.mark.chaos),
        pytest.param("restored", marks=pytest.mark.chaos),
    ],
)
def test_a_restore_that_is_killed_is_done_again(first: Path, failpoint: str) -> None:
    name = failpoint.replace(":", "-")
    path = first / "store/first/epochs/2"
    run_app(first, name, path, failpoint=failpoint)
    if failpoint != "restored":
        assert not (first / f"store/{name}/job.json").exists()
        with pytest.raises(RestoreError, match="was begun and has not ended"):
            counting_job(first, name).run()
    counting_job(first, name).run(restore=str(path))
    assert counts(first, name) == [40, 50]
    assert not (first / f"store/{name}/restoring.json").exists()


def test_an_epoch_decided_but_not_recorded_is_committed_by_the_restore(tmp_path: Path) -> None:
    for part in range(2):
        add_clicks(tmp_path, part * 30)
    run_app(tmp_path, "dead", failpoint="decided:2")
    assert counts(tmp_path, "shared") == [10]
    before = contents(tmp_path / "store/dead")
    counting_job(tmp_path, "heir", "shared").run(restore=str(tmp_path / "store/dead"))
    assert counts(tmp_path, "shared") == [10, 20]
    assert contents(tmp_path / "store/dead") == before
    # The first job may come back: it finds its epoch committed, and what is new is each one's own.
    counting_job(tmp_path, "dead", "shared").run()
    assert counts(tmp_path, "shared") == [10, 20]


def test_a_checkpoint_moves_between_file_systems(
    first: Path, spark: SparkSession, hdfs: LocalHdfs, s3: LocalS3
) -> None:
    for key, value in s3.spark_settings().items():
        spark.conf.set(key.removeprefix("spark.hadoop."), value)
    on_hdfs, on_s3 = f"{hdfs.uri}/restored", f"s3a://{s3.bucket}/restored"
    counting_job(first, "afar", storage=on_hdfs).run(restore=str(first / "store/first/epochs/1"))
    assert counts(first, "afar") == [30, 40, 50]
    counting_job(first, "farther", storage=on_s3).run(restore=f"{on_hdfs}/afar/epochs/3")
    assert counts(first, "farther") == [50]
    files = open_files(spark, f"{on_s3}/farther")
    files.delete("spark/state/0/0/5.delta")
    with pytest.raises(DamagedCheckpointError, match=r"0/0/5\.delta: missing") as found:
        counting_job(first, "farther", storage=on_s3).run()
    assert found.value.restore_path == f"{on_s3}/farther/epochs/3"
