"""A copied checkpoint directory is refused while its original is there; a moved one goes on. How:
real directories on a disk, and coordinators without a query."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seamark.checkpoint.checkpointed_job import QueryRun
from seamark.checkpoint.coordinator import Coordinator
from seamark.files import Directory
from seamark.files.local import LocalDirectory
from seamark.model.errors import UserError
from tests.unit.checkpoint.test_coordinator import World


class Opening(QueryRun):
    def open_files(self, uri: str) -> Directory:
        return LocalDirectory(uri.removeprefix("file://"))


def run_once(directory: Path) -> int:
    """Start the job in the directory, and end it; return the driver's generation."""
    driver = Coordinator(World(directory).job(), Opening())
    driver.start()
    driver.finish()
    return driver.generation


@pytest.fixture
def first(tmp_path: Path) -> Path:
    assert run_once(tmp_path / "store/job") == 1
    return tmp_path / "store/job"


def contents(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file()}


def test_a_copy_beside_its_original_is_refused_and_writes_nothing(
    first: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy/job"
    shutil.copytree(first, copy)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=f"file://{copy} is a copy of file://{first}, which is"):
        run_once(copy)
    assert contents(tmp_path) == before
    assert run_once(first) == 2


def test_a_copy_goes_on_when_its_original_is_gone(first: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy/job"
    shutil.copytree(first, copy)
    first.rename(tmp_path / "kept")
    assert run_once(copy) == 2
    (tmp_path / "kept").rename(first)
    assert run_once(copy) == 3, "its own lease has its own place"


@pytest.mark.parametrize("link", [False, True], ids=["moved", "moved and linked"])
def test_a_moved_directory_goes_on(first: Path, tmp_path: Path, link: bool) -> None:
    """With a link there it is its own original, by another path."""
    moved = tmp_path / "moved"
    first.rename(moved)
    if link:
        first.symlink_to(moved)
    assert run_once(moved) == 2


def test_another_job_that_lies_there_now_is_no_original(first: Path, tmp_path: Path) -> None:
    first.rename(tmp_path / "moved")
    assert run_once(first) == 1
    assert run_once(tmp_path / "moved") == 2


def test_a_lease_without_a_place_says_nothing(first: Path, tmp_path: Path) -> None:
    """As older drivers wrote it, or damaged: its body is for people."""
    (first / "lease/1.json").write_text("{}")
    shutil.copytree(first, tmp_path / "copy")
    assert run_once(tmp_path / "copy") == 2
