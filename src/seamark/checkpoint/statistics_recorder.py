"""Keeps the statistics of one driver's epochs, on a thread of its own.

The coordinator and the query report events (`begun`, `committed`, `failed`) at the cost of one
entry in a queue. The thread then takes the remaining measurements, writes one file per epoch
(`checkpoint/statistics_store.py`) and deletes the oldest. A savepoint is reported by the thread
taking it (`savepoint_begun`, `savepoint_ended`).

Invariants: nothing here can hold up, fail or stop the job; measuring takes at most a tenth of the
time, however slow the storage is: epochs ended meanwhile are measured together.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from seamark.checkpoint.checkpointed_job import QueryRun
from seamark.checkpoint.statistics import (
    NO_FIGURES,
    EpochFigures,
    SavepointEnd,
    between_ms,
    describe,
    describe_savepoint,
)
from seamark.checkpoint.statistics_store import Key, StatisticsRecord, StatisticsStore, last_written
from seamark.checkpoint.store import JobIdentity
from seamark.checkpoint.task_reports import EpochProgress
from seamark.checkpoint.upkeep import Upkeep
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.checkpointing_statistics import (
    CheckpointCounts,
    CheckpointingStatistics,
    RestoredCheckpointStatistics,
)
from seamark.model.phases import Phases, phases_of

log = logging.getLogger(__name__)
epoch_log = logging.getLogger("seamark.epochs")
"""One line for each ended epoch, at INFO, in a stable form: docs/operations/logs.md. Its fields are
also attributes of the log record, for formatters that write JSON."""


def log_epoch(
    job: str,
    job_id: str,
    generation: int,
    progress: EpochProgress,
    status: CheckpointStatus,
    reason: str = "",
) -> None:
    """Write the line of an epoch that has just ended; costs nothing if the logger is off."""
    if not epoch_log.isEnabledFor(logging.INFO):
        return
    parts = [part for task in progress.tasks for part in task.sinks.values()]
    fields: dict[str, str | int] = {
        "epoch": progress.epoch,
        "status": status.value,
        "job": job,
        "job_id": job_id,
        "generation": generation,
        "rows": progress.rows,
        "data_bytes": sum(part.data_bytes for part in parts),
        "committables": sum(len(part.committables) for part in parts),
        "duration_ms": between_ms(progress.started_s, progress.committed_s or time.monotonic()),
        **{f"{name}_ms": ms for name, ms in asdict(_phases(progress)).items() if ms >= 0},
    }
    if progress.stored_s and progress.commit_started_s:
        fields["decision_wait_ms"] = between_ms(progress.stored_s, progress.commit_started_s)
    if reason:
        fields["reason"] = reason
    line = " ".join(f"{name}={_text(value)}" for name, value in fields.items())
    epoch_log.info("%s", line, extra=fields)


def _phases(progress: EpochProgress) -> Phases:
    writing = (
        sum(part.write_s + part.flush_s for part in task.sinks.values()) for task in progress.tasks
    )
    return phases_of(
        between_ms(progress.started_s, progress.pre_committed_s),
        round(max(writing, default=0.0) * 1e3),
        between_ms(progress.decided_s, progress.committed_s),
        between_ms(progress.started_s, progress.committed_s),
    )


def _text(value: str | int) -> str:
    """Return a value as in logfmt: text with anything but plain characters in JSON's quotes."""
    if isinstance(value, str) and (not value or any(c in value for c in ' ="\n\r\t\\')):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


SETTLE_S = 0.1
"""Spark's progress report of an epoch comes a little after its decision."""
REST = 9
"""The pause after a round of measuring, as a multiple of the round's duration."""
HURRY, MOST_WAITING = 100, 600
"""Ended epochs without a record: from so many on there are no pauses; of more the oldest are left
out, for they are in memory."""
LAST_ROUND_S = 10.0
"""The longest wait, at the end of a run, for its last statistics to be written."""


@dataclass(frozen=True)
class _Ended:
    """An epoch whose statistics are still to be written."""

    key: Key
    progress: EpochProgress
    status: CheckpointStatus
    reason: str
    failed_s: float


class StatisticsRecorder:
    """The checkpoint history of one running job, as `job.checkpoints()` shows it.

    Every text in it, above all the reason of a failure, has been through `run.hide`. `on_ended` is
    called with each ended checkpoint, in order, once its figures are known.
    """

    def __init__(
        self,
        store: StatisticsStore,
        sinks: Mapping[str, str],
        run: QueryRun,
        on_ended: Callable[[CheckpointStatistics], None],
    ) -> None:
        self._store = store
        self._sinks = {uid: run.hide(description) for uid, description in sinks.items()}
        self._query_run = run
        self._on_ended = on_ended
        self._identity: JobIdentity | None = None
        self._generation = 0
        self._upkeep = Upkeep()
        self._lock = threading.Condition()
        self._open: dict[int, EpochProgress] = {}
        self._ended: list[_Ended] = []
        self._left_out = False
        self._savepoints: dict[Key, CheckpointStatistics] = {}
        self._savepoints_of_generation: list[Key] = []
        self._closing = False
        self._changes = 0
        self._files = threading.Lock()  # taken before `_lock`, never on the epoch's path
        self._counts: CheckpointCounts | None = None
        self.restored: RestoredCheckpointStatistics | None = None
        """The checkpoint from which this job last went on; None if it is not known."""
        self._subtasks = 0
        self._thread: threading.Thread | None = None

    # --- events of epochs; called on the epoch's path

    def start(
        self,
        identity: JobIdentity,
        generation: int,
        restored_epoch: int,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        """Note that the driver of `generation` goes on after `restored_epoch` (-1: starts anew): an
        epoch of this job, or of the checkpoint or savepoint `origin`, as in `JobIdentity`."""
        self._identity = identity
        self._generation = generation
        if restored_epoch >= 0:
            self.restored = RestoredCheckpointStatistics(
                id=restored_epoch,
                restore_timestamp=round(time.time() * 1e3),
                is_savepoint=bool(origin and origin.get("is_savepoint")),
                external_path=str(origin.get("path", ""))
                if origin
                else f"{self._store.uri}/epochs/{restored_epoch}",
            )
        # A daemon: `close` waits for it, and a run that is never closed must not wait for ever.
        self._thread = threading.Thread(target=self._run, name="seamark-statistics", daemon=True)
        self._thread.start()

    def begun(self, progress: EpochProgress) -> None:
        """Note that an epoch has been triggered."""
        with self._lock:
            self._open[progress.epoch] = progress
            self._changes += 1

    def committed(self, epoch: int) -> None:
        """Note that an epoch is decided and every sink has committed it."""
        self._end(epoch, CheckpointStatus.COMPLETED)

    def _end(self, epoch: int, status: CheckpointStatus, reason: str = "") -> None:
        reason = self._query_run.hide(reason)
        with self._lock:
            progress = self._open.pop(epoch, None)
            if progress is None:
                return
            failed_s = time.monotonic() if status is CheckpointStatus.FAILED else 0.0
            key = Key(self._generation, epoch, 0)  # a failed epoch runs again in another generation
            self._ended.append(_Ended(key, progress, status, reason, failed_s))
            if len(self._ended) > MOST_WAITING:
                if not self._left_out:
                    log.warning("statistics of some epochs are left out: they end too fast for it")
                self._left_out = True
                del self._ended[0]
            self._changes += 1
            self._lock.notify_all()
        if self._identity is not None:
            name, job_id = self._identity.name, self._identity.job_id
            log_epoch(name, job_id, self._generation, progress, status, reason)

    def unrecorded(self) -> list[EpochProgress]:
        """Return the epochs not yet in a file, oldest first, ended ones included."""
        with self._lock:
            running = [progress for _, progress in sorted(self._open.items())]
            return [*(ended.progress for ended in self._ended), *running]

    # --- savepoints; called by the thread taking one

    def savepoint_begun(self, epoch: int, format_: str, asked_at: float) -> Key:
        """Note that a savepoint of a decided epoch is being written; return the key for
        `savepoint_ended`. `asked_at`: the time of its request, in seconds since 1970."""
        with self._lock:
            number = sum(key.epoch == epoch for key in self._savepoints_of_generation)
            key = Key(self._generation, epoch, number, is_savepoint=True)
            self._savepoints_of_generation.append(key)
            self._savepoints[key] = describe_savepoint(epoch, format_, asked_at)
            self._changes += 1
            return key

    def savepoints_in_progress(self) -> list[CheckpointStatistics]:
        """Return the savepoints being written."""
        with self._lock:
            return list(self._savepoints.values())

    def savepoint_ended(self, key: Key, end: SavepointEnd) -> None:
        """Note and store that a savepoint is whole, or why it failed. Never raises."""
        end = replace(end, failure=self._query_run.hide(end.failure))
        with self._files:
            with self._lock:
                begun = self._savepoints[key]
            self._store_record(key, end.of(begun))
            with self._lock:
                del self._savepoints[key]
                self._changes += 1

    # --- the history so far

    @property
    def version(self) -> str:
        """A value that changes with every new result of `read`, except for deleted files."""
        with self._lock:
            steps = ".".join(progress.state.value for progress in self._open.values())
            return f"{self._generation}.{self._changes}.{steps}"

    def read(self) -> CheckpointingStatistics:
        """Return everything up to now, with the epochs in progress."""
        with self._files:  # no record being written is seen twice, or missed
            records = self._store.records()
            counts, restored = self._history(last_written(records))
            with self._lock:
                finished = [self._describe(ended) for ended in self._ended]
                running = [progress for _, progress in sorted(self._open.items())]
                savepoints = list(self._savepoints.values())
        for checkpoint in finished:
            counts = _counted(counts, checkpoint)
        in_progress = [
            describe(p, CheckpointStatus.IN_PROGRESS, self._sinks, expected_subtasks=self._subtasks)
            for p in running
        ]
        history = [*(record.checkpoint for record in records), *finished, *in_progress, *savepoints]
        return self._store.summed_up(counts, restored, history)

    def _history(
        self, newest: StatisticsRecord | None
    ) -> tuple[CheckpointCounts, RestoredCheckpointStatistics | None]:
        """Return the counts of the written records, with this driver's restore, and this."""
        if self._counts is None:  # nothing is written by this driver yet
            counts = newest.counts if newest else CheckpointCounts()
            if self.restored is not None:
                counts = replace(counts, restored=counts.restored + 1)
            elif newest is not None:
                self.restored = newest.restored
            self._counts = counts
        return self._counts, self.restored

    def _describe(self, ended: _Ended, figures: EpochFigures = NO_FIGURES) -> CheckpointStatistics:
        return describe(
            ended.progress,
            ended.status,
            self._sinks,
            figures,
            failure=ended.reason,
            failed_s=ended.failed_s,
            expected_subtasks=self._subtasks,
        )

    # --- the thread

    def close(self, outcome: Callable[[EpochProgress], tuple[CheckpointStatus, str]]) -> None:
        """End every open epoch with its `outcome` (and the reason of a failure); return when all is
        written, or after LAST_ROUND_S."""
        if self._thread is None:
            return
        for epoch, progress in sorted(self._open.items()):
            try:
                self._end(epoch, *outcome(progress))
            except Exception as error:  # the storage is away, or Spark is
                self._end(epoch, CheckpointStatus.FAILED, f"its outcome is not known: {error}")
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._thread.join(LAST_ROUND_S)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._ended or self._closing)
                if not self._ended:
                    return
                self._lock.wait_for(lambda: self._closing, SETTLE_S)
            started_s = time.monotonic()
            epochs = self._round()
            took_s = time.monotonic() - started_s
            log.debug("statistics of %d epochs took %.0f ms", epochs, took_s * 1e3)
            with self._lock:
                self._lock.wait_for(
                    lambda: self._closing or len(self._ended) > HURRY, took_s * REST
                )

    def _round(self) -> int:
        """Measure and write all epochs ended by now; return their number."""
        with self._lock:
            ended = list(self._ended)
        figures = self._measured(ended)
        for one in ended:
            with self._files:
                self._write(one, figures.get(one.key[1], NO_FIGURES))
                with self._lock:
                    if self._ended and self._ended[0] is one:  # else left out meanwhile
                        del self._ended[0]
                    self._changes += 1
        return len(ended)

    def _measured(self, ended: Sequence[_Ended]) -> Mapping[int, EpochFigures]:
        epochs = [one.key[1] for one in ended if one.status is CheckpointStatus.COMPLETED]
        with self._upkeep.spared("sizes of checkpoints"):
            return self._query_run.measure(epochs) if epochs else {}
        return {}

    def _write(self, ended: _Ended, figures: EpochFigures) -> None:
        checkpoint = self._describe(ended, figures)
        self._subtasks = checkpoint.num_subtasks
        with self._upkeep.spared("checkpoints in the metrics"):
            self._on_ended(checkpoint)
        self._store_record(ended.key, checkpoint)

    def _store_record(self, key: Key, checkpoint: CheckpointStatistics) -> None:
        """Store one record. Called with `_files` held. Never raises."""
        with self._upkeep.spared("checkpoint history"):
            counts, restored = self._history(None if self._counts else self._store.newest())
            self._counts = _counted(counts, checkpoint)
            self._store.write(key, StatisticsRecord(checkpoint, self._counts, restored))
            self._store.prune()


def _counted(counts: CheckpointCounts, ended: CheckpointStatistics) -> CheckpointCounts:
    if ended.status is CheckpointStatus.COMPLETED:
        return replace(counts, completed=counts.completed + 1)
    return replace(counts, failed=counts.failed + 1)
