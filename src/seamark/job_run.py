"""One `Job.run` in this program: the query, its restarts, and its REST interface."""

import logging
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from seamark.api.rest_config import RestConfig
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.executions import LOG_VARIABLE, ExecutionStart, Sign
from seamark.checkpoint.flow_figures import FlowFigures
from seamark.jobs.job_transactions import answer_in_driver
from seamark.jobs.log_redaction import RedactedLog
from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding, FindingCode, Severity, errors
from seamark.model.redaction import Redactor
from seamark.rest.live_job import LiveJob
from seamark.rest.server import RestServer
from seamark.rest.telemetry import begin_telemetry
from seamark.run.inspection import source_findings
from seamark.run.job_facts import job_report
from seamark.run.job_plan import JobPlan, job_graph
from seamark.run.query import StreamRun
from seamark.run.stop_signals import stop_before_jvm, stop_on_signals
from seamark.run.supervision import Supervisor
from seamark.savepoints.claims import ClaimDisposal
from seamark.spark.state_backend import clone_session

log = logging.getLogger(__name__)


class JobRun:
    """Runs `plan` in the job's `directory`; call `run_to_end` once.

    `spark_settings` hold for its query alone; `shown` is the job's own data for `LiveJob`. The REST
    interface (`rest`) answers from now on; raises PreflightError if its address cannot be had, and
    ConfigurationError for findings that stop the job. Logs warnings. `trigger` has the arguments of
    ``DataStreamWriter.trigger``.
    """

    def __init__(
        self,
        plan: JobPlan,
        directory: str,
        trigger: Mapping[str, Any],
        spark_settings: Mapping[str, str],
        redactor: Redactor,
        rest: RestConfig,
        shown: Mapping[str, Any],
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._trigger = trigger
        self._spark_settings = spark_settings
        self._redactor = redactor
        declared, context = plan.declared, plan.spark.sparkContext
        self._flow = FlowFigures(lambda: context.defaultParallelism)
        graph = job_graph(declared, plan)
        guarantees = job_report(declared, graph, plan.spark).hidden(redactor.everywhere)
        _refuse(declared.name, guarantees.findings)
        with RedactedLog(redactor):
            seen = [*source_findings(declared, plan.spark)]
            _warn((*guarantees.findings, *seen))
        # A topic that is not there ends the query too, but after minutes and in Spark's words.
        _refuse(declared.name, (each for each in seen if each.code is FindingCode.SV004))
        self._view = LiveJob(
            declaration=declared,
            redactor=redactor,
            guarantees=guarantees,
            graph=graph.with_guarantees({part.uid: part.guarantee for part in guarantees.parts}),
            flow=self._flow,
            supervisor=lambda: self.supervisor,
            sink_transactions=self._sink_transactions,
            **shown,
        )
        self._started = clone_session(plan.spark)
        self._rest = RestServer(self._view, rest)
        self.supervisor = Supervisor(
            plan.spark, declared, self._new_run, directory, redactor, self._begun
        )
        self._rest_url = self._rest.start()
        self._end_telemetry = begin_telemetry(self._view)

    @property
    def coordinator(self) -> Coordinator | None:
        """The newest query's coordinator; None before the first."""
        return self.supervisor.coordinator

    def run_to_end(self) -> None:
        """Return when the job has ended, with everything settled; raise the error that ended it."""

        def stop() -> None:
            # Python's own prompt, and a notebook, go on after Ctrl-C.
            self.supervisor.stop(program_ends=not hasattr(sys, "ps1"))

        with RedactedLog(self._redactor):
            try:
                with stop_on_signals(stop), stop_before_jvm(self._plan.spark, stop):
                    self.supervisor.run()
            finally:
                self.close()

    def close(self) -> None:
        """End the REST interface and telemetry; `run_to_end` does it too."""
        self._rest.stop()
        self._end_telemetry()

    def _new_run(self) -> StreamRun:
        return StreamRun(
            self._plan,
            started=self._started,
            records_uri=self._directory,
            spark_location=self._plan.declared.below(self._directory),
            trigger=self._trigger,
            redactor=self._redactor,
            spark_settings=self._spark_settings,
            flow=self._flow,
            on_committed=ClaimDisposal(self._plan.spark),
        )

    def _sink_transactions(self, asked: dict[str, Any]) -> dict[str, Any]:
        plan = self._plan
        return answer_in_driver(plan.spark, plan.declared, self._directory, self.coordinator, asked)

    def _begun(self, job_id: str) -> tuple[ExecutionStart, Sign]:
        """Return the execution's record and its signer. Called when the job has begun to run."""
        sign = self._rest.allow_changes(job_id)
        start = ExecutionStart(
            job_id=job_id,
            name=self._plan.declared.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=self.supervisor.started_at,
            rest_url=self._rest_url,
            graph=self._redactor.everywhere(self._view.graph.to_record()),
            pages=self._view.kept_pages(),
            log=os.environ.get(LOG_VARIABLE, ""),
        )
        return start, sign


def _refuse(job: str, findings: Iterable[Finding]) -> None:
    """Raise ConfigurationError if a finding stops the job."""
    refusals = errors(findings)
    if len(refusals) == 1:
        raise ConfigurationError(refusals[0])
    if refusals:
        raise ConfigurationError(f"Job {job!r}: " + "; ".join(map(str, refusals)))


def _warn(findings: Iterable[Finding]) -> None:
    """Log the warnings. Servers that do not answer are left to those that need them."""
    for finding in findings:
        if finding.weight is Severity.WARNING:
            log.warning("%s", finding)
