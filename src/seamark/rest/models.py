"""The answers of the REST interface, by Flink's names; FastAPI makes the OpenAPI document of them.

Timestamps are milliseconds since 1970, durations milliseconds, sizes bytes; -1 is "not known" or
"not yet". What Flink does not have is marked as Seamark's.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

TRIGGER_ID = "^[0-9a-f]{32}$"


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


class Hyphenated(BaseModel):
    """Flink writes some pages with hyphens, some with underscores."""

    model_config = ConfigDict(alias_generator=_hyphens, populate_by_name=True)


class Overview(Hyphenated):
    """How many jobs are in which state: in a driver, its one."""

    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    seamark_version: str


class JobIdWithStatus(BaseModel):
    """One job of `JobIds`."""

    id: str
    status: str


class JobIds(BaseModel):
    """``/jobs``."""

    jobs: list[JobIdWithStatus]


class JobDetails(Hyphenated):
    """`jid` is the job's id for ever, `restarts` (Seamark's) those of this execution."""

    jid: str
    name: str
    state: str
    start_time: int
    end_time: int
    duration: int
    restarts: int


class JobsOverview(BaseModel):
    """``/jobs/overview``."""

    jobs: list[JobDetails]


class Setting(BaseModel):
    """Seamark's: a setting's value as text, and where it came from."""

    value: str
    origin: str


class ExecutionConfig(Hyphenated):
    """`user_config` is Seamark's settings by key."""

    restart_strategy: str
    user_config: dict[str, Setting]


class JobConfig(Hyphenated):
    """``/jobs/:id/config``."""

    jid: str
    name: str
    execution_config: ExecutionConfig


class Externalization(BaseModel):
    """What becomes of checkpoints at a cancel."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointingConfig(BaseModel):
    """``/jobs/:id/checkpoints/config``."""

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    num_retained: int


class ExceptionEntry(BaseModel):
    """`epoch` and `restarted` are Seamark's: which epoch it hit, and whether the job went on."""

    exceptionName: str  # noqa: N815 - Flink's name
    stacktrace: str
    timestamp: int
    epoch: int
    restarted: bool


class ExceptionHistory(BaseModel):
    """The newest first."""

    entries: list[ExceptionEntry]
    truncated: bool


class JobExceptions(BaseModel):
    """``/jobs/:id/exceptions``."""

    exceptionHistory: ExceptionHistory  # noqa: N815 - Flink's name


class PartGuarantee(BaseModel):
    """The best that a job with this part can give, and why."""

    uid: str
    kind: str
    description: str
    guarantee: str
    why: str


class SinkGuarantee(BaseModel):
    """What a reader of one sink sees of each source row."""

    uid: str
    guarantee: str
    note: str
    weakest: str
    remedy: str


class Guarantees(BaseModel):
    """Seamark's: what `seamark explain` prints."""

    guarantee: str
    weakest: str
    remedy: str
    parts: list[PartGuarantee]
    sinks: list[SinkGuarantee]


class Counts(BaseModel):
    """Since the job's directory was made."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Checkpoint(BaseModel):
    """One checkpoint, in the history or in detail; docs/FORMAT.md says what each figure measures.
    `tasks`, by uid, is empty in the history."""

    model_config = ConfigDict(extra="allow")

    id: int
    status: str
    is_savepoint: bool
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    checkpoint_type: str
    tasks: dict[str, dict[str, Any]]


class Restored(BaseModel):
    """The checkpoint that a driver last went on from."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


class Latest(BaseModel):
    """The latest checkpoint of each kind."""

    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: Restored | None


class Checkpoints(BaseModel):
    """``/jobs/:id/checkpoints``."""

    counts: Counts
    summary: dict[str, dict[str, float | str]]
    latest: Latest
    history: list[Checkpoint]


class SubtaskPage(BaseModel):
    """One operator of one checkpoint, with its subtasks."""

    model_config = ConfigDict(extra="allow")

    id: int
    status: str
    summary: dict[str, Any]
    subtasks: list[dict[str, Any]]


class Problem(BaseModel):
    """Why a request was not answered."""

    errors: list[str]


class Series(BaseModel):
    """``/jobs/:id/series``, Seamark's: one column for each figure, null where it is not known."""

    id: list[int]
    trigger_timestamp: list[int]
    status: list[str]
    end_to_end_duration: list[int | None]
    read_and_process: list[int | None]
    pre_commit: list[int | None]
    decision: list[int | None]
    commit: list[int | None]
    checkpointed_size: list[int | None]
    state_size: list[int | None]
    persisted_data: list[int | None]
    processed_data: list[int | None]
    records_in: list[int | None]
    records_out: list[int | None]
    lag: list[int | None]


class Request(Hyphenated):
    """The body of a request: a field that is not known is refused, by its name."""

    model_config = ConfigDict(extra="forbid")


class CancelRequest(Request):
    """Nothing more to say."""


class TriggerRequest(Request):
    """`triggerId` makes the request safe to repeat; without it the driver makes one."""

    triggerId: str | None = Field(default=None, pattern=TRIGGER_ID)  # noqa: N815 - Flink's name


FormatType = Literal["CANONICAL", "NATIVE"]


class SavepointRequest(Request):
    """`target_directory` is a path or URI; None for the job's savepoint_dir."""

    triggerId: str | None = Field(default=None, pattern=TRIGGER_ID)  # noqa: N815 - Flink's name
    target_directory: str | None = None
    formatType: FormatType = "CANONICAL"  # noqa: N815


class StopRequest(Request):
    """With `targetDirectory` the job ends with a savepoint below it; with `drain` in any case, None
    for the job's savepoint_dir."""

    triggerId: str | None = Field(default=None, pattern=TRIGGER_ID)  # noqa: N815 - Flink's name
    targetDirectory: str | None = None  # noqa: N815 - Flink's name
    drain: bool = False
    formatType: FormatType = "CANONICAL"  # noqa: N815


class TriggerResponse(Hyphenated):
    """Where to look for what comes of it: ``…/<request-id>``."""

    request_id: str


class OperationStatus(BaseModel):
    """IN_PROGRESS or COMPLETED."""

    id: str


class FailureCause(Hyphenated):
    """Why an operation failed, in one line."""

    class_: str = Field(alias="class")
    stack_trace: str


class OperationFailed(Hyphenated):
    """An operation that failed."""

    failure_cause: FailureCause


class CheckpointTaken(BaseModel):
    """The completed checkpoint."""

    checkpointId: int  # noqa: N815 - Flink's name


class CheckpointOperation(BaseModel):
    """``/jobs/:id/checkpoints/:triggerid``."""

    status: OperationStatus
    operation: CheckpointTaken | OperationFailed | None


class SavepointTaken(BaseModel):
    """The savepoint's path."""

    location: str


class SavepointProgress(BaseModel):
    """Bytes of state that are written, and how many there will be; of a canonical savepoint about
    as many."""

    bytes: int
    total: int


class SavepointOperation(BaseModel):
    """``/jobs/:id/savepoints/:triggerid``; `progress` while the state is written."""

    status: OperationStatus
    operation: SavepointTaken | OperationFailed | None
    progress: SavepointProgress | None = None


class SavepointDisposalRequest(Request):
    """The path or URI of a savepoint, of whatever job."""

    triggerId: str | None = Field(default=None, pattern=TRIGGER_ID)  # noqa: N815 - Flink's name
    savepoint_path: str = Field(min_length=1)


class Disposed(BaseModel):
    """Nothing to say: the savepoint is gone."""

    model_config = ConfigDict(extra="forbid")


class DisposalOperation(BaseModel):
    """``/savepoint-disposal/:triggerid``."""

    status: OperationStatus
    operation: Disposed | OperationFailed | None


class RestorePlanRequest(Request):
    """What `seamark run -s … -p … -n --plan` is given, by the names of Flink's run request."""

    triggerId: str | None = Field(default=None, pattern=TRIGGER_ID)  # noqa: N815 - Flink's name
    savepointPath: str = Field(min_length=1)  # noqa: N815 - Flink's name
    parallelism: int | None = Field(default=None, ge=1, le=2**31 - 1)
    allowNonRestoredState: bool = False  # noqa: N815 - Flink's name


class RestorePlanPage(Hyphenated):
    """What a restore would do, as ``seamark run --plan --json`` prints it (docs/savepoints.md)."""

    path: str
    kind: str
    format: str | None
    from_: dict[str, Any] = Field(alias="from")
    to: dict[str, Any]
    claim_mode: str
    restorable: bool
    restored: bool
    operators: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    sinks: list[dict[str, Any]]
    warnings: list[str]
    problems: list[str]


class RestorePlanOperation(BaseModel):
    """``/jobs/:id/restore-plan/:triggerid``."""

    status: OperationStatus
    operation: RestorePlanPage | OperationFailed | None


class JobEnded(BaseModel):
    """The state in which the job has ended."""

    state: str


class StopOperation(BaseModel):
    """``/jobs/:id/stop/:triggerid``."""

    status: OperationStatus
    operation: JobEnded | OperationFailed | None


class Accepted(BaseModel):
    """Nothing to say: look at the job's state."""
