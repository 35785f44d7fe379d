"""The answers of the REST interface, by Flink's names; FastAPI makes OpenAPI of them.

Timestamps are milliseconds since 1970, durations milliseconds, sizes bytes; -1 is "not known" or
"not yet". Fields without a counterpart in Flink are marked as Seamark's.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import (
    AfterValidator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from seamark.api.config import ExternalizedCheckpointRetention
from seamark.checkpoint.accepted_losses import AcceptedLoss
from seamark.checkpoint.executions import ExecutionEnd
from seamark.model.checkpoint_series import FIGURES
from seamark.model.checkpoint_statistics import DETAILS, CheckpointStatistics
from seamark.model.checkpointing_statistics import RestoredCheckpointStatistics
from seamark.model.stats_summary import UNKNOWN

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


def _of(attribute: str, default: Any = ...) -> Any:
    """Return a field that is read off an object's attribute, or ``attribute.attribute``."""
    first, *more = attribute.split(".")
    return Field(default, validation_alias=AliasPath(first, *more))


Milliseconds = Annotated[int, BeforeValidator(lambda s: min(round(s * 1000), 2**63 - 1))]
"""Read off seconds."""
Text = Annotated[str, BeforeValidator(lambda value: str(getattr(value, "value", value)))]
"""Read off an enum's member, or any value."""


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
    """`records_per_second`, `busy_share` (0 to 1), `lag_records` and `watermark` (ms since 1970)
    are null where they are not known. A stateful operator's `read_records` counts the rows changed
    in its state."""

    read_records: int
    write_records: int
    read_bytes: int
    write_bytes: int
    accumulated_busy_time: int
    records_per_second: float | None
    busy_share: float | None
    lag_records: int | None
    watermark: int | None = None


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
    jid: str | None = _of("job_id")
    epoch: int


def _ended_ms(end: ExecutionEnd | None) -> int:
    return UNKNOWN if end is None else round(end.ended_at * 1000)


class ExecutionPage(Hyphenated):
    """One `Job.run`. A former execution without a recorded end was killed: UNREACHABLE."""

    model_config = ConfigDict(from_attributes=True)

    number: int
    host: str = _of("start.host")
    pid: int = _of("start.pid")
    start_time: Milliseconds = _of("start.started_at")
    end_time: Annotated[int, BeforeValidator(_ended_ms)] = _of("end")
    state: Text
    reason: Annotated[str, BeforeValidator(lambda end: end.reason if end else "")] = _of("end")
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

    @staticmethod
    def of(retention: ExternalizedCheckpointRetention) -> "Externalization":
        """Return it of a job's setting."""
        deletes = retention is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
        return Externalization(enabled=True, delete_on_cancellation=deletes)


class CheckpointingConfig(BaseModel):
    """``/jobs/:id/checkpoints/config``."""

    model_config = ConfigDict(from_attributes=True)

    mode: Annotated[Text, AfterValidator(lambda mode: mode.replace("-", "_"))]
    interval: Milliseconds = _of("interval_s")
    timeout: Milliseconds = _of("timeout_s")
    min_pause: Milliseconds = _of("min_pause_s")
    max_concurrent: int = _of("max_concurrent_checkpoints")
    externalization: Annotated[Externalization, BeforeValidator(Externalization.of)] = _of(
        "externalized_retention"
    )
    state_backend: Text
    checkpoint_storage: Text = _of("storage")
    unaligned_checkpoints: bool = _of("unaligned")
    aligned_checkpoint_timeout: Milliseconds = _of("aligned_timeout_s", 0)
    tolerable_failed_checkpoints: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool = _of("changelog")
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
    """`target_directory` is a path or URI; null for the job's savepoint_dir. With `cancel_job` the
    job is cancelled when the savepoint is whole, and no epoch comes in between."""

    target_directory: str | None = None
    cancel_job: bool = False
    formatType: FormatType = "CANONICAL"  # noqa: N815


class StopRequest(TriggerRequest):
    """With `targetDirectory` the job ends with a savepoint below it; null is the job's
    savepoint_dir. Where there is neither, it ends without one, unless `drain` needs one. With
    `savepoint` (Seamark's) false a savepoint_dir alone makes none."""

    targetDirectory: str | None = None  # noqa: N815 - Flink's name
    drain: bool = False
    savepoint: bool = True
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


class ProgramRunRequest(TriggerRequest):
    """The dashboard's: run one of the programs that it was started with. The other fields are those
    of Flink's ``/jars/:id/run``."""

    program: str
    programArgsList: list[str] = []  # noqa: N815 - Flink's names
    savepointPath: str = ""  # noqa: N815
    allowNonRestoredState: bool = False  # noqa: N815
    parallelism: int | None = Field(default=None, ge=1)


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
    supersedes: dict[str, Any] | None
    operators: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    sinks: list[dict[str, Any]]
    warnings: list[str]
    problems: list[str]


JobEnded = _documented("JobEnded", "The terminal state of the job.", {"state": str})


class Accepted(BaseModel):
    """No fields: the job's state tells the outcome."""


def operation(name: str, path: str, result: type[BaseModel]) -> type[BaseModel]:
    """Return the form of the answer at ``<path>/:triggerid``: `result`, or why there is none."""
    text, more = f"``{path}/:triggerid``.", {}
    if result is SavepointTaken:
        text = f"{text[:-1]}; `progress` while the state is being written."
        more = {"progress": (SavepointProgress | None, None)}
    outcome = result | OperationFailed | None
    return _documented(name, text, {"status": OperationStatus, "operation": outcome}, **more)
