"""What disposal deletes and what it spares; on real local directories, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.savepoints.test_record import a_savepoint
from tidemark.checkpoint.envelope import seal_envelope
from tidemark.checkpoint.local_files import LocalFiles
from tidemark.model.errors import SavepointError
from tidemark.savepoints.claims import claim
from tidemark.savepoints.disposal import dispose
from tidemark.savepoints.record import write_savepoint, write_taking


def begun(directory: Path, job_directory: Path) -> LocalFiles:
    files = LocalFiles(directory)
    write_taking(
        files, job_id="a" * 32, job_name="clicks", job_directory=job_directory.as_uri(), epoch=7
    )
    return files


def test_a_whole_savepoint_goes(tmp_path: Path) -> None:
    files = begun(tmp_path / "savepoint", tmp_path / "store" / "clicks")
    write_savepoint(files, a_savepoint(files))
    dispose(str(tmp_path / "savepoint"), storage=(tmp_path / "nowhere").as_uri())
    assert not (tmp_path / "savepoint").exists()


def test_one_that_was_cut_off_goes_only_if_that_is_said(tmp_path: Path) -> None:
    begun(tmp_path / "savepoint", tmp_path / "store" / "clicks")
    with pytest.raises(SavepointError, match=r"of job 'clicks', epoch 7, is not whole.*cut off"):
        dispose(str(tmp_path / "savepoint"))
    dispose(str(tmp_path / "savepoint"), incomplete=True)
    assert not (tmp_path / "savepoint").exists()


def test_what_is_no_savepoint_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(SavepointError, match=r"no savepoint\.json"):
        dispose(str(tmp_path / "mine"), incomplete=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_what_a_job_is_being_restored_from_is_spared(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "savepoint")
    write_savepoint(files, a_savepoint(files))
    job = LocalFiles(tmp_path / "store" / "second")
    body = {"path": (tmp_path / "savepoint").as_uri()}
    job.create("restoring.json", seal_envelope("restoring", body))
    storage = (tmp_path / "store").as_uri()
    with pytest.raises(SavepointError, match=r"job 'second' in .* is being restored from it"):
        dispose(str(tmp_path / "savepoint"), storage=storage)
    job.create("job.json", b"{}")  # made last: the restore has ended
    dispose(str(tmp_path / "savepoint"), storage=storage)
    assert not (tmp_path / "savepoint").exists()


def test_what_a_job_has_claimed_is_spared_while_that_job_is_there(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path / "savepoint")
    write_savepoint(files, a_savepoint(files))
    job = LocalFiles(tmp_path / "store" / "second")
    job.create("job.json", b"{}")
    claim(files, "b" * 32, "second", (tmp_path / "store" / "second").as_uri())
    with pytest.raises(SavepointError, match=r"job 'second' .* has claimed it"):
        dispose(str(tmp_path / "savepoint"))
    (tmp_path / "store" / "second" / "job.json").unlink()
    (tmp_path / "store" / "second").rmdir()
    dispose(str(tmp_path / "savepoint"))
    assert not (tmp_path / "savepoint").exists()
