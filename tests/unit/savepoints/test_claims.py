"""The files deleted by a disposal, and those spared; on real local directories, without Spark."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamark.checkpoint.envelope import seal_envelope
from seamark.checkpoint.executions import ExecutionEnd, ExecutionStart, ExecutionStore
from seamark.cli.main import app
from seamark.files import Directory
from seamark.files.local import LocalDirectory
from seamark.model import failpoints
from seamark.model.errors import RestoreError, SavepointError
from seamark.model.job_state import JobState
from seamark.protocol.procedures import supersede
from seamark.savepoints.claims import claim, dispose, read_claim
from seamark.savepoints.record import write_savepoint, write_taking
from tests.unit.checkpoint.test_lineages import lineage
from tests.unit.savepoints.test_record import a_savepoint


def begun(directory: Path, job_directory: Path) -> LocalDirectory:
    files = LocalDirectory(directory)
    write_taking(
        files, job_id="a" * 32, job_name="clicks", job_directory=job_directory.as_uri(), epoch=7
    )
    return files


def test_a_whole_savepoint_goes(tmp_path: Path) -> None:
    files = begun(tmp_path / "savepoint", tmp_path / "store" / "clicks")
    write_savepoint(files, a_savepoint(files))
    dispose(str(tmp_path / "savepoint"), storage=(tmp_path / "nowhere").as_uri())
    assert not (tmp_path / "savepoint").exists()


def with_state(files: Directory) -> None:
    """A savepoint's files, as Spark's tasks and the driver write it."""
    for path in (
        "state/0/default/part-00001-6d9f2f3c-7a3a-4a53-9a53-0f6b2a0f4a11.snappy.parquet",
        "state/0/default/.part-00001-6d9f2f3c-7a3a-4a53-9a53-0f6b2a0f4a11.snappy.parquet.crc",
        "state/1/0/3_6d9f2f3c-7a3a-4a53-9a53-0f6b2a0f4a11.zip",
        "state/1/0/SSTs/000008-6d9f2f3c-7a3a-4a53-9a53-0f6b2a0f4a11.sst",
        "spark/offsets/7",
        "spark/sources/0/6.compact",
        "spark/state/0/_metadata/v2/7",
        "spark/state/0/0/left/_metadata/schema",
        "spark/state/0/_stateSchema/default/0_6d9f2f3c",
        "wal/out/7/g1-e7-p0-a3-0123456789abcdef0123456789abcdef.arrow",
        ".savepoint.json.0123456789abcdef.tmp",
    ):
        files.create(path, b"")


@pytest.mark.parametrize("whole", [True, False])
def test_files_of_others_stay(tmp_path: Path, whole: bool) -> None:
    files = begun(tmp_path / "savepoint", tmp_path / "store" / "clicks")
    with_state(files)
    foreign = ["state/0/default/mine.parquet", "state/notes.txt", "thesis.txt", "wal/out/7/x.arrow"]
    for path in foreign:
        files.create(path, b"years of work")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis.txt").write_text("years of work")
    (tmp_path / "savepoint" / "spark" / "link").symlink_to(tmp_path / "elsewhere")
    if whole:
        files.create("state/0/default/part-0.parquet", b"")
        listed = {"state/0/default/part-0.parquet": (0, 0), "../elsewhere/thesis.txt": (13, 0)}
        write_savepoint(files, replace(a_savepoint(files), files=listed))
    left = dispose(str(tmp_path / "savepoint"), incomplete=not whole)
    assert left == ["spark/link", *foreign]
    assert sorted(files.tree()) == left
    assert (tmp_path / "elsewhere" / "thesis.txt").exists()
    with pytest.raises(SavepointError, match="there is no savepoint here"):
        dispose(str(tmp_path / "savepoint"))


def test_the_command_says_what_stays(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path / "savepoint")
    write_savepoint(files, a_savepoint(files))
    for number in range(7):
        files.create(f"mine-{number}.txt", b"years of work")
    done = CliRunner().invoke(app, ["savepoint", "-d", str(tmp_path / "savepoint")])
    assert (done.exit_code, "is disposed." in done.stdout) == (0, True)
    assert "7 files that are not the savepoint's: mine-0.txt, " in " ".join(done.stderr.split())
    assert "and 2 more" in " ".join(done.stderr.split())
    assert len(files.tree()) == 7


@pytest.mark.parametrize("whole", [True, False])
def test_nothing_of_its_own_stays(tmp_path: Path, whole: bool) -> None:
    files = begun(tmp_path / "savepoint", tmp_path / "store" / "clicks")
    with_state(files)
    if whole:
        write_savepoint(files, a_savepoint(files))
    assert dispose(str(tmp_path / "savepoint"), incomplete=not whole) == []
    assert not (tmp_path / "savepoint").exists()


def test_a_disposal_that_is_cut_off_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = begun(tmp_path / "savepoint", tmp_path / "store" / "clicks")
    with_state(files)
    write_savepoint(files, a_savepoint(files))
    removed = LocalDirectory.remove

    def fails(of: LocalDirectory, path: str) -> None:
        if path == "spark/offsets/7":
            raise OSError("the disk is away")
        removed(of, path)

    monkeypatch.setattr(LocalDirectory, "remove", fails)
    with pytest.raises(OSError, match="is away"):
        dispose(str(tmp_path / "savepoint"))
    monkeypatch.undo()
    with pytest.raises(SavepointError, match="never be restored"):
        dispose(str(tmp_path / "savepoint"))
    dispose(str(tmp_path / "savepoint"), incomplete=True)
    assert not (tmp_path / "savepoint").exists()


def test_the_path_with_a_number_sign_is_the_one_that_is_disposed_of(tmp_path: Path) -> None:
    """It was cut there once, and the user's own files beside it went."""
    LocalDirectory(tmp_path / "backups").create("thesis.txt", b"years of work")
    begun(tmp_path / "backups#1", tmp_path / "store" / "clicks")
    dispose(str(tmp_path / "backups#1"), incomplete=True)
    assert [p.name for p in tmp_path.iterdir()] == ["backups"]
    assert (tmp_path / "backups" / "thesis.txt").exists()


def test_one_that_was_cut_off_goes_only_if_that_is_said(tmp_path: Path) -> None:
    begun(tmp_path / "savepoint", tmp_path / "store" / "clicks")
    with pytest.raises(SavepointError, match=r"of job 'clicks', epoch 7, is not whole.*cut off"):
        dispose(str(tmp_path / "savepoint"))
    dispose(str(tmp_path / "savepoint"), incomplete=True)
    assert not (tmp_path / "savepoint").exists()


def test_one_of_a_driver_that_lives_is_spared_whether_it_answers_or_not(tmp_path: Path) -> None:
    job = lineage(tmp_path / "store/clicks", 1).files
    start = ExecutionStart("a" * 32, "clicks", socket.gethostname(), os.getpid(), 1000.0, "")
    ExecutionStore(job).begin(start)
    begun(tmp_path / "savepoint", tmp_path / "store/clicks")
    with pytest.raises(SavepointError, match="its driver still runs: it may be writing it"):
        dispose(str(tmp_path / "savepoint"), incomplete=True)
    ExecutionStore(job).end(1, ExecutionEnd(JobState.FINISHED, 2000.0))
    dispose(str(tmp_path / "savepoint"), incomplete=True)
    assert not (tmp_path / "savepoint").exists()


def test_what_is_no_savepoint_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(SavepointError, match="there is no savepoint here"):
        dispose(str(tmp_path / "mine"), incomplete=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_what_a_job_is_being_restored_from_is_spared(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path / "savepoint")
    write_savepoint(files, a_savepoint(files))
    job = LocalDirectory(tmp_path / "store" / "second")
    body = {"path": (tmp_path / "savepoint").as_uri()}
    job.create("restoring.json", seal_envelope("restoring", body))
    storage = (tmp_path / "store").as_uri()
    with pytest.raises(SavepointError, match=r"job 'second' in .* is being restored from it"):
        dispose(str(tmp_path / "savepoint"), storage=storage)
    job.create("job.json", b"{}")  # made last: the restore has ended
    dispose(str(tmp_path / "savepoint"), storage=storage)
    assert not (tmp_path / "savepoint").exists()


def test_a_restore_under_a_jobs_name_that_was_cut_off_is_named_and_not_the_living_job(
    tmp_path: Path,
) -> None:
    files = LocalDirectory(tmp_path / "savepoint")
    write_savepoint(files, a_savepoint(files))
    living = lineage(tmp_path / "store/job", 1)
    body = {"path": files.uri, "supersedes": living.read_identity().job_id}
    cut_off = LocalDirectory(tmp_path / "store/job/lineages/2")
    cut_off.create("restoring.json", seal_envelope("restoring", body))
    storage = (tmp_path / "store").as_uri()
    with pytest.raises(SavepointError, match=r"what there is of it: file:.*/store/job/lineages/2$"):
        dispose(str(tmp_path / "savepoint"), storage=storage)
    failpoints.drive(supersede(1, {"lineage": 3}, living))
    lineage(tmp_path / "store/job", 3)  # no command ends the one that was cut off any more
    dispose(str(tmp_path / "savepoint"), storage=storage)
    assert not (tmp_path / "savepoint").exists()


def test_what_a_job_has_claimed_is_spared_while_that_job_is_there(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path / "savepoint")
    write_savepoint(files, a_savepoint(files))
    job = LocalDirectory(tmp_path / "store" / "second")
    job.create("job.json", b"{}")
    claim(files, "b" * 32, "second", (tmp_path / "store" / "second").as_uri())
    with pytest.raises(SavepointError, match=r"job 'second' .* has claimed it"):
        dispose(str(tmp_path / "savepoint"))
    (tmp_path / "store" / "second" / "job.json").unlink()
    (tmp_path / "store" / "second").rmdir()
    dispose(str(tmp_path / "savepoint"))
    assert not (tmp_path / "savepoint").exists()


def test_a_claim_of_a_restore_that_nobody_ends_is_void(tmp_path: Path) -> None:
    files, at = LocalDirectory(tmp_path / "savepoint"), tmp_path / "store/job"
    write_savepoint(files, a_savepoint(files))
    living = lineage(at, 1)
    cut_off = LocalDirectory(at / "lineages/2")
    body = {"job_id": "b" * 32, "supersedes": living.read_identity().job_id}
    cut_off.create("restoring.json", seal_envelope("restoring", body))
    claim(files, "b" * 32, "job", (at / "lineages/2").as_uri())

    with pytest.raises(RestoreError, match="was claimed by job 'job'"):
        claim(files, "c" * 32, "other", (tmp_path / "store/other").as_uri())
    claim(files, "d" * 32, "job", (at / "lineages/3").as_uri())  # the same job's next try
    body["job_id"] = "d" * 32
    LocalDirectory(at / "lineages/3").create("restoring.json", seal_envelope("restoring", body))
    failpoints.drive(supersede(1, {"lineage": 4}, living))
    lineage(at, 4)
    claim(files, "c" * 32, "other", (tmp_path / "store/other").as_uri())
    found = read_claim(files)
    assert found is not None and found.job_name == "other"
    claim(files, "e" * 32, "job", (at / "lineages/5").as_uri())  # that directory was never made
