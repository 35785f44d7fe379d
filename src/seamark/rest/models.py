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
from seamark.model.checkpoint_series import FIGURES
from seamark.model.checkpoint_statistics import DETAILS, CheckpointStatistics
from seamark.model.checkpointing_statistics import RestoredCheckpointStatistics
from seamark.model.stats_summary import UNKNOWN

TRIGGER_ID = "^[0-9a-f]{32}$"


def _documented(name: str, text: str, fields: Mapping[str, Any], **more: Any) -> type[BaseModel]:
    """Return the form of a page made without it: required `fields` with their types."""
    required = {field: (type_, ...) for field, type_ in fields.items()}
    return create_model(name, __doc__=text, **{**required, **more})


def _all(type_: Any, names: str) -> dict[str, Any]:
    """Return fields of one type, given their names with blanks between."""
    return dict.fromkeys(names.split(), type_)


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


Overview = _documented(
    "Overview",
    "The number of jobs in each state; a driver has one job.",
    _all(int, "jobs_running jobs_finished jobs_cancelled jobs_failed") | {"seamark_version": str},
    __base__=Hyphenated,
)


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


VertexMetrics = _documented(
    "VertexMetrics",
    """`records_per_second`, `busy_share` (0 to 1), `lag_records` and `watermark` (ms since 1970)
    are null where they are not known. A stateful operator's `read_records` counts the rows changed
    in its state.""",
    _all(int, "read_records write_records read_bytes write_bytes accumulated_busy_time")
    | _all(float | None, "records_per_second busy_share")
    | {"lag_records": int | None},
    watermark=(int | None, None),
    __base__=Hyphenated,
)
Vertex = _documented(
    "Vertex",
    """A source, stateful operator or sink; Seamark's are `kind`, `description`, `guarantee` and
    `has_uid`: whether the program gave the uid, or `id` is Spark's number of the part.""",
    _all(str, "id name kind description guarantee")
    | {"has_uid": bool, "parallelism": int, "status": str}
    | _all(int, "start_time end_time duration")
    | {"metrics": VertexMetrics},
    __base__=Hyphenated,
)
PlanInput = _documented(
    "PlanInput",
    "An edge: the feeding part, and its place among the inputs.",
    {"id": str, "num": int},
)
PlanNode = _documented(
    "PlanNode",
    "A part of the plan, with its inputs.",
    {"id": str, "description": str, "parallelism": int, "inputs": list[PlanInput]},  # type: ignore[valid-type]
)
Plan = _documented(
    "Plan",
    "The graph of the job; every node comes after its inputs.",
    _all(str, "jid name type") | {"nodes": list[PlanNode]},  # type: ignore[valid-type]
)
JobPage = _documented(
    "JobPage",
    "``/jobs/:id``.",
    {"vertices": list[Vertex], "plan": Plan},  # type: ignore[valid-type]
    __base__=JobDetails,
)


class RestoredFrom(BaseModel):
    """The retained checkpoint or savepoint from which the job was restored; `jid` is its own job,
    null if unreadable."""

    path: str
    jid: str | None = _of("job_id")
    epoch: int


class ExecutionPage(Hyphenated):
    """One `Job.run`. A former execution without a recorded end was killed: UNREACHABLE."""

    model_config = ConfigDict(from_attributes=True)

    number: int
    host: str = _of("start.host")
    pid: int = _of("start.pid")
    start_time: Milliseconds = _of("start.started_at")
    end_time: Annotated[
        int, BeforeValidator(lambda end: round(end.ended_at * 1000) if end else UNKNOWN)
    ] = _of("end")
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


Setting = _documented(
    "Setting", "Seamark's: a setting's value as text, and its origin.", _all(str, "value origin")
)
ExecutionConfig = _documented(
    "ExecutionConfig",
    "`user_config` is Seamark's settings by key.",
    {"restart_strategy": str, "user_config": dict[str, Setting]},  # type: ignore[valid-type]
    __base__=Hyphenated,
)
JobConfig = _documented(
    "JobConfig",
    "``/jobs/:id/config``.",
    _all(str, "jid name") | {"execution_config": ExecutionConfig},
    __base__=Hyphenated,
)


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


ExceptionEntry = _documented(
    "ExceptionEntry",
    "`epoch` and `restarted` are Seamark's: the epoch hit, and whether the job went on.",
    _all(str, "exceptionName stacktrace") | _all(int, "timestamp epoch") | {"restarted": bool},
)
ExceptionHistory = _documented(
    "ExceptionHistory",
    "The newest first.",
    {"entries": list[ExceptionEntry], "truncated": bool},  # type: ignore[valid-type]
)
JobExceptions = _documented(
    "JobExceptions", "``/jobs/:id/exceptions``.", {"exceptionHistory": ExceptionHistory}
)
PartGuarantee = _documented(
    "PartGuarantee",
    "The best guarantee of a job with this part, and the reason.",
    _all(str, "uid kind description guarantee why"),
    places=(list[str], []),
)
SinkGuarantee = _documented(
    "SinkGuarantee",
    "How often a reader of one sink sees each source row.",
    _all(str, "uid guarantee note weakest remedy"),
    chain=(list[str], []),
)
Finding = _documented(
    "Finding",
    "A fault, by its code in docs/findings.md. Errors stop a job at its start.",
    _all(str, "code name severity subject found remedy"),
)
Guarantees = _documented(
    "Guarantees",
    "Seamark's: the report of `seamark explain`.",
    _all(str, "guarantee weakest remedy")
    | {"parts": list[PartGuarantee], "sinks": list[SinkGuarantee]},  # type: ignore[valid-type]
    sharing=(list[str], []),
    findings=(list[Finding], []),  # type: ignore[valid-type]
)
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


SubtaskPage = _documented(
    "SubtaskPage",
    "One operator of one checkpoint, with its subtasks.",
    {"id": int, "status": str, "summary": dict[str, Any], "subtasks": list[dict[str, Any]]},
    __config__=ConfigDict(extra="allow"),
)
Problem = _documented("Problem", "Why a request was not answered.", {"errors": list[str]})
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


OperationStatus = _documented("OperationStatus", "IN_PROGRESS or COMPLETED.", {"id": str})
FailureCause = _documented(
    "FailureCause",
    "Why an operation failed, in one line.",
    _all(str, "class stack_trace"),
    __base__=Hyphenated,
)
OperationFailed = _documented(
    "OperationFailed",
    "An operation that failed.",
    {"failure_cause": FailureCause},
    __base__=Hyphenated,
)
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


SinkTransactions = _documented(
    "SinkTransactions",
    "Transactions as ``seamark txn list --json`` prints them, without `job`.",
    {"transactions": list[dict[str, Any]]},
)
RestorePlanPage = _documented(
    "RestorePlanPage",
    "The effect of a restore, as ``seamark run --plan --json`` prints it (docs/savepoints.md).",
    {"path": str, "kind": str, "format": str | None}
    | _all(dict[str, Any], "from to")
    | {"claim_mode": str}
    | _all(bool, "restorable restored")
    | {"supersedes": dict[str, Any] | None}
    | _all(list[dict[str, Any]], "operators sources sinks")
    | _all(list[str], "warnings problems"),
    __base__=Hyphenated,
)
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
