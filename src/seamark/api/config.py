"""`CheckpointConfig`: the settings of a job's checkpoints, named as in Flink.

docs/checkpoints.md says what each does, docs/coming-from-flink.md what Flink calls it.
`api/settings.py` lays `seamark.toml` and the command line over the program's settings.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from seamark.api.checks import Given, Size, member, whole_bytes, whole_number, yes_or_no
from seamark.api.ephemeral_storage import EphemeralStorage
from seamark.api.restart_strategy import RestartStrategy
from seamark.files.location import storage_uri
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError


class CheckpointMode(Enum):
    """The promise of the job's checkpoints (Flink: `CheckpointingMode`)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


class ExternalizedCheckpointRetention(Enum):
    """Whether a cancelled job's checkpoints are kept or deleted."""

    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"


class StateBackend(Enum):
    """The place of a task's state: on the JVM heap, or in RocksDB on its local disk."""

    HASHMAP = "hashmap"
    ROCKSDB = "rocksdb"


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Given):
    """How a job takes its checkpoints.

    Durations are text (``"500ms"``, ``"5s"``, ``"10min"``), a number of seconds, or a timedelta;
    each is also available in seconds, as ``<setting>_s``.

    storage: the place of checkpoints: any URI for Spark's checkpoint location (``file:``,
        ``hdfs:``, ``s3a:``, ``gs:``), a local path, or `EphemeralStorage` for tests. Each job has
        the directory ``<storage>/<job name>``. Left out here and in the settings from outside: this
        user's ``~/.seamark/checkpoints`` (SEAMARK_STORAGE).
    savepoint_dir: the place of savepoints requested without a directory; a URI as above.
    interval: time between the starts of two epochs; 0 starts each epoch as soon as the last one
        ends. A bounded job does not wait for it. A number is below 1000: Flink's are milliseconds.
    mode: ``"exactly-once"``; ``"at-least-once"``: sinks become visible before the decision, so a
        replay after a failure duplicates; ``"at-most-once"``: an epoch is decided before it is
        processed, so a failure loses it.
    timeout: the time from an epoch's start to its decision. After that the epoch is aborted: its
        Spark jobs are cancelled, its transactions aborted, and it counts as failed.
    min_pause: the least time between the end of one epoch, committed to every sink, and the start
        of the next.
    max_concurrent_checkpoints: how many epochs may be stored but not yet committed; the epoch after
        them is processed, and waits before it is stored.
    tolerable_failed_checkpoints: how many epochs may fail one after another before the job fails; a
        completed epoch resets the count.
    externalized_retention: whether a cancelled job's checkpoints are kept
        (``"RETAIN_ON_CANCELLATION"``) or deleted (``"DELETE_ON_CANCELLATION"``). They are always
        kept after a failure.
    num_retained: how many complete checkpoints are kept, newest first; 1 is taken as 2, the least
        for a restart. The default is Spark's 100, not Flink's 1: checkpoints share most of their
        files, and if the newest is damaged there is an older one to go back to.
    unaligned: whether an epoch may end with rows still to be processed. They are stored with the
        checkpoint as *channel state*, and the next epoch begins with them. An epoch then does not
        grow with its backlog (docs/unaligned.md).
    aligned_timeout: with `unaligned`, the time from an epoch's start during which its rows are
        processed; rows left then become channel state. 0 stores them at once.
    max_in_flight_bytes: with `unaligned`, the bytes of channel state above which sources take
        nothing new: a number, or text such as ``"256MB"``.
    state_backend: ``"hashmap"`` or ``"rocksdb"``; a job with state keeps its first one.
    changelog: a checkpoint uploads the changes of its epoch, and the whole state only every
        `changelog_snapshot_interval` epochs. So does ``"hashmap"`` always.
    changelog_snapshot_interval: epochs between two uploads of the whole state if `changelog` is on.
    checkpoints_after_tasks_finish: whether a job takes a final checkpoint after its sources end,
        with the changes of their last rows.
    tolerated_downtime: the longest time that the job may be down before it is started again, e.g.
        over a night. Transactions with a time-out must outlive it, and Kafka's retention of source
        topics is held against it (docs/findings.md). 0: not stated; then transactions are held
        against the restart strategy's longest delay alone, and retention against a day.
    restart_strategy: whether and when a failed job is started again in the same program, from its
        last decided epoch. The default is `RestartStrategy.none()`, as in Spark: a supervisor of
        the program sees each failure, and a lasting failure does not repeat unseen for ever.

    Raises ConfigurationError, naming the setting, the value found and the allowed values.
    """

    storage: str | EphemeralStorage = ""
    savepoint_dir: str | None = None
    interval: Duration = "10s"
    mode: str | CheckpointMode = CheckpointMode.EXACTLY_ONCE
    timeout: Duration = "10min"
    min_pause: Duration = 0
    max_concurrent_checkpoints: int = 1
    tolerable_failed_checkpoints: int = 0
    externalized_retention: str | ExternalizedCheckpointRetention = (
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    num_retained: int = 100
    unaligned: bool = False
    aligned_timeout: Duration = 0
    max_in_flight_bytes: Size = "256MB"
    state_backend: str | StateBackend = StateBackend.HASHMAP
    changelog: bool = False
    changelog_snapshot_interval: int = 10
    checkpoints_after_tasks_finish: bool = True
    tolerated_downtime: Duration = 0
    restart_strategy: RestartStrategy = field(default_factory=RestartStrategy.none)
    interval_s: float = field(init=False, repr=False)
    timeout_s: float = field(init=False, repr=False)
    min_pause_s: float = field(init=False, repr=False)
    tolerated_downtime_s: float = field(init=False, repr=False)
    aligned_timeout_s: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        def checked(setting: str, value: Any) -> None:
            object.__setattr__(self, setting, value)

        prefix = "CheckpointConfig: "
        if "storage" in self.given and not isinstance(self.storage, EphemeralStorage):
            checked("storage", storage_uri(self.storage, prefix + "storage"))
        if self.savepoint_dir is not None:
            checked("savepoint_dir", storage_uri(self.savepoint_dir, prefix + "savepoint_dir"))
        checked("interval_s", seconds(self.interval, prefix + "interval"))
        if isinstance(self.interval, int | float) and self.interval >= 1000:
            raise ConfigurationError(
                f"{prefix}interval is {self.interval!r}, in seconds; Flink's numbers are "
                f"milliseconds: give text, '{self.interval}ms' or '{self.interval}s'"
            )
        checked("timeout_s", seconds(self.timeout, prefix + "timeout", least_s=0.01))
        checked("min_pause_s", seconds(self.min_pause, prefix + "min_pause"))
        downtime_s = seconds(self.tolerated_downtime, prefix + "tolerated_downtime")
        checked("tolerated_downtime_s", downtime_s)
        checked("aligned_timeout_s", seconds(self.aligned_timeout, prefix + "aligned_timeout"))
        in_flight = whole_bytes(
            self.max_in_flight_bytes, prefix + "max_in_flight_bytes", least=2**20
        )
        checked("max_in_flight_bytes", in_flight)
        for setting, kind in _CHOICES.items():
            checked(setting, member(kind, getattr(self, setting), prefix + setting))
        for setting, least in _COUNTS.items():
            whole_number(getattr(self, setting), prefix + setting, least=least)
        yes_or_no(self.unaligned, prefix + "unaligned")
        yes_or_no(self.changelog, prefix + "changelog")
        yes_or_no(self.checkpoints_after_tasks_finish, prefix + "checkpoints_after_tasks_finish")
        if self.unaligned and self.mode is CheckpointMode.AT_MOST_ONCE:
            raise ConfigurationError(
                f"{prefix}unaligned is True with mode 'at-most-once': an epoch skipped after a "
                "failure would lose its channel state, rows of earlier epochs; choose another "
                "mode, or leave unaligned out"
            )
        if not isinstance(self.restart_strategy, RestartStrategy):
            raise ConfigurationError(
                f"{prefix}restart_strategy is {self.restart_strategy!r}; give "
                "sm.RestartStrategy.fixed_delay(…), .exponential_delay(…), .failure_rate(…) or "
                ".none()"
            )


_CHOICES: dict[str, type[Enum]] = {
    "mode": CheckpointMode,
    "externalized_retention": ExternalizedCheckpointRetention,
    "state_backend": StateBackend,
}
_COUNTS = {
    "max_concurrent_checkpoints": 1,
    "tolerable_failed_checkpoints": 0,
    "num_retained": 1,
    "changelog_snapshot_interval": 1,
}
