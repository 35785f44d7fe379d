"""Commits the offsets of completed checkpoints to the sources' own systems, on a thread of its own.

For lag tools alone (`contracts/source.py: CommitsOffsets`). `run/query.py` reports each epoch
that every sink has committed; no outcome holds up or fails the job.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seamark.checkpoint.upkeep import Upkeep, WorkThread
from seamark.contracts.source import OffsetCommitter

log = logging.getLogger(__name__)

MakeCommitter = Callable[[], OffsetCommitter | None]

PAUSE_S = 1.0
"""Between two commits: lag tools do not look more often."""
REST = 9
"""The pause after a commit, as a multiple of its CPU time. A commit of very many partitions costs
CPU, and the epochs must not be robbed of it."""
PAUSE_AFTER_FAILURE_S = 30.0
LAST_COMMIT_S = 5.0
"""The longest wait, at the end of a run, for its last offsets to be committed."""


class SourceOffsets(WorkThread):
    """The offset commits of one run. `read` returns the lines with end offsets of an epoch's entry
    in the offset log; `sources` has, by line, the uid and the maker of the committer."""

    def __init__(
        self,
        read: Callable[[int], Sequence[Any]],
        sources: Mapping[int, tuple[str, MakeCommitter]],
    ) -> None:
        super().__init__("seamark-source-offsets", LAST_COMMIT_S)
        self._read = read
        self._sources = dict(sources)
        self._committers: dict[int, OffsetCommitter] = {}
        self._upkeep = Upkeep()
        self._epoch = -1

    def completed(self, epoch: int) -> None:
        """Note that a checkpoint has completed; return at once. -1 is none."""
        if not self._sources or epoch < 0:
            return
        with self._changed:
            self._epoch = max(self._epoch, epoch)
            self._wake()

    def _run(self) -> None:
        done = -1
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._epoch > done or self._closing)  # noqa: B023
                epoch = self._epoch
                if epoch == done:
                    break
            begun_s = time.thread_time()
            whole = self._commit(epoch)
            worked_s = time.thread_time() - begun_s
            log.debug("the offsets of epoch %d took %.0f ms of CPU", epoch, worked_s * 1e3)
            done = epoch
            with self._changed:
                pause_s = max(PAUSE_S, worked_s * REST) if whole else PAUSE_AFTER_FAILURE_S
                self._changed.wait_for(lambda: self._closing, pause_s)
        for committer in self._committers.values():
            try:
                committer.close()
            except Exception as error:
                log.debug("an offset committer was not closed: %s", error)

    def _commit(self, epoch: int) -> bool:
        """Commit one epoch's offsets; return whether all went well."""
        try:
            ends = self._read(epoch)
        except Exception as error:  # deleted by now, or the storage is away
            log.debug("the offsets of epoch %d cannot be read: %s", epoch, error)
            return False
        for place, (uid, make) in list(self._sources.items()):
            with self._upkeep.spared(f"source {uid}: offsets of checkpoints, for lag tools"):
                committer = self._committers.get(place) or make()
                if committer is None:
                    del self._sources[place]
                    continue
                self._committers[place] = committer
                if place < len(ends) and ends[place] is not None:
                    committer.commit(ends[place])
        return not self._upkeep.fails
