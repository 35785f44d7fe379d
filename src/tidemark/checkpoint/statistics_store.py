"""The files of a job's checkpoint history: one for each finished checkpoint.

    statistics/<generation>.<epoch>.<attempt>.json

One file each, and no file that is changed: nothing to repair after a crash, and no more requests
to an object store than the epoch's other records make. Nothing else reads these files, so none of
them, lost or damaged, can stop a job. docs/FORMAT.md has their contents.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from tidemark.checkpoint.envelope import open_envelope, seal_envelope
from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.model.checkpoint_statistics import CheckpointStatistics
from tidemark.model.checkpointing_statistics import (
    CheckpointCounts,
    CheckpointingStatistics,
    RestoredCheckpointStatistics,
    checkpointing_statistics,
)

log = logging.getLogger(__name__)

CHECKPOINTS_KEPT = 1000
_NAME = re.compile(r"(\d+)\.(\d+)\.(\d+)\.json")
_READERS = 16

Key = tuple[int, int, int]
"""(generation, epoch, attempt of the epoch in that generation): ascends with time."""


@dataclass(frozen=True)
class StatisticsRecord:
    """One finished checkpoint, the counts with it included, and the job's last restore."""

    checkpoint: CheckpointStatistics
    counts: CheckpointCounts
    restored: RestoredCheckpointStatistics | None


class StatisticsStore:
    """The history below one job's directory. What was once read is kept in memory: the files never
    change, and a history that is looked at every second would be read a thousand files at a time.
    """

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._known: dict[Key, StatisticsRecord | None] = {}

    @property
    def uri(self) -> str:
        """The job's directory."""
        return self._files.uri

    def write(self, key: Key, record: StatisticsRecord) -> None:
        """Store one finished checkpoint; a file of that name stays as it is."""
        body = {
            "checkpoint": record.checkpoint.to_record(),
            "counts": {
                "restored": record.counts.restored,
                "completed": record.counts.completed,
                "failed": record.counts.failed,
            },
            "restored": None if record.restored is None else asdict(record.restored),
        }
        try:
            self._files.create(_path(key), seal_envelope("statistics", body))
        except FileExistsError:
            log.warning("%s/%s exists already and is left alone", self.uri, _path(key))

    def keys(self) -> list[Key]:
        """Return what is stored, oldest first."""
        found = (_NAME.fullmatch(name) for name in self._files.list("statistics"))
        return sorted((int(m[1]), int(m[2]), int(m[3])) for m in found if m)

    def prune(self) -> None:
        """Delete all but the last CHECKPOINTS_KEPT."""
        for key in self.keys()[:-CHECKPOINTS_KEPT]:
            self._files.delete(_path(key))

    def newest(self) -> StatisticsRecord | None:
        """Return the last record that can be read."""
        for key in reversed(self.keys()):
            if record := self._read(key):
                return record
        return None

    def records(self) -> list[StatisticsRecord]:
        """Return every record that can be read, oldest first."""
        keys, known = self.keys()[-CHECKPOINTS_KEPT:], self._known
        unknown = [key for key in keys if key not in known]
        if self.uri.startswith("file:"):
            read: Sequence[StatisticsRecord | None] = [self._read(key) for key in unknown]
        else:  # each is a request to an object store
            with ThreadPoolExecutor(_READERS) as pool:
                read = list(pool.map(self._read, unknown))
        found = {**known, **dict(zip(unknown, read, strict=True))}
        self._known = {key: found[key] for key in keys}
        return [record for record in self._known.values() if record is not None]

    def _read(self, key: Key) -> StatisticsRecord | None:
        path = f"{self.uri}/{_path(key)}"
        try:
            body = open_envelope("statistics", self._files.read(_path(key)), path)
            restored = body["restored"]
            return StatisticsRecord(
                CheckpointStatistics.from_record(body["checkpoint"]),
                CheckpointCounts(**body["counts"]),
                None if restored is None else RestoredCheckpointStatistics(**restored),
            )
        except FileNotFoundError:  # pruned meanwhile
            return None
        except Exception as error:
            log.warning("%s is left out of the checkpoint history: %s", path, error)
            return None

    def read(self) -> CheckpointingStatistics:
        """Return what is stored, summed up: of a job that need not be running."""
        records = self.records()
        last = records[-1] if records else None
        return self.summed_up(
            last.counts if last else CheckpointCounts(),
            last.restored if last else None,
            [record.checkpoint for record in reversed(records)],
        )

    def summed_up(
        self,
        counts: CheckpointCounts,
        restored: RestoredCheckpointStatistics | None,
        history: Sequence[CheckpointStatistics],
    ) -> CheckpointingStatistics:
        """Sum up `history`, newest first, and mark those that are deleted by now: their records, or
        Spark's entries (where the Spark checkpoint location is the job's own)."""
        kept = {int(name) for name in self._files.list("epochs") if name.isdigit()}
        decided = {int(name) for name in self._files.list("spark/commits") if name.isdigit()}
        kept = kept & decided if decided else kept
        return checkpointing_statistics(
            counts,
            restored,
            [
                replace(c, discarded=c.id not in kept, external_path=f"{self.uri}/epochs/{c.id}")
                for c in history
            ],
        )


def _path(key: Key) -> str:
    return "statistics/{}.{}.{}.json".format(*key)
