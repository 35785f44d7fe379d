"""How: the file operations on a real directory; the exclusive create raced by real processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from seamark.files.deadline import open_local
from seamark.files.local import LocalDirectory
from seamark.model.errors import PreflightError

PATIENCE_S = 400
"""For processes, each with imports of its own, on a busy machine."""


def _contend(directory: str, number: int, start: object, wins: object) -> None:
    files = LocalDirectory(directory)
    for turn in range(50):
        start.wait()  # type: ignore[attr-defined]
        try:
            files.create(f"lease/{turn}.json", b"%d" % number * 1000)
        except FileExistsError:
            continue
        wins.put((turn, number))  # type: ignore[attr-defined]


def require_ended(racers: Sequence[BaseProcess]) -> None:
    """Wait for the processes; each must end well. None is left."""
    deadline = time.monotonic() + PATIENCE_S
    for racer in racers:
        racer.join(max(deadline - time.monotonic(), 0))
    ends = [racer.exitcode for racer in racers]
    for racer in racers:
        racer.kill()
    assert ends == [0] * len(racers), f"exit codes, None after {PATIENCE_S} s: {ends}"


def test_of_eight_processes_that_create_one_file_exactly_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, wins = context.Barrier(8), context.Queue()
    racers = [
        context.Process(target=_contend, args=(str(tmp_path), n, start, wins)) for n in range(8)
    ]
    for racer in racers:
        racer.start()
    won = dict(wins.get(timeout=PATIENCE_S) for _ in range(50))
    require_ended(racers)
    assert sorted(won) == list(range(50))
    assert wins.empty()
    for turn, number in won.items():
        assert (tmp_path / f"lease/{turn}.json").read_bytes() == b"%d" % number * 1000


def test_create_leaves_no_temporary_file_and_changes_nothing_when_refused(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path)
    files.create("epochs/3/prepared.1.json", b"first")
    with pytest.raises(FileExistsError):
        files.create("epochs/3/prepared.1.json", b"second")
    assert files.read("epochs/3/prepared.1.json") == b"first"
    assert [p.name for p in (tmp_path / "epochs/3").iterdir()] == ["prepared.1.json"]


def test_list_hides_unfinished_files_and_a_missing_directory_is_empty(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path)
    (tmp_path / ".x.tmp").write_bytes(b"")
    files.create("a", b"")
    assert files.list("") == ["a"]
    assert files.list("nowhere") == []


def test_a_directory_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path) -> None:
    """A spool's records of what was sent would be missing from the list, and sent again."""
    files = LocalDirectory(tmp_path)
    (tmp_path / "wal").symlink_to("wal")  # any look below it is an error
    with pytest.raises(OSError, match="Too many levels"):
        files.tree("wal/out")
    with pytest.raises(OSError, match="Too many levels"):  # which Python's own `exists` hides
        files.exists("wal/out")
    assert files.tree("nowhere") == {}


def test_delete_takes_files_directories_and_nothing(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path)
    files.create("d/e/f", b"")
    files.delete("d/e/f")
    assert not files.exists("d/e/f")
    files.delete("d")
    files.delete("d")
    assert files.list("") == []


def _delete(directory: str, start: object) -> None:
    files = LocalDirectory(directory)
    for turn in range(60):
        start.wait()  # type: ignore[attr-defined]
        files.delete(f"epochs/{turn}")


def test_processes_that_delete_one_directory_all_succeed(tmp_path: Path) -> None:
    files = LocalDirectory(tmp_path)
    for turn in range(60):
        for name in range(40):
            path = tmp_path / f"epochs/{turn}/{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(4)
    racers = [context.Process(target=_delete, args=(str(tmp_path), start)) for _ in range(4)]
    for racer in racers:
        racer.start()
    require_ended(racers)
    assert files.list("epochs") == []


def test_a_directory_that_gets_a_file_meanwhile_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalDirectory(tmp_path)
    files.create("epochs/3/committed.json", b"")
    rmdir, late = os.rmdir, [tmp_path / "epochs/3/manifest.json"]

    def rmdir_later(path: Any, *, dir_fd: int | None = None) -> None:
        if late:
            late.pop().touch()
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir_later)
    files.delete("epochs/3")
    assert not late and files.list("epochs") == []


@pytest.mark.parametrize("own", [True, False])
def test_a_link_whose_answer_was_lost_is_its_makers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """NFS repeats the request, and is told that the name exists."""
    files, link = LocalDirectory(tmp_path), os.link
    (tmp_path / "lease").mkdir()

    def repeated(source: Path, target: Path) -> None:
        if own:
            link(source, target)
        else:
            target.write_bytes(source.read_bytes())  # another driver's, of the same bytes
        link(source, target)

    monkeypatch.setattr(os, "link", repeated)
    if own:
        files.create("lease/1.json", b"mine")
    else:
        with pytest.raises(FileExistsError):
            files.create("lease/1.json", b"mine")
    assert [p.name for p in (tmp_path / "lease").iterdir()] == ["1.json"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PreflightError, match="file/store"):
        open_local(tmp_path / "file" / "store")
