"""The manifest of a complete checkpoint: ``epochs/<n>/manifest.json`` (docs/FORMAT.md).

Records size and CRC-32 of Spark's small files of that epoch, and its state stores, so that a
missing or altered one is found. The state itself is not read back for it: on local disks Hadoop has
a checksum file beside each of its files, HDFS and object stores have their own. The coordinator's
upkeep writes it after the epoch's committed record. A crash in between leaves an epoch without one,
and the next start writes it.
"""

import logging
import zlib
from dataclasses import dataclass
from functools import partial

from seamark.checkpoint.envelope import create_record, load_record
from seamark.checkpoint.spark_files import (
    ByDirectory,
    StateTree,
    StoreGroup,
    log_paths,
    metadata_at,
)
from seamark.files import Directory
from seamark.model.errors import CorruptRecordError
from seamark.model.records import read_as

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Manifest:
    """`files`: (size in bytes, CRC-32) by path below the Spark checkpoint location."""

    epoch: int
    files: dict[str, tuple[int, int]]
    stores: tuple[StoreGroup, ...]


_read = partial(read_as, Manifest, newer=True)


def manifest_path(epoch: int) -> str:
    """Return the manifest's path below the job's directory."""
    return f"epochs/{epoch}/manifest.json"


def read_manifest(files: Directory, epoch: int) -> Manifest | None:
    """Return the epoch's manifest; None if it has none, or with a warning, if it is damaged."""
    try:
        return load_record(files, "manifest", manifest_path(epoch), _read)
    except FileNotFoundError:
        return None
    except CorruptRecordError as error:
        log.warning("%s; epoch %d is checked without its manifest", error, epoch)
        return None


class ManifestWriter:
    """Writes the manifests of one run. Reads only once within a run: the state's metadata, and
    files read for the manifest before."""

    def __init__(self, files: Directory, spark: Directory, by_directory: ByDirectory) -> None:
        self._files = files
        self._spark = spark
        self._by_directory = by_directory
        self._state: tuple[list[str], list[StoreGroup]] | None = None
        self._known: dict[str, tuple[int, int]] = {}

    def write(self, epoch: int) -> None:
        """Write the manifest of an epoch committed to every sink, if it has none.

        Raises OSError and the file system's own errors; the run can go on without this manifest.
        """
        if self._files.exists(manifest_path(epoch)):
            return
        if self._state is None:
            tree = StateTree.read(self._spark)
            self._state = tree.metadata, tree.groups()
        metadata, stores = self._state
        described = {}
        logs = log_paths(self._spark, epoch, self._by_directory)
        for path in [*logs, *metadata_at(metadata, epoch)]:
            if path not in self._known:
                data = self._spark.read(path)
                self._known[path] = len(data), zlib.crc32(data)
            described[path] = self._known[path]
        self._known = described
        body = {"epoch": epoch, "files": described, "stores": stores}
        # If there is one, a driver that fenced this one was first.
        create_record(self._files, "manifest", manifest_path(epoch), body)
