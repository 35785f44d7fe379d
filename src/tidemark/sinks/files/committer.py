"""The driver's side: a rename publishes a pending file, an unlink makes it impossible.

Both are atomic and exclude each other in the kernel, so that of two drivers, one that commits and
one that aborts, exactly one succeeds; no further fencing is needed. The published name holds the
transaction's unique id: a file of that name is the proof that it was committed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidemark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, SinkContext
from tidemark.file_systems.local import make_directory, sync_directory
from tidemark.model import failpoints
from tidemark.model.errors import PreflightError
from tidemark.sinks.files.writer import PENDING
from tidemark.sinks.internal.staged_files import StagedFile, list_staged, staging_directory

log = logging.getLogger(__name__)


class FileCommitter:
    """Holds no open file; any thread may call."""

    def __init__(self, directory: Path, context: SinkContext) -> None:
        self._directory = directory
        self._root = directory / PENDING
        self._context = context
        self._name = f"sink {context.sink_uid!r}: directory {directory}"

    def preflight(self) -> None:
        """Make the directories and try a rename; raises PreflightError."""
        if (self._directory / "_spark_metadata").exists():
            raise PreflightError(
                f"{self._name} was written by Spark's own streaming file sink: because of its "
                "_spark_metadata, Spark would not see the files that this job adds. Give FileSink "
                "another directory"
            )
        pending = staging_directory(self._root, self._context.job_id, self._context.sink_uid)
        probe, moved = pending / f"probe-{os.getpid()}", self._directory / f"_probe-{os.getpid()}"
        try:
            make_directory(pending)
            probe.touch()
            probe.rename(moved)
            moved.unlink()
        except OSError as error:
            raise PreflightError(
                f"{self._name} cannot be used: {error}. Give a directory that this user may write "
                f"and that is on one file system with its {PENDING}"
            ) from error

    def commit(self, committables: Sequence[StagedFile]) -> Sequence[CommitOutcome]:
        """Rename each pending file; LOST if it is neither pending nor published, or torn."""
        outcomes = [self._publish(committable) for committable in committables]
        return outcomes if self._sync(committables) else [CommitOutcome.RETRY] * len(outcomes)

    def abort(self, committables: Sequence[StagedFile]) -> Sequence[AbortOutcome]:
        """Delete each pending file; a rename that comes later finds it missing."""
        outcomes = [self._delete(committable) for committable in committables]
        return outcomes if self._sync(committables) else [AbortOutcome.RETRY] * len(outcomes)

    def list_lingering(self) -> Iterator[Lingering[StagedFile]]:
        """Yield every pending file of this job and sink."""
        for found in list_staged(self._root, self._context.job_id, self._context.sink_uid):
            yield Lingering(found, found.generation)

    def close(self) -> None:
        """Nothing is open between calls."""

    def _publish(self, committable: StagedFile) -> CommitOutcome:
        pending = self._root / committable.handle
        final = self._directory / committable.final_name
        try:
            if (size := pending.stat().st_size) != committable.size_bytes:
                log.error(
                    "%s: pending file %s is damaged: it has %d bytes, %d were written",
                    self._name, pending, size, committable.size_bytes,
                )  # fmt: skip
                return CommitOutcome.LOST
            pending.rename(final)
        except FileNotFoundError:
            if final.exists():
                return CommitOutcome.ALREADY_COMMITTED
            log.error("%s: pending file %s is gone", self._name, pending)
            return CommitOutcome.LOST
        except OSError as error:
            log.warning("%s: %s; trying again", self._name, error)
            return CommitOutcome.RETRY
        failpoints.reached("file-renamed")
        return CommitOutcome.COMMITTED

    def _delete(self, committable: StagedFile) -> AbortOutcome:
        try:
            (self._root / committable.handle).unlink()
        except FileNotFoundError:
            if (self._directory / committable.final_name).exists():
                return AbortOutcome.COMMITTED
        except OSError as error:
            log.warning("%s: %s; trying again", self._name, error)
            return AbortOutcome.RETRY
        return AbortOutcome.ABORTED

    def _sync(self, committables: Sequence[StagedFile]) -> bool:
        """Make renames and deletions durable, those of an earlier, cut-off call too."""
        try:
            sync_directory(self._directory)
            for parent in {(self._root / c.handle).parent for c in committables}:
                if parent.exists():
                    sync_directory(parent)
        except OSError as error:
            log.warning("%s: %s; trying again", self._name, error)
            return False
        return True
