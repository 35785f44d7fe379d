"""How: the file operations on a real directory; the exclusive create raced by real processes."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from seamark.checkpoint.local_files import LocalFiles
from seamark.model.errors import PreflightError


def _contend(directory: str, number: int, start: object, wins: object) -> None:
    files = LocalFiles(directory)
    for turn in range(50):
        start.wait()  # type: ignore[attr-defined]
        try:
            files.create(f"lease/{turn}.json", b"%d" % number * 1000)
        except FileExistsError:
            continue
        wins.put((turn, number))  # type: ignore[attr-defined]


def test_of_eight_processes_that_create_one_file_exactly_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, wins = context.Barrier(8), context.Queue()
    racers = [
        context.Process(target=_contend, args=(str(tmp_path), n, start, wins)) for n in range(8)
    ]
    for racer in racers:
        racer.start()
    won = dict(wins.get(timeout=60) for _ in range(50))
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert sorted(won) == list(range(50))
    assert wins.empty()
    for turn, number in won.items():
        assert (tmp_path / f"lease/{turn}.json").read_bytes() == b"%d" % number * 1000


def test_create_leaves_no_temporary_file_and_changes_nothing_when_refused(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.create("epochs/3/prepared.1.json", b"first")
    with pytest.raises(FileExistsError):
        files.create("epochs/3/prepared.1.json", b"second")
    assert files.read("epochs/3/prepared.1.json") == b"first"
    assert [p.name for p in (tmp_path / "epochs/3").iterdir()] == ["prepared.1.json"]


def test_list_hides_unfinished_files_and_a_missing_directory_is_empty(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    (tmp_path / ".x.tmp").write_bytes(b"")
    files.create("a", b"")
    assert files.list("") == ["a"]
    assert files.list("nowhere") == []


def test_delete_takes_files_directories_and_nothing(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.create("d/e/f", b"")
    files.delete("d/e/f")
    assert not files.exists("d/e/f")
    files.delete("d")
    files.delete("d")
    assert files.list("") == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PreflightError, match="file/store"):
        LocalFiles(tmp_path / "file" / "store")
