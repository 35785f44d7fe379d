"""Sinks whose attempts hang on demand, by files that a test puts into the directory `trouble`.

An attempt takes the oldest file `armed-…` that is meant for it away, writes down who it is, and
hangs: before its first rows, with them written, before its flush, or flushed and not reported. A
file `go-<its pid>` ends that.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext

import seamark as sm


class HangingWriter:
    """A writer that may hang, once."""

    def __init__(self, writer: Any, trouble: str, batch: int) -> None:
        self.abort = writer.abort
        self._writer, self._trouble, self._batch = writer, Path(trouble), batch
        self._waits = any(self._trouble.glob("armed-*-unwritten"))
        self._rows: list[Any] = []

    def write(self, rows: Any) -> None:
        if self._waits:  # else an orphan would miss the rest of its input
            self._rows.append(rows)
            return
        self._writer.write(rows)
        self._may_hang("written")

    def prepare_commit(self) -> Any:
        self._may_hang("unwritten")
        for rows in self._rows:
            self._writer.write(rows)
        self._may_hang("unflushed")
        committables = self._writer.prepare_commit()
        self._may_hang("flushed")
        return committables

    def _may_hang(self, moment: str) -> None:
        task = TaskContext.get()
        assert task is not None
        for armed in sorted(self._trouble.glob(f"armed-*-{moment}")):
            try:
                meant = json.loads(armed.read_text())
                if meant["copy"] and task.attemptNumber() == 0:
                    continue
                armed.rename(armed.with_name(armed.name.replace("armed", "going")))
            except FileNotFoundError:
                continue  # another attempt's
            who = {
                "pid": os.getpid(),
                "task": task.taskAttemptId(),
                "stage": task.stageId(),
                "index": task.partitionId(),
                "number": task.attemptNumber(),
                "batch": self._batch,
            }
            made = armed.with_name(f"made-{armed.name}")
            made.write_text(json.dumps(who))
            made.rename(armed.with_name(armed.name.replace("armed", "taken")))
            end = time.monotonic() + meant["for_s"]
            while time.monotonic() < end and not (self._trouble / f"go-{os.getpid()}").exists():
                time.sleep(0.05)


@dataclass(frozen=True, repr=False)
class TroubledKafka(sm.KafkaSink):
    trouble: str = ""

    def create_writer(self, context: Any) -> Any:
        return HangingWriter(super().create_writer(context), self.trouble, context.epoch)


@dataclass(frozen=True, repr=False)
class TroubledPostgres(sm.PostgresSink):
    trouble: str = ""

    def create_writer(self, context: Any) -> Any:
        return HangingWriter(super().create_writer(context), self.trouble, context.epoch)
