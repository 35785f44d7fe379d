"""Driver side: publishes pending files after the decision, or makes them impossible to publish.

`pending.py` explains the proof of an outcome, and why a commit and an abort exclude each other.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, OpenFacts, SinkContext
from seamark.files import in_threads
from seamark.sinks.files.pending import open_pending
from seamark.sinks.files.pending_file import PendingFile
from seamark.sinks.internal.committers import StagingCommitter

if TYPE_CHECKING:
    from seamark.sinks.files.sink import FileSink

log = logging.getLogger(__name__)
LONGEST_CALL_S = 20.0
"""After this time the files not yet ended are RETRY: a silent store must not cost its time-out for
each."""
O = TypeVar("O", bound=Enum)  # noqa: E741 - an outcome


class FileCommitter(StagingCommitter["FileSink"]):
    """Holds no open file. Any thread may call."""

    keeps_outcomes = False

    def __init__(self, sink: "FileSink", context: SinkContext) -> None:
        super().__init__(sink, context, log, f"directory {sink.path}")
        self._pending = open_pending(sink.path, context.hadoop.under(sink.hadoop))

    def commit(self, committables: Sequence[PendingFile]) -> Sequence[CommitOutcome]:
        """Publish each pending file. LOST: it is torn. UNKNOWN: it is gone."""
        return self._each(self._pending.publish, committables, CommitOutcome.RETRY)

    def abort(self, committables: Sequence[PendingFile]) -> Sequence[AbortOutcome]:
        """Delete each pending file; a later commit finds it missing."""
        return self._each(self._pending.discard, committables, AbortOutcome.RETRY)

    def list_lingering(self) -> Iterator[Lingering[PendingFile]]:
        """Yield every pending file of this job and sink."""
        for file in self._pending.list(self._context.job_id, self._context.sink_uid):
            yield Lingering(file, file.generation)

    def describe_open(self, committables: Sequence[PendingFile]) -> Sequence[OpenFacts]:
        """See `DescribesTransactions`. No pending file times out."""
        return list(map(OpenFacts, self._pending.since(committables)))

    def _each(
        self, end: Callable[[PendingFile], O], files: Sequence[PendingFile], retry: O
    ) -> Sequence[O]:
        over = time.monotonic() + LONGEST_CALL_S

        def try_to_end(file: PendingFile) -> O:
            if time.monotonic() > over:
                return retry
            try:
                return end(file)
            except OSError as error:
                log.warning("%s: %s; trying again", self._name, error)
                return retry

        outcomes = in_threads(try_to_end, files, self._pending.at_once)
        # Includes files of an earlier call that was cut off.
        self._pending.settle(files, answers=retry not in outcomes)
        return outcomes
