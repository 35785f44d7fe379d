"""A query of ``format("seamark")`` with its workers played: a planner, a task and a committer, each
with a memory of its own that Spark may keep or end. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from seamark.datasource import location, writers

IDS = StructType([StructField("id", LongType())])


def log_of(location: Path) -> Path:
    """Return the directory of a location's log."""
    (found,) = location.glob("*/log")
    return found


class Query:
    """One query's workers, and the batches that Spark runs by them."""

    def __init__(self, **options: str) -> None:
        self.options = options
        self.memories: dict[str, dict[Any, Any]] = {}
        self.attempts = 0

    def end_spark(self) -> None:
        for place in self.memories.get("committer", {}).values():
            with place._lock:
                if place._timer is not None:
                    place._timer.cancel()
                place._newest = None
        self.memories.clear()

    def plan(self, schema: StructType) -> Any:
        with self._worker("planner"):
            return writers.plan_batch(writers.place_of(self.options, schema, overwrite=False))

    def run(
        self,
        batch: int,
        *ids: Any,
        query: str = "q",
        schema: StructType = IDS,
        commits: bool = True,
        rows: pa.RecordBatch | None = None,
    ) -> None:
        writer = self.plan(schema)
        told = self.write(writer, batch, *ids, query=query, rows=rows)
        if commits:
            place = self.committing(schema)
            writers.BatchCommit(place).commit([told], batch)

    def write(
        self,
        writer: Any,
        batch: int,
        *ids: Any,
        query: str = "q",
        rows: pa.RecordBatch | None = None,
    ) -> Any:
        """Run an attempt of the batch's one task."""
        self.attempts += 1
        properties = {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": query}
        task = SimpleNamespace(
            getLocalProperty=properties.get,
            partitionId=lambda: 0,
            attemptNumber=lambda: 0,
            taskAttemptId=lambda: self.attempts,
        )
        with self._worker("task", task):
            return writer.write(iter([rows or pa.record_batch({"id": pa.array(ids, pa.int64())})]))

    def committing(self, schema: StructType = IDS) -> location.Location:
        with self._worker("committer"):
            return writers.place_of(self.options, schema, overwrite=False)

    @contextmanager
    def _worker(self, name: str, task: Any = None) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(location, "_known", self.memories.setdefault(name, {}))
            patch.setattr(writers, "TaskContext", SimpleNamespace(get=lambda: task))
            yield
