"""What a task of an epoch does: write its Arrow batches into one transaction per sink, and flush.

Runs in Spark's Python workers, once per attempt. What it returns, `collect` gives to the driver
for the winning attempt alone; what other attempts leave open is lingering.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from tidemark.contracts.sink import CommittingWriter, TwoPhaseCommitSink, WriterContext
from tidemark.model.errors import PreCommitError
from tidemark.runtime.branches import Layout

RESULT_SCHEMA = "sink string, rows bigint, committables array<binary>, attempt int"
_RESULT = pa.schema(
    [
        ("sink", pa.string()),
        ("rows", pa.int64()),
        ("committables", pa.list_(pa.binary())),
        ("attempt", pa.int32()),
    ]
)


@functools.cache
def _spare_the_collector() -> None:
    """Take what this worker has imported out of the garbage collector's sight, once.

    Spark's worker daemon collects in full after every task: some 30 ms of CPU for modules that
    never become garbage, in each worker and epoch.
    """
    gc.collect()
    gc.freeze()


BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def pre_commit(
    layout: Layout,
    sinks: Mapping[str, TwoPhaseCommitSink[Any]],
    *,
    job_id: str,
    generation: int,
    epoch: int,
    settled_epoch: int,
) -> BatchFunction:
    """Return the function for `mapInArrow`: batches of the united stream in, one row per sink that
    got rows out (RESULT_SCHEMA)."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        writers: dict[str, CommittingWriter[Any]] = {}
        rows: dict[str, int] = {}
        busy = (
            ""  # the sink whose writer is being called: its errors are failures of the checkpoint
        )
        try:
            for batch in batches:
                for uid, part in layout.split(batch):
                    if part.num_rows == 0:
                        continue
                    busy = uid
                    if uid not in writers:
                        rows[uid] = 0
                        writers[uid] = sinks[uid].create_writer(
                            WriterContext(
                                job_id=job_id,
                                sink_uid=uid,
                                generation=generation,
                                epoch=epoch,
                                partition_id=task.partitionId(),
                                attempt=task.taskAttemptId(),
                                settled_epoch=settled_epoch,
                            )
                        )
                    writers[uid].write(part)
                    rows[uid] += part.num_rows
                busy = ""
            results = []
            for busy, writer in writers.items():
                results.append(
                    {
                        "sink": busy,
                        "rows": rows[busy],
                        "committables": [sinks[busy].dump(c) for c in writer.prepare_commit()],
                        "attempt": task.attemptNumber(),
                    }
                )
        except BaseException as error:
            for writer in writers.values():
                with contextlib.suppress(Exception):
                    writer.abort()
            if busy and isinstance(error, Exception):
                reason = f"sink {busy!r}: {type(error).__name__}: {error}"
                raise PreCommitError(reason) from error
            raise
        _spare_the_collector()
        yield pa.RecordBatch.from_pylist(results, schema=_RESULT)

    return run
