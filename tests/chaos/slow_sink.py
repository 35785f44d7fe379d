"""Sinks that take their time for each row, as an overloaded system does."""

from __future__ import annotations

import os
import time
from typing import Any

import pyarrow as pa

import seamark as sm

SLOW_ROW_S = "SEAMARK_TESTS_SLOW_ROW_S"
"""Environment: the seconds a row takes; Spark's workers inherit it from the program."""


class SlowWriter:
    """Hands all calls to a sink's writer; each row of `write` takes its time first."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._row_s = float(os.environ[SLOW_ROW_S])

    def write(self, batch: pa.RecordBatch) -> None:
        time.sleep(self._row_s * batch.num_rows)
        self._writer.write(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class SlowKafkaSink(sm.KafkaSink):
    def create_writer(self, context: Any) -> Any:
        return SlowWriter(super().create_writer(context))


class SlowSQLiteSink(sm.SQLiteSink):
    def create_writer(self, context: Any) -> Any:
        return SlowWriter(super().create_writer(context))
