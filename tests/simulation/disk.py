"""Durable storage, as the contracts of `Directory` and `RenamingDirectory` describe it.

Each call takes effect at one moment of its own, and its reply may be late, lost or never come. What
the contracts leave open is used: a listing is read in two halves, with anything between them; a
directory is deleted file by file; a new file of a `Directory` is torn until it is closed.
"""

from __future__ import annotations

import builtins
import io
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, BinaryIO

from seamark.files.directory import NewFile

from .machine import Machine

Watch = Callable[[str, bytes | None], None]
"""Told each new file with its bytes, and each deleted file with None."""


class Disk:
    """The files of one world, by path."""

    def __init__(self, machine: Machine, watch: Watch) -> None:
        self.machine = machine
        self.files: dict[str, bytes] = {}
        self._watch = watch
        self._children: dict[str, dict[str, int]] = {}
        self.is_early: Callable[[str], bool] = lambda name: len(name) % 2 == 1
        """Whether a listing reads this name in its first half."""

    def make(self, path: str, data: bytes) -> None:
        """Create exclusively, whole or not at all."""
        if path in self.files:
            raise FileExistsError(17, "exists", path)
        self.files[path] = data
        parent = path
        while parent:
            parent, _, name = parent.rpartition("/")
            names = self._children.setdefault(parent, {})
            names[name] = names.get(name, 0) + 1
        self._watch(path, data)

    def drop(self, path: str) -> None:
        """Delete one file; a missing one is fine."""
        if self.files.pop(path, None) is None:
            return
        parent = path
        while parent:
            parent, _, name = parent.rpartition("/")
            names = self._children[parent]
            names[name] -= 1
            if not names[name]:
                del names[name]
        self._watch(path, None)

    def names(self, path: str) -> builtins.list[str]:
        return [*self._children.get(path, ())]

    def below(self, path: str) -> builtins.list[str]:
        """Every file below a directory, or the file itself."""
        if path in self.files:
            return [path]
        return [f for n in sorted(self.names(path)) for f in self.below(f"{path}/{n}")]


class SimulatedFiles:
    """`Directory` below `root`; `owned` wraps each effect, so that the world knows whose it
    is."""

    def __init__(self, disk: Disk, root: str, owned: Callable[[Callable[[], Any]], Any]) -> None:
        self._disk = disk
        self._root = root
        self._owned = owned
        self.uri = f"file:///{root}"

    def _call(self, what: str, path: str, effect: Callable[[], Any], *, changes: bool) -> Any:
        owned, repeats = partial(self._owned, effect), what in ("create", "delete")
        return self._disk.machine.call(f"{what} {path}", owned, changes=changes, repeats=repeats)

    def create(self, path: str, data: bytes) -> None:
        full = f"{self._root}/{path}"
        self._call("create", path, lambda: self._disk.make(full, data), changes=True)

    def read(self, path: str) -> bytes:
        def effect() -> bytes:
            if (data := self._disk.files.get(f"{self._root}/{path}")) is None:
                raise FileNotFoundError(2, "no such file", path)
            return data

        found: bytes = self._call("read", path, effect, changes=False)
        return found

    def exists(self, path: str) -> bool:
        full = f"{self._root}/{path}"

        def effect() -> bool:
            return full in self._disk.files or bool(self._disk.names(full))

        return bool(self._call("exists", path, effect, changes=False))

    def list(self, path: str) -> builtins.list[str]:
        full = f"{self._root}/{path}"
        first = self._call("list", path, lambda: self._disk.names(full), changes=False)
        kept = [name for name in first if self._disk.is_early(name)]
        self._disk.machine.step(f"list {path}: the other half")
        return kept + [name for name in self._disk.names(full) if not self._disk.is_early(name)]

    def delete(self, path: str) -> None:
        first, *others = self._disk.below(f"{self._root}/{path}") or [f"{self._root}/{path}"]
        self._call("delete", path, lambda: self._disk.drop(first), changes=True)
        for other in others:
            self._disk.machine.step(f"delete {path}: {other}")
            self._owned(lambda other=other: self._disk.drop(other))


class SimulatedDirectory:
    """`RenamingDirectory` below `root`, for spools."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self.uri = f"file:///{root}"

    def __str__(self) -> str:
        return f"/{self._root}"

    def _call(self, name: str, effect: Callable[[], Any], *, changes: bool = False) -> Any:
        return self._disk.machine.call(name, effect, changes=changes)

    def begin(self, path: str) -> NewFile:
        return _NewFile(self._disk, f"{self._root}/{path}")

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(SimulatedFiles(self._disk, self._root, lambda e: e()).read(path))

    def size(self, path: str) -> int | None:
        full = f"{self._root}/{path}"
        data: bytes | None = self._call(f"size {path}", lambda: self._disk.files.get(full))
        return None if data is None else len(data)

    def tree(self, path: str = "") -> dict[str, int]:
        at = f"{self._root}/{path}".rstrip("/")

        def effect() -> dict[str, int]:
            skip = len(self._root) + 1
            return {f[skip:]: len(self._disk.files[f]) for f in self._disk.below(at)}

        found: dict[str, int] = self._call(f"tree {path}", effect)
        return found

    def remove(self, path: str) -> None:
        full = f"{self._root}/{path}"
        self._call(f"remove {path}", lambda: self._disk.drop(full), changes=True)

    def rename(self, path: str, to: str) -> None:
        def effect() -> None:
            if (data := self._disk.files.get(f"{self._root}/{path}")) is None:
                raise FileNotFoundError(2, "no such file", path)
            self._disk.drop(f"{self._root}/{path}")
            self._disk.make(f"{self._root}/{to}", data)

        self._call(f"rename {path}", effect, changes=True)

    def sync(self, paths: Iterable[str]) -> None:
        self._disk.machine.step("sync")

    def prune(self, path: str, below: str) -> None: ...


class _NewFile(NewFile):
    """Torn until it is closed: a crash before leaves its name with no bytes."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._bytes = io.BytesIO()
        disk.machine.call(f"create {path}", lambda: disk.make(path, b""), changes=True)

    def write(self, data: Any, /) -> int:
        return self._bytes.write(data)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True

        def effect() -> None:
            if self._path in self._disk.files:  # it may have been deleted
                self._disk.files[self._path] = self._bytes.getvalue()

        self._disk.machine.call(f"close {self._path}", effect, changes=True)

    def discard(self) -> None:
        self.closed = True
        self._disk.machine.step(f"discard {self._path}")
        self._disk.drop(self._path)
