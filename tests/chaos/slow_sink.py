"""Sinks that take ROW_S for each row, as an overloaded system does; some tasks less, others more.

The sources give an epoch as many rows as fit: at an even pace few would be left.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pyarrow as pa

import seamark as sm

ROW_S = 0.004
_PACES = (0.3, 0.5, 2.0)


class SlowWriter:
    """Hands all calls to a sink's writer; the rows of `write` take their time first."""

    def __init__(self, writer: Any, row_s: float = ROW_S) -> None:
        self._writer = writer
        self._row_s = row_s

    def write(self, batch: pa.RecordBatch) -> None:
        time.sleep(self._row_s * batch.num_rows)
        self._writer.write(batch)

    def prepare_commit(self) -> Any:
        return self._writer.prepare_commit()

    def abort(self) -> None:
        self._writer.abort()


class SlowKafkaSink(sm.KafkaSink):
    def create_writer(self, context: Any) -> Any:
        return SlowWriter(super().create_writer(context), ROW_S * random.choice(_PACES))


class SlowSQLiteSink(sm.SQLiteSink):
    def create_writer(self, context: Any) -> Any:
        return SlowWriter(super().create_writer(context), ROW_S * random.choice(_PACES))
