"""One attempt of a task: writes its Arrow batches into one transaction per sink, and flushes them.

`pre_commit.py` makes one in a job's stream, `datasource/writers.py` for ``format("seamark")``.
Needs no JVM, and imports no py4j.
"""

import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seamark.checkpoint import spool
from seamark.checkpoint.channel_state import Lane
from seamark.checkpoint.sink_epoch import Tally
from seamark.checkpoint.task_reports import SinkReport
from seamark.contracts.dead_letters import RefusedRow, SelectiveSink, without
from seamark.contracts.read_back import UpsertingSink
from seamark.contracts.record_batches import in_parts
from seamark.contracts.sink import (
    CommittingWriter,
    FileSizeSink,
    TwoPhaseCommitSink,
    WriterContext,
)
from seamark.files import HadoopSettings
from seamark.model import failpoints
from seamark.model.errors import MissingDependencyError, WriteRefusedError
from seamark.model.ignored import ignored
from seamark.run.dead_letters import dead_letters as dead_letters_of
from seamark.run.dead_letters import for_sink
from seamark.run.in_flight import ALIGNED, Deadline, Overflow, Pace, rest_of
from seamark.run.layout import Layout

if TYPE_CHECKING:
    from seamark.run.process import Process


@dataclass(frozen=True)
class EpochTasks:
    """The constant part of a job's tasks, sent to the workers.

    `dead_letters` maps a sink's uid to the uid of the sink for its refused rows. `processes` make
    sinks' rows of those in the stream.
    """

    layout: Layout
    sinks: Mapping[str, TwoPhaseCommitSink[Any]]
    dead_letters: Mapping[str, str]
    job_id: str
    generation: int
    hadoop: HadoopSettings
    spool_uris: Mapping[str, str]
    channel_state_uri: str
    processes: Mapping[str, "Process"]


class TaskAttempt:
    """The writers of one task attempt, each made at its sink's first rows. `busy` is the uid of the
    sink whose writer is being called: an error in such a call is a failure of the checkpoint."""

    def __init__(self, job: EpochTasks, context: Callable[[str], WriterContext]) -> None:
        self._job = job
        self._context = context
        self._overflow: Overflow | None = None
        self.pace = Pace(ALIGNED)
        self._writers: dict[str, CommittingWriter[Any]] = {}
        self._tallies: dict[str, Tally] = {}
        self.parts: dict[str, SinkReport] = {}
        self.busy = ""

    def write_all(
        self, batches: Iterable[pa.RecordBatch], lane: Lane, deadline: Deadline | None
    ) -> Lane:
        """Write the stream's batches, which are `lane`'s unless it is empty, until the deadline.
        Return the rows left."""
        if deadline is None:
            for batch in batches:
                self._split(batch)
            return ()
        self.pace = Pace(deadline)
        for batch in batches:
            written = self.pace.write(batch, self._split)
            if written == batch.num_rows:
                continue
            if lane:
                break
            if self._overflow is None:
                self._overflow = Overflow(self._context(""))
            self._overflow.write(batch.slice(written))
        if lane:
            failpoints.reached("channel-state-read")
            return rest_of(lane, self.pace.rows)
        return self._overflow.finish() if self._overflow is not None else ()

    def _split(self, batch: pa.RecordBatch) -> None:
        # Here, so that nothing further on has copies of a whole batch of Spark's: 64 MB by default.
        for uid, rows in chain.from_iterable(map(self._job.layout.split, in_parts(batch))):
            process = self._job.processes.get(uid)
            made = process.for_sink(rows) if process and rows.num_rows else (rows,)
            for part in chain.from_iterable(map(in_parts, made)):
                self.write(uid, part)

    def write(self, uid: str, rows: pa.RecordBatch) -> None:
        """Write to one sink; write refused rows to its dead-letter sink."""
        if rows.num_rows == 0:
            return
        self.busy = uid
        if uid not in self._writers:
            self.parts[uid] = SinkReport()
            self._writers[uid] = self._new_writer(uid)
        writer, part = self._writers[uid], self.parts[uid]
        refused: Sequence[RefusedRow] = ()
        begun_s = time.perf_counter()
        if uid in self._job.dead_letters:
            refused = writer.write_accepted(rows)  # type: ignore[attr-defined]
        else:
            writer.write(rows)
        part.write_s += time.perf_counter() - begun_s
        part.rows += rows.num_rows - len(refused)
        part.data_bytes += rows.nbytes
        self._tallies[uid].add(without(rows, refused))
        if refused:
            into = self._job.dead_letters[uid]
            letters = dead_letters_of(uid, self._context(uid).epoch, rows, refused)
            self.write(into, for_sink(self._job.sinks[into], letters))
        self.busy = ""

    def _new_writer(self, uid: str) -> CommittingWriter[Any]:
        sink = self._job.sinks[uid]
        context = self._context(uid)
        if uid not in self._job.dead_letters:
            writer = sink.create_writer(context)
        else:
            assert isinstance(sink, SelectiveSink)  # checked when the job was built
            writer = sink.create_selective_writer(context)
        upserts = sink if isinstance(sink, UpsertingSink) and sink.keys else None
        self._tallies[uid] = Tally(writer, upserts, context.partition_id)
        return spool.keeping(sink, writer, context)

    def prepare_commit(self) -> None:
        """Flush every sink."""
        for uid, writer in self._writers.items():
            self.busy = uid
            begun_s = time.perf_counter()
            committables = writer.prepare_commit()
            self.parts[uid].flush_s = time.perf_counter() - begun_s
            sink = self._job.sinks[uid]
            if isinstance(sink, FileSizeSink) and sink.target_file_size:
                self.parts[uid].file_bytes = sum(c.size_bytes for c in committables)
            dumped = (spool.dump(sink, c) for c in committables)
            self.parts[uid].committables = tuple(dumped)
            self.parts[uid].targets = self._tallies[uid].close()
            self.parts[uid].keys = self._tallies[uid].keys()
        self.busy = ""

    def abort(self) -> None:
        """Give everything up; raises nothing."""
        if self._overflow is not None:
            self._overflow.discard()
        for writer in self._writers.values():
            with ignored("the abort of a writer"):
                writer.abort()

    def failure(self, error: Exception) -> str:
        """Return the epoch's failure message: the sink, the reason and, if there is one, a
        remedy."""
        reason = f"sink {self.busy!r}: {type(error).__name__}: {error}"
        if isinstance(error, MissingDependencyError):
            python = f"{sys.executable} on {socket.gethostname()}"
            return f"{reason}, into the Python of Spark's executors: {python} lacks it"
        if not isinstance(error, WriteRefusedError):
            return reason
        if self.busy in self._job.dead_letters.values():
            return f"{reason}; what it refuses are dead letters: give it room for every text"
        if self.busy not in self._job.dead_letters and isinstance(
            self._job.sinks[self.busy], SelectiveSink
        ):
            return (
                f"{reason}; to set single bad rows aside, give job.sink or sm.write_stream "
                'on_bad_row="dead_letter"'
            )
        return reason
