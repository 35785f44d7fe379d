"""Rows of an epoch that its tasks have not written at the deadline: channel state, in the task.

`Pace` says how many rows of a batch are written, `Overflow` stores the rest, and `read_lane` reads
it in a later epoch. `pre_commit.py` uses them in Spark's Python workers; `epoch_work.py`
runs the tasks for rows of earlier epochs. The values are in `checkpoint/channel_state.py`.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from seamark.checkpoint.channel_state import Lane, Segment
from seamark.contracts import spool
from seamark.contracts.sink import WriterContext
from seamark.contracts.spool import SpoolWriter
from seamark.files import HadoopSettings, open_directory
from seamark.model import failpoints
from seamark.model.errors import CorruptRecordError

SLICE_S = 0.1
"""The longest time for one call of a writer, about: a task looks at the clock between two calls."""
FIRST_SLICE_ROWS = 16
"""The rows of a job's first call, when nothing is known of its sinks' pace."""
_GROWTH = 4
_FILE_BYTES = 16 * 2**20
"""About the bytes of a file: in each epoch a lane reads again the rows before its place in it."""


@dataclass(frozen=True)
class Deadline:
    """The deadline of an epoch's tasks.

    `begun_at` is the epoch's start, in seconds since 1970 by the driver's clock; `timeout_s` is
    infinite for an aligned epoch. With `at_once` no row is written: rows of earlier epochs are
    left, and come first.
    """

    begun_at: float
    timeout_s: float
    slice_rows: int = FIRST_SLICE_ROWS
    at_once: bool = False


ALIGNED = Deadline(0.0, math.inf)


class Pace:
    """Writes the rows of one task in slices until the deadline, but for SLICE_S at least, and one
    slice at least: an epoch that begins late, or runs again, gets on too. `slice_rows` are the rows
    that take SLICE_S."""

    def __init__(self, deadline: Deadline) -> None:
        # The machines' clocks may differ: no task gets more time than the epoch has.
        left_s = min(deadline.begun_at + deadline.timeout_s - time.time(), deadline.timeout_s)
        self._end_s = time.monotonic() + left_s
        self._at_once = deadline.at_once
        self._spent_s = 0.0
        self.slice_rows = deadline.slice_rows
        self.rows = 0
        """The rows written."""

    @property
    def is_over(self) -> bool:
        """Whether no more row is to be written."""
        owed = not self.rows or self._spent_s < SLICE_S
        return self._at_once or (not owed and time.monotonic() >= self._end_s)

    def write(self, batch: pa.RecordBatch, write: Callable[[pa.RecordBatch], None]) -> int:
        """Write the batch as far as there is time, and return the number of rows written."""
        written = 0
        while written < batch.num_rows and not self.is_over:
            rows = batch.slice(written, self.slice_rows)
            begun_s = time.monotonic()
            write(rows)
            took_s = time.monotonic() - begun_s
            fitting = int(rows.num_rows * SLICE_S / took_s) if took_s > 0 else 2**31
            self.slice_rows = max(1, min(fitting, _GROWTH * self.slice_rows))
            self._spent_s += took_s
            self.rows += rows.num_rows
            written += rows.num_rows
        return written


class Overflow:
    """Stores a task's rows of after the deadline. Failpoint: `channel-state-written`.

    `context.spool_uri` is the directory of the job's channel state.
    """

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._writer: SpoolWriter | None = None
        self._bytes = 0
        self._finished: list[Segment] = []
        self._writers: list[SpoolWriter] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises OSError, or WriteRefusedError as `SpoolWriter.write` does."""
        if self._writer is None:
            self._writer = SpoolWriter(self._context, levels=1)
            self._writers.append(self._writer)
        self._writer.write(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _FILE_BYTES:
            self._close()

    def finish(self) -> Lane:
        """Make all files durable and return their rows."""
        self._close()
        if self._finished:
            failpoints.reached("channel-state-written")
        return tuple(self._finished)

    def discard(self) -> None:
        """Delete the files. Never raises."""
        for writer in self._writers:
            writer.discard()

    def _close(self) -> None:
        file = self._writer.finish() if self._writer is not None else None
        if file is not None:
            self._finished.append(Segment(file))
        self._writer, self._bytes = None, 0


def read_lane(lane: Lane, uri: str, hadoop: HadoopSettings) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a lane, in order; `uri` is the directory of the job's channel state.

    Raises CorruptRecordError if a file is missing or shorter than its record says.
    """
    directory = open_directory(uri, hadoop)
    for segment in lane:
        left, path = segment.file.rows, segment.file.path
        try:
            for batch in spool.read(directory, path):
                skipped = max(0, segment.skip - (segment.file.rows - left))
                left -= batch.num_rows
                if skipped < batch.num_rows:
                    yield batch.slice(skipped)
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise CorruptRecordError(f"{uri}/{path}: {error}") from None
        if left:
            raise CorruptRecordError(f"{uri}/{path}: it lacks {left} of {segment.file.rows} rows")


def rest_of(lane: Lane, rows: int) -> Lane:
    """Return the lane without its first `rows`."""
    for place, segment in enumerate(lane):
        if rows < segment.rows:
            return (replace(segment, skip=segment.skip + rows), *lane[place + 1 :])
        rows -= segment.rows
    return ()
