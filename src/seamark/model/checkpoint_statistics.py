"""The figures of one checkpoint, as frozen values; `to_json` gives them in Flink's fields.

`checkpoint/statistics.py` makes them, `checkpoint/statistics_store.py` keeps them,
`model/checkpointing_statistics.py` sums them up. docs/FORMAT.md defines each figure.

Timestamps are milliseconds since 1970, durations milliseconds, sizes bytes; -1 is "not known".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from seamark.model.stats_summary import UNKNOWN, StatsSummary


class CheckpointStatus(Enum):
    """The status of a checkpoint; a FAILED epoch runs again under the same id."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


Of = Callable[[str], Any]
"""Returns the shown value of the named field."""

SIZES_AND_DURATION = ("checkpointed_size", "state_size", "end_to_end_duration")
ACKNOWLEDGED = (
    "latest_ack_timestamp", *SIZES_AND_DURATION, "processed_data", "persisted_data",
    "num_subtasks", "num_acknowledged_subtasks",
)  # fmt: skip
DETAILS = ("id", "is_savepoint", "trigger_timestamp", *ACKNOWLEDGED, "checkpoint_type")
"""Fields with the same name here and in Flink."""
_ENDED = {
    CheckpointStatus.COMPLETED: ("external_path", "discarded"),
    CheckpointStatus.FAILED: ("failure_timestamp", "failure_message"),
}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures shared by a checkpoint, its operators and their subtasks."""

    end_to_end_duration: int = UNKNOWN
    checkpointed_size: int = 0
    state_size: int = 0
    sync_duration: int = UNKNOWN
    async_duration: int = UNKNOWN
    processed_data: int = 0
    persisted_data: int = 0
    rows: int = 0

    def _shown(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*names, "rows")} | {
            "checkpoint": _checkpoint(self.__getattribute__)
        }


@dataclass(frozen=True, kw_only=True)
class _Aligned(Figures):
    """Figures that Flink has only for a subtask, and Seamark for the whole checkpoint as well."""

    alignment_duration: int = UNKNOWN
    start_delay: int = UNKNOWN
    unaligned: bool = False

    def _shown(self, *names: str) -> dict[str, Any]:
        return super()._shown(*names, "start_delay") | {
            "alignment": _alignment(self.__getattribute__, 0),
            "unaligned_checkpoint": self.unaligned,
        }


@dataclass(frozen=True, kw_only=True)
class _Acknowledged(Figures):
    """Figures of a checkpoint and of its operators, but not of a subtask."""

    latest_ack_timestamp: int = UNKNOWN
    num_subtasks: int = 0
    num_acknowledged_subtasks: int = 0


def _checkpoint(of: Of) -> dict[str, Any]:
    return {"sync": of("sync_duration"), "async": of("async_duration")}


def _alignment(of: Of, buffered: Any) -> dict[str, Any]:
    return {
        "buffered": buffered,
        "processed": of("processed_data"),
        "persisted": of("persisted_data"),
        "duration": of("alignment_duration"),
    }


@dataclass(frozen=True)
class SubtaskCheckpointStatistics(_Aligned):
    """One partition of one operator in one checkpoint."""

    index: int
    ack_timestamp: int = UNKNOWN

    def to_json(self) -> dict[str, Any]:
        """Return it as an element of ``subtasks`` in Flink's subtask page."""
        known = {"className": "completed", "status": "completed", "aborted": False}
        return known | self._shown("index", "ack_timestamp", *SIZES_AND_DURATION)


@dataclass(frozen=True)
class TaskCheckpointStatistics(_Acknowledged):
    """One source, stateful operator or sink (`kind`) in one checkpoint. `metrics` are Spark's."""

    uid: str
    kind: str
    name: str
    status: CheckpointStatus
    metrics: Mapping[str, int] = field(default_factory=dict)
    subtasks: Sequence[SubtaskCheckpointStatistics] = ()

    @property
    def unaligned(self) -> bool:
        """Whether a subtask has stored rows in flight."""
        return any(part.unaligned for part in self.subtasks)

    @property
    def alignment_duration(self) -> int:
        """The longest wait of a subtask for the last one."""
        return max((part.alignment_duration for part in self.subtasks), default=UNKNOWN)

    @property
    def skew(self) -> float | None:
        """The busiest subtask's share of the data, as a multiple of the mean: by data, by rows, or
        by state, whichever is known. None of fewer than two subtasks."""
        for name in ("processed_data", "rows", "state_size"):
            values: list[int] = [getattr(part, name) for part in self.subtasks]
            if len(values) > 1 and sum(values) > 0:
                return max(values) * len(values) / sum(values)
        return None

    def to_json(self, checkpoint_id: int) -> dict[str, Any]:
        """Return it as Flink's subtask page, also a part of the checkpoint's details. Seamark's are
        `skew` and `unaligned_checkpoint`."""

        def over(name: str) -> dict[str, Any]:
            return StatsSummary.of(getattr(part, name) for part in self.subtasks).to_json()

        summary = {name: over(name) for name in (*SIZES_AND_DURATION, "start_delay")} | {
            "checkpoint_duration": _checkpoint(over),
            "alignment": _alignment(over, StatsSummary.of(0 for _ in self.subtasks).to_json()),
        }
        return {
            "id": checkpoint_id,
            "status": self.status.value,
            **self._shown("kind", "name", *ACKNOWLEDGED),
            "alignment_buffered": 0,
            "unaligned_checkpoint": self.unaligned,
            "skew": self.skew,
            "metrics": dict(self.metrics),
            "summary": summary,
            "subtasks": [part.to_json() for part in self.subtasks],
        }


@dataclass(frozen=True)
class CheckpointStatistics(_Aligned, _Acknowledged):
    """One attempt at one epoch, or at one savepoint of it (`is_savepoint`). `spark_durations` are
    those of Spark's progress report, in ms."""

    id: int
    status: CheckpointStatus
    trigger_timestamp: int
    checkpoint_type: str = "CHECKPOINT"
    is_savepoint: bool = False
    savepoint_format: str = ""
    external_path: str = ""
    discarded: bool = False
    failure_timestamp: int = UNKNOWN
    failure_message: str = ""
    spark_durations: Mapping[str, int] = field(default_factory=dict)
    tasks: Sequence[TaskCheckpointStatistics] = ()

    def to_json(self, *, details: bool = False) -> dict[str, Any]:
        """Return it as in Flink's history; with `details` as Flink's checkpoint details. In the
        details every operator has its subtasks too."""
        return {
            "className": self.status.value.lower(),
            "status": self.status.value,
            **self._shown(*DETAILS, *_ENDED.get(self.status, ())),
            "alignment_buffered": 0,
            "savepointFormat": self.savepoint_format or None,
            "tasks": {task.uid: task.to_json(self.id) for task in self.tasks} if details else {},
            "spark_durations": dict(self.spark_durations),
        }
