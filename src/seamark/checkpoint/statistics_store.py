"""The files of a job's checkpoint history: one for each finished checkpoint and savepoint.

    statistics/<generation>.<epoch>.<attempt>.json
    statistics/<generation>.<epoch>.savepoint-<number>.json

One file for each, never changed: nothing to repair after a crash, and no more requests to an object
store than for the epoch's other records. Nothing else reads these files, so none of them, lost or
damaged, can stop a job. docs/FORMAT.md has their contents.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from seamark.api.declarations import SPARK_DIRECTORY
from seamark.checkpoint.batch_log import StoredLog
from seamark.checkpoint.batch_statistics import batch_statistics
from seamark.checkpoint.envelope import create_record, load_for_people
from seamark.files import Directory, in_threads, numbered
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.checkpointing_statistics import (
    CheckpointCounts,
    CheckpointingStatistics,
    RestoredCheckpointStatistics,
    checkpointing_statistics,
    checkpoints,
)
from seamark.model.records import record_of

log = logging.getLogger(__name__)

CHECKPOINTS_KEPT = 1000
SAVEPOINTS_KEPT = 100
_NAME = re.compile(r"(\d+)\.(\d+)\.(savepoint-)?(\d+)\.json")
_READERS = 16


class Key(NamedTuple):
    """The name of one file. `number` counts the epoch's savepoints, from 0; a checkpoint's is 0.
    Keys of checkpoints ascend with time."""

    generation: int
    epoch: int
    number: int
    is_savepoint: bool = False

    @property
    def path(self) -> str:
        """The file, below the job's directory."""
        kind = "savepoint-" if self.is_savepoint else ""
        return f"statistics/{self.generation}.{self.epoch}.{kind}{self.number}.json"


@dataclass(frozen=True)
class StatisticsRecord:
    """One finished checkpoint or savepoint, the counts including it, and the job's last restore."""

    checkpoint: CheckpointStatistics
    counts: CheckpointCounts
    restored: RestoredCheckpointStatistics | None


class StatisticsStore:
    """The history below one job's directory.

    Records once read are kept in memory: the files never change, and a history viewed every second
    would otherwise read a thousand files each time.
    """

    def __init__(self, files: Directory) -> None:
        self._files = files
        self.uri = files.uri
        """The job's directory."""
        self._known: dict[Key, StatisticsRecord | None] = {}
        self._batches = StoredLog(files)

    def write(self, key: Key, record: StatisticsRecord) -> None:
        """Store one record; an existing file of that name stays as it is."""
        body = record_of(record)
        del body["counts"]["in_progress"]  # known to a driver alone
        if not create_record(self._files, "statistics", key.path, body):
            log.warning("%s/%s exists already and is left alone", self.uri, key.path)

    def keys(self, *, savepoints: bool = False) -> list[Key]:
        """Return the stored checkpoints, or the savepoints, oldest first."""
        matches = (_NAME.fullmatch(name) for name in self._files.list("statistics"))
        keys = (Key(int(m[1]), int(m[2]), int(m[4]), bool(m[3])) for m in matches if m)
        return sorted(key for key in keys if key.is_savepoint is savepoints)

    def prune(self) -> None:
        """Delete all but the last CHECKPOINTS_KEPT and SAVEPOINTS_KEPT."""
        old = self.keys()[:-CHECKPOINTS_KEPT] + self.keys(savepoints=True)[:-SAVEPOINTS_KEPT]
        for key in old:
            self._files.delete(key.path)

    def newest(self) -> StatisticsRecord | None:
        """Return the newest readable record."""
        records = (
            next((record for key in reversed(keys) if (record := self._read(key))), None)
            for keys in (self.keys(), self.keys(savepoints=True))
        )
        return last_written([record for record in records if record is not None])

    def uids(self, epoch: int | None = None) -> dict[str, list[str]]:
        """Return the uids of a job's parts by kind, sources and operators by Spark's numbers.

        Reads them from the newest completed checkpoint, or the newest up to `epoch`; returns {} if
        no readable one names its sources.
        """
        for key in reversed(self.keys()):
            if epoch is not None and key.epoch > epoch:
                continue
            record = self._read(key)
            if record is None or record.checkpoint.status is not CheckpointStatus.COMPLETED:
                continue
            uids: dict[str, list[str]] = {}
            for task in record.checkpoint.tasks:
                uids.setdefault(task.kind, []).append(task.uid)
            if "source" in uids:  # otherwise Spark's figures of it were not available
                return uids
        return {}

    def records(self) -> list[StatisticsRecord]:
        """Return every readable record: the checkpoints, oldest first, then the savepoints."""
        keys, known = self.keys()[-CHECKPOINTS_KEPT:], self._known
        keys += self.keys(savepoints=True)[-SAVEPOINTS_KEPT:]
        unknown = [key for key in keys if key not in known]
        # Elsewhere each is a request to an object store.
        read = in_threads(self._read, unknown, 1 if self.uri.startswith("file:") else _READERS)
        all_known = {**known, **dict(zip(unknown, read, strict=True))}
        self._known = {key: all_known[key] for key in keys}
        return [record for record in self._known.values() if record is not None]

    def _read(self, key: Key) -> StatisticsRecord | None:
        return load_for_people(self._files, "statistics", key.path, StatisticsRecord)

    def read(self) -> CheckpointingStatistics:
        """Return a summary of the stored records. The job need not be running. A data source's
        query has none: its log tells as much."""
        records = self.records()
        if not records:
            return batch_statistics(self._batches)
        last = last_written(records)
        return self.summed_up(
            last.counts if last else CheckpointCounts(),
            last.restored if last else None,
            [record.checkpoint for record in records],
        )

    def summed_up(
        self,
        counts: CheckpointCounts,
        restored: RestoredCheckpointStatistics | None,
        ended: Sequence[CheckpointStatistics],
    ) -> CheckpointingStatistics:
        """Summarise the checkpoints `ended`, oldest first, with savepoints anywhere between them.

        Marks deleted checkpoints: their records are gone, or Spark's entries.
        """
        kept = {*numbered(self._files.list("epochs"))}
        commits = self._files.list(f"{SPARK_DIRECTORY}/commits") or self._files.list("commits")
        decided = {*numbered(commits)}
        kept = kept & decided if decided else kept
        history = [
            replace(c, discarded=c.id not in kept, external_path=f"{self.uri}/epochs/{c.id}")
            for c in checkpoints(reversed(ended))
        ]
        for one in ended:
            if one.is_savepoint:
                at = one.trigger_timestamp
                older = (n for n, c in enumerate(history) if c.trigger_timestamp <= at)
                history.insert(next(older, len(history)), one)
        return checkpointing_statistics(counts, restored, history)


def last_written(records: Sequence[StatisticsRecord]) -> StatisticsRecord | None:
    """Return the record that has counted all others; a savepoint ends after later epochs."""
    return max(reversed(records), key=lambda record: record.counts.total, default=None)
