"""How: the check on a real directory, and on real directories with operations as weak as those of
known stores: one overwrites, one looks first and writes afterwards, one lists late, one is silent.
The same on real servers: `tests/integration/storage`."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from seamark.checkpoint.storage_check import check_storage
from seamark.files.local import LocalDirectory
from seamark.model.errors import PreflightError


def test_a_local_directory_passes_and_nothing_is_left(tmp_path: Path) -> None:
    check_storage(LocalDirectory(tmp_path))
    assert list(tmp_path.iterdir()) == []


class Overwriting(LocalDirectory):
    def create(self, path: str, data: bytes) -> None:
        target = self.path / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)


class LooksFirst(LocalDirectory):
    def create(self, path: str, data: bytes) -> None:
        target = self.path / path
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            raise FileExistsError(path)
        time.sleep(0.05)
        target.write_bytes(data)


class ListsLate(LocalDirectory):
    def list(self, path: str) -> list[str]:
        return []


class ReadsOld(LocalDirectory):
    def read(self, path: str) -> bytes:
        return b""


class KeepsDeleted(LocalDirectory):
    def delete(self, path: str) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (Overwriting, "2 of 2 at once created the same file"),
        (LooksFirst, "2 of 2 at once created the same file"),
        (ListsLate, "is not listed"),
        (ReadsOld, "reads differently"),
        (KeepsDeleted, "is still there"),
    ],
)
def test_a_weak_store_is_refused(kind: type[LocalDirectory], found: str, tmp_path: Path) -> None:
    with pytest.raises(
        PreflightError, match=f"{tmp_path}: it is not fit for checkpoints: .*{found}"
    ):
        check_storage(kind(tmp_path))


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (PermissionError("no"), "let this user write there"),
        (FileNotFoundError("no"), "make what is missing"),
        (TimeoutError("no"), "check the address"),
    ],
)
def test_an_error_of_the_store_is_named_with_its_remedy(
    error: OSError, remedy: str, tmp_path: Path
) -> None:
    class Failing(LocalDirectory):
        def create(self, path: str, data: bytes) -> None:
            raise error

    with pytest.raises(PreflightError, match=f"{tmp_path}: no; {remedy}"):
        check_storage(Failing(tmp_path))


def test_a_silent_store_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    answered = threading.Event()

    class Silent(LocalDirectory):
        def create(self, path: str, data: bytes) -> None:
            answered.wait(60)

    begun = time.monotonic()
    with pytest.raises(PreflightError, match=r"has not answered within 0\.2 s"):
        check_storage(Silent(tmp_path), deadline_s=0.2)
    assert time.monotonic() - begun < 30
    answered.set()
