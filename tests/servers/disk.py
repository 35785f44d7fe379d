"""A small disk of a test's own, which can be full or not mounted. Needs root, to mount it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tests.servers.needed import NotToBeHadError

SIZE = "8m"


class SmallDisk:
    """A context manager. `path` is a directory of the disk; the two outages are contexts too."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="sm-disk-"))
        self.path = self._root / "data"

    @property
    def outages(self) -> Mapping[str, Callable[[], AbstractContextManager[object]]]:
        """See `SinkUnderTest`."""
        return {"full": self.full, "not mounted": self.not_mounted}

    def __enter__(self) -> SmallDisk:
        try:
            mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(self._root)]
            subprocess.run(mount, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self._root.rmdir()
            said = getattr(error, "stderr", "") or error
            raise NotToBeHadError(f"a disk of its own cannot be mounted: {said}") from error
        self.path.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self._root)], check=True)
        self._root.rmdir()

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Not a byte is free."""
        filler = os.open(self._root / "filler", os.O_CREAT | os.O_WRONLY)
        try:
            with contextlib.suppress(OSError):
                while True:
                    os.write(filler, bytes(4096))
            yield
        finally:
            os.close(filler)
            (self._root / "filler").unlink()

    @contextlib.contextmanager
    def not_mounted(self) -> Iterator[None]:
        """An empty directory is in its place, as a mount point is."""
        away = self._root / "away"
        self.path.rename(away)
        self.path.mkdir()
        try:
            yield
        finally:
            shutil.rmtree(self.path)
            away.rename(self.path)
