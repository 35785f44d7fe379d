"""Watches a job's checkpoint on a local disk, from outside: the source rows of each epoch, and when
it was planned, decided and committed. The times are those of the files."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seamark.verify.history import UNKNOWN, Numbers


@dataclass(frozen=True)
class Epoch:
    """One committed epoch; times are seconds since 1970. `ends` are the first offsets after it, by
    topic and partition."""

    number: int
    planned_s: float
    decided_s: float
    committed_s: float
    ends: dict[str, dict[int, int]]


class EpochWatch:
    """Reads new epochs at each `look`. An epoch counts once its committed record is there: only
    then can no later driver plan it anew."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self.epochs: dict[int, Epoch] = {}
        self.newest: Epoch | None = None

    def look(self) -> list[Epoch]:
        """Return the epochs committed since the last look."""
        new = []
        for number in sorted(self._numbers("epochs") - set(self.epochs)):
            try:
                committed_s = _written(self._job / "epochs" / str(number) / "committed.json")
                decided_s = _written(self._job / "spark/commits" / str(number))
                offsets = self._job / "spark/offsets" / str(number)
                planned_s, ends = _written(offsets), _ends(offsets.read_text())
            except (FileNotFoundError, ValueError):
                continue  # not committed yet, or Spark has removed its logs meanwhile
            new.append(Epoch(number, planned_s, decided_s, committed_s, ends))
        self.epochs.update((epoch.number, epoch) for epoch in new)
        self.newest = new[-1] if new else self.newest
        return new

    def planned(self) -> int:
        """Return the newest epoch with a plan."""
        return max(self._numbers("spark/offsets"), default=UNKNOWN)

    def epochs_of(self, topic: str, partitions: Numbers, offsets: Numbers) -> Numbers:
        """Return the epoch of each source row; UNKNOWN for rows beyond the known epochs."""
        epochs = np.full(len(offsets), UNKNOWN, np.int64)
        for partition in np.unique(partitions):
            known = [
                (epoch.ends[topic][int(partition)], epoch.number)
                for epoch in self.epochs.values()
                if int(partition) in epoch.ends.get(topic, {})
            ]
            if not known:
                continue
            ends, numbers = np.array(sorted(known), np.int64).T
            # After an epoch that was missed it is unknown where the next one began.
            numbers = np.where(np.isin(numbers - 1, [*self.epochs, -1]), numbers, UNKNOWN)
            here = partitions == partition
            at = np.searchsorted(ends, offsets[here], side="right")
            epochs[here] = np.r_[numbers, UNKNOWN][at]
        return epochs

    @staticmethod
    def is_before(
        epoch: Epoch, topic: str, partitions: Numbers, offsets: Numbers
    ) -> NDArray[np.bool_]:
        """Tell which source rows lie before an epoch's end."""
        ends = epoch.ends.get(topic, {})
        end_of = np.array([ends.get(p, 0) for p in range(int(partitions.max(initial=0)) + 1)])
        before: NDArray[np.bool_] = (offsets != UNKNOWN) & (offsets < end_of[partitions])
        return before

    def _numbers(self, log: str) -> set[int]:
        directory = self._job / log
        try:
            return {int(path.name) for path in directory.iterdir() if path.name.isdigit()}
        except FileNotFoundError:
            return set()


def _written(path: Path) -> float:
    return path.stat().st_mtime


def _ends(text: str) -> dict[str, dict[int, int]]:
    """Return the offsets of the Kafka sources in Spark's offset log; other sources have none."""
    ends: dict[str, dict[int, int]] = {}
    for line in text.splitlines()[2:]:
        offset = json.loads(line)
        if isinstance(offset, dict):
            for topic, offsets in offset.items():
                if isinstance(offsets, dict):
                    ends[topic] = {int(p): int(end) for p, end in offsets.items()}
    return ends
