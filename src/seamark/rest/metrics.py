"""The Prometheus metrics of a job, made on demand; ``GET /metrics`` in the driver.

`METRICS` declares each metric; docs/operations/metrics.md lists it with its meaning and Flink's
name. Nothing is read from the storage: the coordinator and `FlowFigures` have the figures in
memory.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from seamark.checkpoint.flow_figures import CommitCounts, PartFigures
from seamark.checkpoint.task_reports import EpochProgress
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.guarantee import SinkWay
from seamark.model.job_state import OUTSIDE, JobState
from seamark.model.packages import VERSION
from seamark.model.phases import Phases, phases
from seamark.model.rates import WATERMARK
from seamark.rest.live_job import LiveJob
from seamark.run.failures import CheckpointFailureReason

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily

PROMETHEUS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "As text, or as OpenMetrics if the request asks for it.",
        "content": {
            media_type: {"schema": {"type": "string"}}
            for media_type in ("text/plain", "application/openmetrics-text")
        },
    }
}
"""The answer in the OpenAPI document."""
BUCKETS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 5, 10, 20, 60, 120, 300, 600),
)
"""A commit takes some milliseconds, an epoch may take minutes."""

_KINDS: Mapping[str, type[Any]] = {
    "info": InfoMetricFamily,
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}
_LAST = "Of the last completed checkpoint. "
METRICS = {
    "info job": "What runs the job.",
    "gauge job_state": "1 for the state that the job is in.",
    "gauge job_uptime_seconds": "Time since this driver began to run the job.",
    "counter job_restarts": "Restarts by the restart strategy in this driver.",
    "gauge job_restarting_seconds": (
        "Time since the failure that the job has not come back from; 0 while it runs."
    ),
    "gauge job_checkpoint_interval_seconds": "Time between the starts of two checkpoints.",
    "gauge job_checkpoint_timeout_seconds": "After this long a checkpoint fails.",
    "gauge job_checkpoints_in_progress": "Checkpoints that were triggered and are not committed.",
    "gauge job_checkpoint_oldest_in_progress_seconds": (
        "Time since the trigger of the oldest checkpoint in progress; 0 if there is none."
    ),
    "counter job_checkpoints_triggered": "Checkpoints that this driver has begun.",
    "counter job_checkpoints_completed": (
        "Checkpoints that this driver has decided and committed to every sink."
    ),
    "counter job_checkpoints_failed": (
        "Checkpoints of this driver that failed, for whatever reason; they run again."
    ),
    "counter job_checkpoint_failures": (
        "Failed checkpoints that tolerable_failed_checkpoints counts, by reason."
    ),
    "histogram job_checkpoint_duration_seconds": "From the trigger until every sink has committed.",
    "histogram job_checkpoint_phase_duration_seconds": (
        "The phases of a checkpoint, which follow one another."
    ),
    "gauge job_last_checkpoint_id": f"{_LAST}Its epoch.",
    "gauge job_last_checkpoint_completed_timestamp_seconds": f"{_LAST}When it completed.",
    "gauge job_last_checkpoint_duration_seconds": f"{_LAST}Trigger to commit.",
    "gauge job_last_checkpoint_size_bytes": f"{_LAST}What it added to the storage.",
    "gauge job_last_checkpoint_full_size_bytes": f"{_LAST}What a restore of it reads.",
    "gauge job_last_checkpoint_processed_data_bytes": f"{_LAST}What its tasks wrote to sinks.",
    "gauge job_last_checkpoint_persisted_data_bytes": f"{_LAST}In-flight data stored in it.",
    "gauge job_last_checkpoint_restore_timestamp_seconds": (
        "When this driver last went on from a checkpoint."
    ),
    "counter source_records_in": "Rows read.",
    "counter source_busy_seconds": "Time that it has worked.",
    "counter operator_records_updated": "Rows changed in its state.",
    "counter operator_busy_seconds": "Time that it has worked.",
    "counter sink_records_out": "Rows written, of completed checkpoints.",
    "counter sink_busy_seconds": "Time that it has worked.",
    "gauge source_pending_records": "Rows that the last checkpoint has left for later ones.",
    "counter sink_bytes_out": "Bytes written, as Arrow has them.",
    "gauge operator_state_rows": "Rows in its state.",
    "gauge operator_state_bytes": "What a restore of its state reads.",
    "counter operator_late_records_dropped": "Rows that came later than its watermark.",
    "gauge operator_watermark_timestamp_seconds": (
        "Its input is held to be complete up to this time."
    ),
    "gauge sink_pending_committables": "Flushed transactions that wait for their commit.",
    "counter sink_committables_successful": "Transactions committed after the decision.",
    "counter sink_committables_already_committed": (
        "Transactions that were found committed when their commit was repeated."
    ),
    "counter sink_committables_retried": (
        "Commits whose outcome was not known and that were asked for again."
    ),
    "counter sink_committables_failed": (
        "Decided transactions that are gone, or not known to be visible: the job fails."
    ),
    "counter sink_committables_rewritten": (
        "Decided transactions that were lost and written again from the spool."
    ),
    "counter sink_transactions_aborted": "Transactions of stored epochs that were not decided.",
    "counter sink_lingering_transactions_aborted": (
        "Transactions that a dead attempt or driver had left open."
    ),
    "gauge sink_accepted_losses": (
        "Epochs whose lost transactions an operator has accepted: for them no guarantee holds."
    ),
    "gauge sink_transaction_timeout_seconds": (
        "Its system aborts a transaction that is open for so long."
    ),
    "gauge sink_oldest_transaction_age_seconds": (
        "How long its oldest transaction can have been open; 0 if none is."
    ),
}
"""Each metric's text, by its kind and its name after ``seamark_``."""
_LABELS = {
    "job_state": "state",
    "job_checkpoint_failures": "reason",
    "job_checkpoint_phase_duration_seconds": "phase",
}
"""A metric's label beside the job's. A part's metrics have its kind as label, with its uid."""
_COUNTS = {
    "committed": "committables_successful",
    "already_committed": "committables_already_committed",
    "retried": "committables_retried",
    "lost": "committables_failed",
    "rewritten": "committables_rewritten",
    "aborted": "transactions_aborted",
    "lingering_aborted": "lingering_transactions_aborted",
}
Values = Mapping[str, Any]
"""A metric's value by its name; a metric with its own label has values by the label's value."""


@dataclass
class Durations:
    """The number of durations below each bound, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0

    def add(self, duration_ms: int) -> None:
        """Count one duration; -1 (not known) is left out."""
        if duration_ms >= 0:
            self.counts[bisect_left(BUCKETS_S, duration_ms / 1e3)] += 1
            self.sum_s += duration_ms / 1e3

    def buckets(self) -> list[tuple[str, float]]:
        """Return for each bound the number of durations up to it, as Prometheus counts."""
        bounds, total, counted = [*map(str, map(float, BUCKETS_S)), "+Inf"], 0, []
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            counted.append((bound, float(total)))
        return counted


class JobMetrics(Collector):
    """Collects one job's metrics, from its own creation on."""

    def __init__(self, job: LiveJob) -> None:
        self._job = job
        self._registry = CollectorRegistry()
        self._whole = Durations()
        self._phases = {phase.name: Durations() for phase in fields(Phases)}
        self._registry.register(self)
        job.flow.listen(self._observe)

    def page(self, accept: str | None) -> tuple[bytes, str]:
        """Return the metrics in the form an ``Accept`` header asks for, and its media type."""
        encode, media_type = choose_encoder(accept or "")
        return encode(self._registry), media_type

    def _observe(self, checkpoint: CheckpointStatistics) -> None:
        if checkpoint.status is CheckpointStatus.COMPLETED:
            self._whole.add(checkpoint.end_to_end_duration)
            for name, duration_ms in asdict(phases(checkpoint)).items():
                self._phases[name].add(duration_ms)

    def describe(self) -> Iterator[Family]:
        """Return nothing: the metrics depend on the job; the registry has no other collector."""
        return iter(())

    def collect(self) -> Iterator[Family]:
        """Yield every metric; called by the registry for each scrape."""
        job = self._job
        values = {
            **_of_the_job(job),
            "job_checkpoint_duration_seconds": self._whole,
            "job_checkpoint_phase_duration_seconds": self._phases,
            **_of_the_last_checkpoint(job),
            **_of_parts(job),
            **_of_transactions(job),
        }
        of_job = (job.job_id(), job.name)
        for metric, text in METRICS.items():
            kind, name = metric.split()
            if name not in values:
                continue
            part = name.partition("_")[0]
            label = _LABELS.get(name, "") if part == "job" else part
            labels = ("job_id", "job_name", label) if label else ("job_id", "job_name")
            family = _KINDS[kind](f"seamark_{name}", text, labels=labels)
            for key, value in (values[name] if label else {"": values[name]}).items():
                where = (*of_job, key) if label else of_job
                if isinstance(value, Durations):
                    family.add_metric(where, value.buckets(), value.sum_s)
                else:
                    family.add_metric(where, value)
            yield family


def _of_the_job(job: LiveJob) -> Values:
    run, flow = job.supervisor(), job.flow
    failures = Counter(failed.reason for failed in run.failed_checkpoints)
    return {
        "job": {"version": VERSION},
        "job_state": {
            each.value: float(each is run.state)
            for each in JobState
            if each not in OUTSIDE  # this driver answers
        },
        "job_uptime_seconds": time.time() - run.started_at,
        "job_restarts": run.restarts,
        "job_restarting_seconds": run.restarting_s,
        "job_checkpoint_interval_seconds": job.checkpoint.interval_s,
        "job_checkpoint_timeout_seconds": job.checkpoint.timeout_s,
        "job_checkpoints_in_progress": len(_under_way(job)),
        "job_checkpoint_oldest_in_progress_seconds": _oldest_s(job),
        "job_checkpoints_triggered": flow.triggered,
        "job_checkpoints_completed": flow.completed,
        "job_checkpoints_failed": flow.failed,
        "job_checkpoint_failures": {each.name: failures[each] for each in CheckpointFailureReason},
    }


def _under_way(job: LiveJob) -> Sequence[EpochProgress]:
    return () if job.coordinator is None else job.coordinator.epochs.in_progress()


def _oldest_s(job: LiveJob) -> float:
    """Return how long ago the oldest epoch under way began; 0 if none is."""
    now_s = time.monotonic()
    return max((now_s - progress.started_s for progress in _under_way(job)), default=0.0)


def _of_the_last_checkpoint(job: LiveJob) -> Values:
    last, values = job.flow.last_completed, {}
    if last is not None:
        ended_ms = last.trigger_timestamp + max(last.end_to_end_duration, 0)
        values = {
            "id": float(last.id),
            "completed_timestamp_seconds": ended_ms / 1e3,
            "duration_seconds": last.end_to_end_duration / 1e3,
            "size_bytes": last.checkpointed_size,
            "full_size_bytes": last.state_size,
            "processed_data_bytes": last.processed_data,
            "persisted_data_bytes": last.persisted_data,
        }
    restored = job.coordinator.statistics.restored if job.coordinator is not None else None
    if restored is not None:
        values["restore_timestamp_seconds"] = restored.restore_timestamp / 1e3
    return {f"job_last_checkpoint_{name}": value for name, value in values.items()}


def _of_parts(job: LiveJob) -> Values:
    """Return the figures of the parts of the job's graph."""
    of: dict[str, dict[str, PartFigures]] = {"source": {}, "operator": {}, "sink": {}}
    for part in job.graph.vertices:
        of[part.kind][part.id] = job.flow.of(part.id)
    sources, operators, sinks = of.values()

    def last(metric: str, unit: float = 1.0) -> Values:
        known = {uid: part.metrics.get(metric) for uid, part in operators.items()}
        return {uid: value * unit for uid, value in known.items() if value is not None}

    values: dict[str, Values] = {
        f"{kind}_busy_seconds": {
            uid: part.busy_ms / 1e3 for uid, part in parts.items() if part.busy_ms is not None
        }
        for kind, parts in of.items()
    }
    return values | {
        "source_records_in": {uid: part.rows for uid, part in sources.items()},
        "operator_records_updated": {uid: part.rows for uid, part in operators.items()},
        "sink_records_out": {uid: part.rows for uid, part in sinks.items()},
        "source_pending_records": {
            uid: part.lag for uid, part in sources.items() if part.lag is not None
        },
        "sink_bytes_out": {uid: part.data_bytes for uid, part in sinks.items()},
        "operator_state_rows": last("numRowsTotal"),
        "operator_state_bytes": {uid: part.state_bytes for uid, part in operators.items()},
        "operator_late_records_dropped": {uid: part.late_rows for uid, part in operators.items()},
        "operator_watermark_timestamp_seconds": last(WATERMARK, 1e-3),
    }


def _of_transactions(job: LiveJob) -> Values:
    pending = job.coordinator.pending_committables() if job.coordinator is not None else {}
    sinks = {uid: declared.sink for uid, declared in job.declaration.sinks.items()}
    counts = {uid: job.flow.commits.get(uid, CommitCounts()) for uid in sinks}
    losses = Counter(loss.sink for loss in job.losses())
    limits = {
        uid: float(limit)
        for uid, sink in sinks.items()
        if sink.way is SinkWay.TWO_PHASE_COMMIT
        and (limit := sink.transaction_timeout_s) is not None
    }
    return {
        "sink_pending_committables": {uid: pending.get(uid, 0) for uid in sinks},
        **{
            f"sink_{name}": {uid: getattr(count, attribute) for uid, count in counts.items()}
            for attribute, name in _COUNTS.items()
        },
        "sink_accepted_losses": {uid: losses[uid] for uid in sinks},
        "sink_transaction_timeout_seconds": limits,
        "sink_oldest_transaction_age_seconds": dict.fromkeys(limits, _oldest_s(job)),
    }
