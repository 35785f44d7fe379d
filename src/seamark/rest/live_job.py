"""A job in its driver: the data of its pages, and the actions on it. `job.py` makes it.

Settings and guarantees do not change during an execution. They are also stored at its start
(`kept_pages`, ``executions/<n>/started.json``), for readers while no driver answers.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar

from seamark.api.config import CheckpointConfig
from seamark.api.declarations import JobDeclaration
from seamark.api.settings import Settings
from seamark.checkpoint.accepted_losses import AcceptedLoss
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.executions import Execution, ExecutionStart
from seamark.checkpoint.flow_figures import FlowFigures, PartFigures
from seamark.guarantees.end_to_end import GuaranteeReport
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.job_graph import JobGraph
from seamark.model.job_state import JobState
from seamark.model.redaction import Redactor
from seamark.rest.epochs import epoch_page, open_transactions
from seamark.rest.models import CheckpointingConfig
from seamark.rest.observed import PAGES, ObservedJob
from seamark.run.supervision import Supervisor
from seamark.savepoints.restore.plan import RestorePlan

_KEPT = ("config", "checkpoints/config", "guarantees")


@dataclass(frozen=True)
class LiveJob(ObservedJob):
    """One job. Asked for each request, from other threads than the job's. `supervisor` returns the
    run's supervisor, made before anybody can ask."""

    is_live: ClassVar[bool] = True

    declaration: JobDeclaration
    settings: Settings
    redactor: Redactor
    guarantees: GuaranteeReport
    graph: JobGraph
    flow: FlowFigures
    checkpoints: Callable[[], CheckpointingStatistics]
    take_savepoint: Callable[..., Future[str]]
    """As `Job.savepoint`; with `then`, `stop` or `cancel`, the job ends with it."""
    restore_plan: Callable[..., RestorePlan]
    """`Job.restore_plan`."""
    supervisor: Callable[[], Supervisor]
    sink_transactions: Callable[[dict[str, Any]], dict[str, Any]]
    """Answers a verb of `seamark txn` (`jobs/job_transactions.py`). Asks the sinks' systems."""

    @property
    def name(self) -> str:
        """The job's name."""
        return self.declaration.name

    @property
    def checkpoint(self) -> CheckpointConfig:
        """How the job takes its checkpoints."""
        return self.declaration.checkpoint

    @property
    def coordinator(self) -> Coordinator | None:
        """The newest run's coordinator; None before the first run."""
        return self.supervisor().coordinator

    def job_id(self) -> str:
        """Return the job's id; "" until it is known, in the job's first start."""
        return self.supervisor().job_id

    def checkpoints_version(self) -> str:
        """Return a version of `checkpoints`, new after every change. For this driver alone."""
        version = "" if self.coordinator is None else self.coordinator.statistics.version
        return f"{round(self.supervisor().started_at * 1000)}.{version}"

    # --- as every observed job

    def execution(self) -> Execution:
        """Return this execution, recorded or not."""
        run = self.supervisor()
        graph = self.graph.to_record()
        start = ExecutionStart(self.job_id(), self.name, "", 0, run.started_at, "", graph)
        return Execution(0, start, run.execution.failures, run.end)

    def state(self) -> JobState:
        """Return the job's state, after its end the final one."""
        return self.supervisor().state

    def restarts(self) -> int:
        """Return the restarts of this execution, also those after failures no longer kept."""
        return self.supervisor().restarts

    def executions(self) -> Sequence[Execution]:
        """Return the job's executions, this one first if recorded; earlier ones are read once."""
        recorder = self.supervisor().execution
        own = [recorder.recorded] if recorder.recorded else []
        return [*own, *reversed(recorder.earlier())]

    def origin(self) -> tuple[int, Mapping[str, Any] | None]:
        """Return the coordinator's generation, and its job's origin; 0, None before a run."""
        if self.coordinator is None:
            return 0, None
        identity = self.coordinator.identity
        return self.coordinator.generation, identity.restored_from if identity else None

    def losses(self) -> Sequence[AcceptedLoss]:
        """Return those accepted before this driver started; none can be while it runs."""
        return () if self.coordinator is None else self.coordinator.losses

    def figures(self, uid: str) -> PartFigures:
        """Return the figures of a part in this driver."""
        return self.flow.of(uid)

    def told(self, page: str) -> Any:
        """Make the page."""
        sinks = {uid: declared.sink for uid, declared in self.declaration.sinks.items()}
        pages: dict[str, Callable[[], Any]] = {
            "config": self._config,
            "checkpoints/config": lambda: CheckpointingConfig.model_validate(self.checkpoint),
            "guarantees": self.guarantees.to_json,
            "epoch": lambda: epoch_page(self.coordinator),
            "transactions": lambda: open_transactions(self.coordinator, sinks),
        }
        return pages[page]()

    # --- pages of a whole execution

    def kept_pages(self) -> dict[str, Any]:
        """Return the pages to store by their paths below ``/jobs/:id/``, as answered: without
        secrets. Called once, when the job's id is known."""
        kept = [page for page in PAGES if page.path in _KEPT]
        return {
            page.path: self.redactor.everywhere(
                page.form.model_validate(page.of(self)).model_dump(by_alias=True, mode="json")
            )
            for page in kept
        }

    def _config(self) -> dict[str, Any]:
        settings = {
            key: {"value": str(setting.value), "origin": setting.origin}
            for key, setting in sorted(self.settings.items())
        }
        strategy = str(self.checkpoint.restart_strategy)
        execution = {"restart-strategy": strategy, "user-config": settings}
        return {"jid": self.job_id(), "name": self.name, "execution-config": execution}
