"""A sink of one's own: notes, one text file for each task of an epoch.

Pre-commit writes `staged/<name>`, the commit renames it to `shown/<name>`, where readers look.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

import seamark as sm


@dataclass(frozen=True)
class Note:
    handle: str  # the file's name, unique among all attempts


class NoteWriter(sm.CommittingWriter[Note]):
    """In a task."""

    def __init__(self, path: Path, prefix: str) -> None:
        self.file, self.lines = path / "staged" / f"{prefix}.{uuid4().hex}", ""

    def write(self, batch: pa.RecordBatch) -> None:
        self.lines += "".join(f"{row['text']}\n" for row in batch.to_pylist())

    def prepare_commit(self) -> Sequence[Note]:
        if not self.lines:
            return []
        with self.file.open("w") as file:
            file.write(self.lines)
            file.flush()
            os.fsync(file.fileno())
        _flush(self.file.parent)
        return [Note(self.file.name)]

    def abort(self) -> None:
        self.file.unlink(missing_ok=True)


class NoteCommitter(sm.Committer[Note]):
    """In the driver; each call may come again after any failure."""

    def __init__(self, path: Path, owner: str) -> None:
        self.staged, self.shown, self.owner = path / "staged", path / "shown", owner
        for directory in (self.staged, self.shown):
            directory.mkdir(parents=True, exist_ok=True)

    def preflight(self) -> None:
        """Both directories have just been made."""

    def commit(self, committables: Sequence[Note]) -> Sequence[sm.CommitOutcome]:
        return [self._commit(note) for note in committables]

    def _commit(self, note: Note) -> sm.CommitOutcome:
        try:
            (self.staged / note.handle).rename(self.shown / note.handle)
        except FileNotFoundError:
            shown = (self.shown / note.handle).exists()
            return sm.CommitOutcome.ALREADY_COMMITTED if shown else sm.CommitOutcome.LOST
        _flush(self.shown)
        return sm.CommitOutcome.COMMITTED

    def abort(self, committables: Sequence[Note]) -> Sequence[sm.AbortOutcome]:
        return [self._abort(note) for note in committables]

    def _abort(self, note: Note) -> sm.AbortOutcome:
        (self.staged / note.handle).unlink(missing_ok=True)
        shown = (self.shown / note.handle).exists()
        return sm.AbortOutcome.COMMITTED if shown else sm.AbortOutcome.ABORTED

    def list_lingering(self) -> Iterator[sm.Lingering[Note]]:
        for file in self.staged.iterdir():
            owner, generation, _ = file.name.rsplit(".", 2)
            if owner == self.owner:
                yield sm.Lingering(Note(file.name), int(generation))

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class NoteSink(sm.TwoPhaseCommitSink[Note]):
    """The configuration: a value that opens nothing."""

    path: str

    def describe(self) -> str:
        return f"notes in {self.path}"

    def check_transaction_scope(self, context: sm.SinkContext) -> None:
        """A staged file waits for ever."""

    def create_writer(self, context: sm.WriterContext) -> NoteWriter:
        prefix = f"{context.job_id}.{context.sink_uid}.{context.generation}"
        return NoteWriter(Path(self.path), prefix)

    def create_committer(self, context: sm.SinkContext) -> NoteCommitter:
        return NoteCommitter(Path(self.path), f"{context.job_id}.{context.sink_uid}")

    dump = staticmethod(sm.dump_committable)
    load = staticmethod(partial(sm.load_committable, Note))


def _flush(directory: Path) -> None:
    """Make a new name in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
