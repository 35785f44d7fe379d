"""What is known of one checkpoint, as frozen values; `to_json` gives it in Flink's fields.

`checkpoint/statistics.py` makes them, `checkpoint/statistics_store.py` keeps them,
`model/checkpointing_statistics.py` sums them up. docs/FORMAT.md says what each figure measures.

Timestamps are milliseconds since 1970, durations milliseconds, sizes bytes; -1 is "not known".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from seamark.model.stats_summary import UNKNOWN, StatsSummary


class CheckpointStatus(Enum):
    """How far a checkpoint is: FAILED epochs run again under the same id."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class SubtaskCheckpointStatistics:
    """One partition of one operator in one checkpoint."""

    index: int
    ack_timestamp: int = UNKNOWN
    end_to_end_duration: int = UNKNOWN
    checkpointed_size: int = 0
    state_size: int = 0
    sync_duration: int = UNKNOWN
    async_duration: int = UNKNOWN
    alignment_duration: int = UNKNOWN
    start_delay: int = UNKNOWN
    processed_data: int = 0
    persisted_data: int = 0
    rows: int = 0
    unaligned: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as an element of ``subtasks`` in Flink's subtask page."""
        return {
            "className": "completed",
            "index": self.index,
            "status": "completed",
            "ack_timestamp": self.ack_timestamp,
            "end_to_end_duration": self.end_to_end_duration,
            "checkpointed_size": self.checkpointed_size,
            "state_size": self.state_size,
            "checkpoint": {"sync": self.sync_duration, "async": self.async_duration},
            "alignment": {
                "buffered": 0,
                "processed": self.processed_data,
                "persisted": self.persisted_data,
                "duration": self.alignment_duration,
            },
            "start_delay": self.start_delay,
            "unaligned_checkpoint": self.unaligned,
            "aborted": False,
            "rows": self.rows,
        }


@dataclass(frozen=True)
class TaskCheckpointStatistics:
    """One source, stateful operator or sink (`kind`) in one checkpoint. `metrics` are Spark's."""

    uid: str
    kind: str
    name: str
    status: CheckpointStatus
    latest_ack_timestamp: int = UNKNOWN
    end_to_end_duration: int = UNKNOWN
    checkpointed_size: int = 0
    state_size: int = 0
    sync_duration: int = UNKNOWN
    async_duration: int = UNKNOWN
    processed_data: int = 0
    persisted_data: int = 0
    rows: int = 0
    num_subtasks: int = 0
    num_acknowledged_subtasks: int = 0
    metrics: Mapping[str, int] = field(default_factory=dict)
    subtasks: Sequence[SubtaskCheckpointStatistics] = ()

    def to_json(self, checkpoint_id: int, *, subtasks: bool = False) -> dict[str, Any]:
        """Return it as in ``tasks`` of Flink's checkpoint details, or with `subtasks` as Flink's
        subtask page."""
        shown: dict[str, Any] = {
            "id": checkpoint_id,
            "kind": self.kind,
            "name": self.name,
            "status": self.status.value,
            "latest_ack_timestamp": self.latest_ack_timestamp,
            "checkpointed_size": self.checkpointed_size,
            "state_size": self.state_size,
            "end_to_end_duration": self.end_to_end_duration,
            "alignment_buffered": 0,
            "processed_data": self.processed_data,
            "persisted_data": self.persisted_data,
            "num_subtasks": self.num_subtasks,
            "num_acknowledged_subtasks": self.num_acknowledged_subtasks,
            "checkpoint": {"sync": self.sync_duration, "async": self.async_duration},
            "rows": self.rows,
            "metrics": dict(self.metrics),
        }
        if subtasks:
            parts = self.subtasks

            def over(name: str) -> dict[str, Any]:
                return StatsSummary.of(getattr(part, name) for part in parts).to_json()

            shown["summary"] = {
                "checkpointed_size": over("checkpointed_size"),
                "state_size": over("state_size"),
                "end_to_end_duration": over("end_to_end_duration"),
                "checkpoint_duration": {
                    "sync": over("sync_duration"),
                    "async": over("async_duration"),
                },
                "alignment": {
                    "buffered": StatsSummary.of(0 for _ in parts).to_json(),
                    "processed": over("processed_data"),
                    "persisted": over("persisted_data"),
                    "duration": over("alignment_duration"),
                },
                "start_delay": over("start_delay"),
            }
            shown["subtasks"] = [part.to_json() for part in parts]
        return shown


@dataclass(frozen=True)
class CheckpointStatistics:
    """One attempt at one epoch, or at one savepoint of it (`is_savepoint`). `spark_durations` are
    those of Spark's progress report, in ms."""

    id: int
    status: CheckpointStatus
    trigger_timestamp: int
    checkpoint_type: str = "CHECKPOINT"
    is_savepoint: bool = False
    savepoint_format: str = ""
    latest_ack_timestamp: int = UNKNOWN
    end_to_end_duration: int = UNKNOWN
    checkpointed_size: int = 0
    state_size: int = 0
    start_delay: int = UNKNOWN
    alignment_duration: int = UNKNOWN
    sync_duration: int = UNKNOWN
    async_duration: int = UNKNOWN
    processed_data: int = 0
    persisted_data: int = 0
    rows: int = 0
    num_subtasks: int = 0
    num_acknowledged_subtasks: int = 0
    unaligned: bool = False
    external_path: str = ""
    discarded: bool = False
    failure_timestamp: int = UNKNOWN
    failure_message: str = ""
    spark_durations: Mapping[str, int] = field(default_factory=dict)
    tasks: Sequence[TaskCheckpointStatistics] = ()

    def to_json(self, *, details: bool = False) -> dict[str, Any]:
        """Return it as in Flink's history; with `details` as Flink's checkpoint details, where
        every operator has its subtasks too. What Flink has only for a subtask is here for the
        whole checkpoint as well."""
        shown: dict[str, Any] = {
            "className": self.status.value.lower(),
            "id": self.id,
            "status": self.status.value,
            "is_savepoint": self.is_savepoint,
            "savepointFormat": self.savepoint_format or None,
            "trigger_timestamp": self.trigger_timestamp,
            "latest_ack_timestamp": self.latest_ack_timestamp,
            "checkpointed_size": self.checkpointed_size,
            "state_size": self.state_size,
            "end_to_end_duration": self.end_to_end_duration,
            "alignment_buffered": 0,
            "processed_data": self.processed_data,
            "persisted_data": self.persisted_data,
            "num_subtasks": self.num_subtasks,
            "num_acknowledged_subtasks": self.num_acknowledged_subtasks,
            "checkpoint_type": self.checkpoint_type,
            "tasks": {t.uid: t.to_json(self.id, subtasks=True) for t in self.tasks}
            if details
            else {},
            "checkpoint": {"sync": self.sync_duration, "async": self.async_duration},
            "alignment": {
                "buffered": 0,
                "processed": self.processed_data,
                "persisted": self.persisted_data,
                "duration": self.alignment_duration,
            },
            "start_delay": self.start_delay,
            "unaligned_checkpoint": self.unaligned,
            "rows": self.rows,
            "spark_durations": dict(self.spark_durations),
        }
        if self.status is CheckpointStatus.COMPLETED:
            shown |= {"external_path": self.external_path, "discarded": self.discarded}
        if self.status is CheckpointStatus.FAILED:
            shown["failure_timestamp"] = self.failure_timestamp
            shown["failure_message"] = self.failure_message
        return shown

    def to_record(self) -> dict[str, Any]:
        """Return it as it is stored: every field by its name here."""
        record = asdict(self)
        for part in (record, *record["tasks"]):
            part["status"] = part["status"].value
        return record

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> CheckpointStatistics:
        """Read what `to_record` made; raises KeyError, TypeError or ValueError for another."""
        return CheckpointStatistics(
            **{
                **record,
                "status": CheckpointStatus(record["status"]),
                "tasks": tuple(
                    TaskCheckpointStatistics(
                        **{
                            **task,
                            "status": CheckpointStatus(task["status"]),
                            "subtasks": tuple(
                                SubtaskCheckpointStatistics(**part) for part in task["subtasks"]
                            ),
                        }
                    )
                    for task in record["tasks"]
                ),
            }
        )
