"""The answers of the REST interface, by Flink's names; FastAPI makes OpenAPI of them.

Timestamps are milliseconds since 1970, durations milliseconds, sizes bytes; -1 is "not known" or
"not yet". Fields without a counterpart in Flink are marked as Seamark's.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from seamark.checkpoint.accepted_losses import AcceptedLoss
from seamark.model.checkpoint_series import FIGURES
from seamark.model.checkpoint_statistics import DETAILS, CheckpointStatistics
from seamark.model.checkpointing_statistics import RestoredCheckpointStatistics

TRIGGER_ID = "^[0-9a-f]{32}$"


def _documented(name: str, text: str, fields: Mapping[str, Any], **more: Any) -> type[BaseModel]:
    """Return the form of a page made without it: required `fields` with their types."""
    required = {field: (type_, ...) for field, type_ in fields.items()}
    return create_model(name, __doc__=text, **{**required, **more})


class Hyphenated(BaseModel):
    """Flink writes some pages with hyphens, some with underscores."""

    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", "-"), populate_by_name=True
    )


class Overview(Hyphenated):
    """The number of jobs in each state; a driver has one job."""

    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    seamark_version: str


class JobIdWithStatus(BaseModel):
    """One job of `JobIds`."""

    id: str
    status: str


JobIds = _documented("JobIds", "``/jobs``.", {"jobs": list[JobIdWithStatus]})


class JobDetails(Hyphenated):
    """`jid` is the job's id for ever, `restarts` (Seamark's) counts those of this execution."""

    jid: str
    name: str
    state: str
    start_time: int
    end_time: int
    duration: int
    restarts: int


JobsOverview = _documented("JobsOverview", "``/jobs/overview``.", {"jobs": list[JobDetails]})


class VertexMetrics(Hyphenated):
    """`records_per_second`, `busy_share` (0 to 1) and `lag_records` are null where they are not
    measured. A stateful operator's `read_records` counts the rows changed in its state."""

    read_records: int
    write_records: int
    read_bytes: int
    write_bytes: int
    accumulated_busy_time: int
    records_per_second: float | None
    busy_share: float | None
    lag_records: int | None


class Vertex(Hyphenated):
    """A source, stateful operator or sink; Seamark's are `kind`, `description`, `guarantee` and
    `has_uid`: whether the program gave the uid, or `id` is Spark's number of the part."""

    id: str
    name: str
    kind: str
    description: str
    guarantee: str
    has_uid: bool
    parallelism: int
    status: str
    start_time: int
    end_time: int
    duration: int
    metrics: VertexMetrics


class PlanInput(BaseModel):
    """An edge: the feeding part, and its place among the inputs."""

    id: str
    num: int


class PlanNode(BaseModel):
    """A part of the plan, with its inputs."""

    id: str
    description: str
    parallelism: int
    inputs: list[PlanInput]


class Plan(BaseModel):
    """The graph of the job; every node comes after its inputs."""

    jid: str
    name: str
    type: str
    nodes: list[PlanNode]


class JobPage(JobDetails):
    """``/jobs/:id``."""

    vertices: list[Vertex]
    plan: Plan


class RestoredFrom(BaseModel):
    """The retained checkpoint or savepoint from which the job was restored; `jid` is its own job,
    null if unreadable."""

    path: str
    jid: str | None
    epoch: int


class ExecutionPage(Hyphenated):
    """One `Job.run`. A former execution without a recorded end was killed: UNREACHABLE."""

    number: int
    host: str
    pid: int
    start_time: int
    end_time: int
    state: str
    reason: str
    restarts: int


_lists = dict.fromkeys(("transactions", "unproved"), list[str])
_AcceptedLoss = _documented(
    "AcceptedLoss",
    """The accepted loss of one sink's `transactions` in one epoch; `unproved` are those of them
that their system had forgotten, `rows` all rows of the sink's epoch.""",
    {**get_type_hints(AcceptedLoss), **_lists, "accepted_at": int},
)
AcceptedLosses = _documented(
    "AcceptedLosses",
    "``/jobs/:id/losses``, Seamark's.",
    {"losses": list[_AcceptedLoss]},  # type: ignore[valid-type]
)


class Lineage(BaseModel):
    """``/jobs/:id/lineage``: executions newest first; `generation` counts the drivers and their
    restarts."""

    jid: str
    generation: int
    restored: RestoredFrom | None
    executions: list[ExecutionPage]


class Setting(BaseModel):
    """Seamark's: a setting's value as text, and its origin."""

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
    """The fate of checkpoints at a cancel."""

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
    aligned_checkpoint_timeout: int = 0
    tolerable_failed_checkpoints: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    num_retained: int


class ExceptionEntry(BaseModel):
    """`epoch` and `restarted` are Seamark's: the epoch hit, and whether the job went on."""

    exceptionName: str  # noqa: N815 - Flink's name
    stacktrace: str
    timestamp: int
    epoch: int
    restarted: bool


class ExceptionHistory(BaseModel):
    """The newest first."""

    entries: list[ExceptionEntry]
    truncated: bool


JobExceptions = _documented(
    "JobExceptions", "``/jobs/:id/exceptions``.", {"exceptionHistory": ExceptionHistory}
)


class PartGuarantee(BaseModel):
    """The best guarantee of a job with this part, and the reason."""

    uid: str
    kind: str
    description: str
    guarantee: str
    why: str
    places: list[str] = []


class SinkGuarantee(BaseModel):
    """How often a reader of one sink sees each source row."""

    uid: str
    guarantee: str
    note: str
    weakest: str
    remedy: str
    chain: list[str] = []


class Finding(BaseModel):
    """A fault, by its code in docs/findings.md. Errors stop a job at its start."""

    code: str
    name: str
    severity: str
    subject: str
    found: str
    remedy: str


class Guarantees(BaseModel):
    """Seamark's: the report of `seamark explain`."""

    guarantee: str
    weakest: str
    remedy: str
    parts: list[PartGuarantee]
    sinks: list[SinkGuarantee]
    sharing: list[str] = []
    findings: list[Finding] = []


_types = get_type_hints(CheckpointStatistics)
Counts = _documented(
    "Counts",
    "Since the job's directory was made.",
    dict.fromkeys(("restored", "total", "in_progress", "completed", "failed"), int),
)
Checkpoint = _documented(
    "Checkpoint",
    """One checkpoint, in the history or in detail; docs/FORMAT.md defines each figure.
`tasks`, by uid, is empty in the history.""",
    {
        "id": int,
        "status": str,
        **{name: _types[name] for name in DETAILS},
        "tasks": dict[str, dict[str, Any]],
    },
    __config__=ConfigDict(extra="allow"),
)
Restored = _documented(
    "Restored",
    "The checkpoint of the last recovery by a driver.",
    get_type_hints(RestoredCheckpointStatistics),
)
Latest = _documented(
    "Latest",
    "The latest checkpoint of each kind.",
    {
        **dict.fromkeys(("completed", "savepoint", "failed"), Checkpoint | None),
        "restored": Restored | None,
    },
)
Checkpoints = _documented(
    "Checkpoints",
    "``/jobs/:id/checkpoints``.",
    {
        "counts": Counts,
        "summary": dict[str, dict[str, float | str]],
        "latest": Latest,
        "history": list[Checkpoint],  # type: ignore[valid-type]
    },
)


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


Series = _documented(
    "Series",
    "``/jobs/:id/series``, Seamark's: one column for each figure, null where it is unknown.",
    {
        **dict.fromkeys(FIGURES, list[int | None]),
        **dict.fromkeys(FIGURES[:2], list[int]),
        "status": list[str],
    },
)


class Request(Hyphenated):
    """The body of a request. Unknown fields are refused by name."""

    model_config = ConfigDict(extra="forbid")


class CancelRequest(Request):
    """No fields."""


class TriggerRequest(Request):
    """`triggerId` makes the request safe to repeat; without it the driver makes one."""

    triggerId: str | None = Field(default=None, pattern=TRIGGER_ID)  # noqa: N815 - Flink's name


FormatType = Literal["CANONICAL", "NATIVE"]


class SavepointRequest(TriggerRequest):
    """`target_directory` is a path or URI; null for the job's savepoint_dir."""

    target_directory: str | None = None
    formatType: FormatType = "CANONICAL"  # noqa: N815


class StopRequest(TriggerRequest):
    """With `targetDirectory` the job ends with a savepoint below it. With `drain` it always ends
    with a savepoint; `targetDirectory` null is then the job's savepoint_dir."""

    targetDirectory: str | None = None  # noqa: N815 - Flink's name
    drain: bool = False
    formatType: FormatType = "CANONICAL"  # noqa: N815


class TriggerResponse(Hyphenated):
    """The id of the operation: its outcome is at ``…/<request-id>``."""

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


CheckpointTaken = _documented("CheckpointTaken", "The completed checkpoint.", {"checkpointId": int})
SavepointTaken = _documented("SavepointTaken", "The savepoint's path.", {"location": str})
SavepointProgress = _documented(
    "SavepointProgress",
    "Bytes of state written, and their expected total; for a canonical savepoint an estimate.",
    {"bytes": int, "total": int},
)


class SavepointDisposalRequest(TriggerRequest):
    """The path or URI of a savepoint, of any job."""

    savepoint_path: str = Field(min_length=1)


class Disposed(BaseModel):
    """No fields: the savepoint is deleted."""

    model_config = ConfigDict(extra="forbid")


class RestorePlanRequest(TriggerRequest):
    """The options of `seamark run -s … -p … -n --plan`, by the names of Flink's run request."""

    savepointPath: str = Field(min_length=1)  # noqa: N815 - Flink's name
    parallelism: int | None = Field(default=None, ge=1, le=2**31 - 1)
    allowNonRestoredState: bool = False  # noqa: N815 - Flink's name


_ENDS: dict[str, Any] = {"verb": {"enum": ["commit", "abort"]}}
_LISTED: dict[str, Any] = {"verb": {"const": "list"}, "force": {"const": False}}
_NAMED: dict[str, Any] = {"transactions": {"minItems": 1}, "allLingering": {"const": False}}
_ALL: dict[str, Any] = {
    "transactions": {"maxItems": 0},
    "allLingering": {"const": True},
    "force": {"const": False},
}


class TransactionsRequest(TriggerRequest):
    """A verb of `seamark txn`. `commit` and `abort` end the named transactions, or with
    `allLingering` all with the fitting verdict; `force` ends named ones against the verdict."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": _LISTED},
                {"properties": _ENDS | _NAMED, "required": ["verb", "transactions"]},
                {"properties": _ENDS | _ALL, "required": ["verb", "allLingering"]},
            ]
        }
    )

    verb: Literal["list", "commit", "abort"] = "list"
    transactions: list[str] = []
    allLingering: bool = False  # noqa: N815
    force: bool = False

    @model_validator(mode="after")
    def _check(self) -> "TransactionsRequest":
        if self.verb != "list" and bool(self.transactions) == self.allLingering:
            raise ValueError("name the transactions to end, or give allLingering: true")
        if self.force and (self.verb == "list" or not self.transactions):
            raise ValueError("force is for ending transactions named in `transactions`")
        return self


class SinkTransactions(BaseModel):
    """Transactions as ``seamark txn list --json`` prints them, without `job`."""

    transactions: list[dict[str, Any]]


class RestorePlanPage(Hyphenated):
    """The effect of a restore, as ``seamark run --plan --json`` prints it (docs/savepoints.md)."""

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


JobEnded = _documented("JobEnded", "The terminal state of the job.", {"state": str})


class Accepted(BaseModel):
    """No fields: the job's state tells the outcome."""


def _operation(name: str, path: str, result: type[BaseModel], **more: Any) -> type[BaseModel]:
    """Return the form of the answer at ``<path>/:triggerid``: `result`, or why there is none."""
    operation = result | OperationFailed | None
    return _documented(name, path, {"status": OperationStatus, "operation": operation}, **more)


CheckpointOperation = _operation(
    "CheckpointOperation", "``/jobs/:id/checkpoints/:triggerid``.", CheckpointTaken
)
SavepointOperation = _operation(
    "SavepointOperation",
    "``/jobs/:id/savepoints/:triggerid``; `progress` while the state is being written.",
    SavepointTaken,
    progress=(SavepointProgress | None, None),
)
DisposalOperation = _operation("DisposalOperation", "``/savepoint-disposal/:triggerid``.", Disposed)
RestorePlanOperation = _operation(
    "RestorePlanOperation", "``/jobs/:id/restore-plan/:triggerid``.", RestorePlanPage
)
TransactionsOperation = _operation(
    "TransactionsOperation", "``/jobs/:id/transactions/:triggerid``.", SinkTransactions
)
StopOperation = _operation("StopOperation", "``/jobs/:id/stop/:triggerid``.", JobEnded)
