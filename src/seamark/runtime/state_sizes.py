"""Finds how many bytes of state an epoch uploaded, and how many a restore of it reads. Uses the
names and sizes of the files in Spark's checkpoint location.

With V = epoch + 1, the state store of each partition has

| backend | uploaded by the epoch | read by a restore |
|---|---|---|
| hashmap | ``V.delta`` | the latest ``*.snapshot`` up to V, each ``*.delta`` after it |
| RocksDB | ``V.zip``, and its SST files without those of the zip before it | ``V.zip`` and its SST files |
| RocksDB, changelog | ``V.changelog`` | the latest ``*.zip`` up to V, its SST files, each ``*.changelog`` after it |

Names may have a unique id after V (``V_<id>.delta``, Spark's state format 2).
"""  # noqa: E501 - a table

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence

from seamark.contracts.checkpoint_files import CheckpointFiles

_FILE = re.compile(
    r"state/(\d+)/(\d+)(?:/([^/]+))?/(\d+)(?:_[^./]+)?\.(delta|snapshot|zip|changelog)"
)
_PATTERNS = ("state/*/*/*", "state/*/*/*/*")  # joins have several stores to a partition

Sizes = dict[int, dict[int, tuple[int, int]]]
"""By operator and partition: bytes uploaded by the epoch, bytes read by a restore of it."""
_Store = tuple[int, int, str]


class StateSizes:
    """Sizes of the state below one Spark checkpoint location. Remembers the zips it has read."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._named: dict[str, Mapping[str, int]] = {}

    def of(self, epochs: Sequence[int]) -> dict[int, Sizes]:
        """Return the sizes of each of the epochs, from one listing."""
        stores: dict[_Store, dict[int, dict[str, tuple[str, int]]]] = defaultdict(dict)
        listed = self._files.sizes(*_PATTERNS)
        for path, size in listed.items():
            if match := _FILE.fullmatch(path):
                store = (int(match[1]), int(match[2]), match[3] or "")
                stores[store].setdefault(int(match[4]), {})[match[5]] = (path, size)
        self._named = {path: named for path, named in self._named.items() if path in listed}
        return {epoch: self._at(stores, epoch + 1) for epoch in epochs}

    def _at(
        self, stores: Mapping[_Store, Mapping[int, Mapping[str, tuple[str, int]]]], version: int
    ) -> Sizes:
        sizes: Sizes = {}
        for (operator, partition, _), versions in stores.items():
            new, full = self._of_store(versions, version)
            parts = sizes.setdefault(operator, {})
            before = parts.get(partition, (0, 0))
            parts[partition] = (before[0] + new, before[1] + full)
        return sizes

    def _of_store(
        self, versions: Mapping[int, Mapping[str, tuple[str, int]]], version: int
    ) -> tuple[int, int]:
        known = sorted(v for v in versions if v <= version)
        whole = [v for v in known if not versions[v].keys().isdisjoint(("snapshot", "zip"))]
        full, base = 0, -1
        if whole:
            base = whole[-1]
            full = self._whole(versions[base])
        full += sum(_changes(versions[v]) for v in known if v > base)
        at = versions.get(version, {})
        if "zip" not in at or "changelog" in at:
            return _changes(at), full
        named = self._names(at["zip"][0])
        before = [v for v in whole[:-1] if "zip" in versions[v]]
        older = self._names(versions[before[-1]]["zip"][0]) if before else {}
        new = sum(size for name, size in named.items() if name not in older)
        return at["zip"][1] + new, full

    def _whole(self, at: Mapping[str, tuple[str, int]]) -> int:
        if "snapshot" in at:
            return at["snapshot"][1]
        path, size = at["zip"]
        return size + sum(self._names(path).values())

    def _names(self, path: str) -> Mapping[str, int]:
        """Return the files named by a zip of RocksDB's, with their bytes."""
        if path not in self._named:
            try:
                self._named[path] = _named_in(self._files.read(path))
            except FileNotFoundError:  # deleted since it was listed: too old to matter
                return {}
        return self._named[path]


def _changes(at: Mapping[str, tuple[str, int]]) -> int:
    return sum(at[kind][1] for kind in ("delta", "changelog") if kind in at)


def _named_in(data: bytes) -> Mapping[str, int]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _, body = archive.read("metadata").decode().split("\n", 1)
    metadata = json.loads(body)
    return {
        entry.get("dfsSstFileName") or entry.get("dfsLogFileName") or entry["localFileName"]: int(
            entry["sizeBytes"]
        )
        for entry in [*metadata.get("sstFiles", []), *metadata.get("logFiles", [])]
    }
