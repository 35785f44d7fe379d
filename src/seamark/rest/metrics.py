"""The Prometheus metrics of a job, made when they are asked for; ``GET /metrics`` in the driver.

docs/operations/metrics.md lists each with its meaning and Flink's name. Nothing is read from the
storage: the figures are those that the coordinator and `FlowFigures` have in memory.
"""

from __future__ import annotations

import importlib.metadata
import time
from bisect import bisect_left
from collections.abc import Iterator
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

from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.job_state import JobState
from seamark.model.phases import Phases, phases
from seamark.rest.part_metrics import JOB_LABELS, of_parts, of_transactions
from seamark.rest.views import JobView
from seamark.runtime.failures import CheckpointFailureReason

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
PHASES = tuple(phase.name for phase in fields(Phases))


@dataclass
class Durations:
    """How many durations fell below each bound, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0

    def add(self, duration_ms: int) -> None:
        """Count one; -1, which is not known, is left out."""
        if duration_ms >= 0:
            self.counts[bisect_left(BUCKETS_S, duration_ms / 1e3)] += 1
            self.sum_s += duration_ms / 1e3

    def buckets(self) -> list[tuple[str, float]]:
        """Return for each bound how many durations are no longer, as Prometheus counts them."""
        bounds, total, found = [*map(str, map(float, BUCKETS_S)), "+Inf"], 0, []
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class JobMetrics(Collector):
    """Collects one job's metrics, from the moment that it is made."""

    def __init__(self, job: JobView) -> None:
        self._job = job
        self._registry = CollectorRegistry()
        self._whole = Durations()
        self._phases = {name: Durations() for name in PHASES}
        self._registry.register(self)
        job.flow.listen(self._observe)

    def page(self, accept: str | None) -> tuple[bytes, str]:
        """Return the metrics in a form that an ``Accept`` header asks for, and its media type."""
        encode, media_type = choose_encoder(accept or "")
        return encode(self._registry), media_type

    def _observe(self, checkpoint: CheckpointStatistics) -> None:
        if checkpoint.status is CheckpointStatus.COMPLETED:
            self._whole.add(checkpoint.end_to_end_duration)
            for name, duration_ms in asdict(phases(checkpoint)).items():
                self._phases[name].add(duration_ms)

    def describe(self) -> Iterator[Family]:
        """Nothing: what there is depends on the job, and no other collector is in the registry."""
        return iter(())

    def collect(self) -> Iterator[Family]:
        """Yield every metric; called by the registry for each scrape."""
        labels = (self._job.job_id(), self._job.name)
        yield from self._of_the_job(labels)
        yield from self._of_checkpoints(labels)
        yield from self._of_the_last_checkpoint(labels)
        yield from of_parts(self._job, labels)
        yield from of_transactions(self._job, labels)

    # --- the job

    def _of_the_job(self, labels: tuple[str, str]) -> Iterator[Family]:
        job = self._job
        info = InfoMetricFamily("seamark_job", "What runs the job.", labels=JOB_LABELS)
        info.add_metric(labels, {"version": importlib.metadata.version("seamark")})
        yield info
        state = GaugeMetricFamily(
            "seamark_job_state",
            "1 for the state that the job is in.",
            labels=(*JOB_LABELS, "state"),
        )
        now = job.state()
        for each in JobState:
            if each is not JobState.UNREACHABLE:  # a driver that answers is not
                state.add_metric((*labels, each.value), float(each is now))
        yield state
        supervisor = job.supervisor()
        yield _gauge(
            "seamark_job_uptime_seconds",
            "Time since this driver began to run the job.",
            labels,
            time.time() - job.started_at(),
        )
        yield _counter(
            "seamark_job_restarts",
            "Restarts by the restart strategy in this driver.",
            labels,
            job.restarts(),
        )
        yield _gauge(
            "seamark_job_restarting_seconds",
            "Time since the failure that the job has not come back from; 0 while it runs.",
            labels,
            supervisor.restarting_s,
        )

    # --- checkpoints

    def _of_checkpoints(self, labels: tuple[str, str]) -> Iterator[Family]:
        job, flow = self._job, self._job.flow
        coordinator = job.supervisor().coordinator
        begun = coordinator.epochs.in_progress() if coordinator is not None else []
        now_s = time.monotonic()
        for name, text, value in (
            ("interval", "Time between the starts of two checkpoints.", job.checkpoint.interval_s),
            ("timeout", "After this long a checkpoint fails.", job.checkpoint.timeout_s),
        ):
            yield _gauge(f"seamark_job_checkpoint_{name}_seconds", text, labels, value)
        yield _gauge(
            "seamark_job_checkpoints_in_progress",
            "Checkpoints that were triggered and are not committed.",
            labels,
            len(begun),
        )
        yield _gauge(
            "seamark_job_checkpoint_oldest_in_progress_seconds",
            "Time since the trigger of the oldest checkpoint in progress; 0 if there is none.",
            labels,
            max((now_s - progress.started_s for progress in begun), default=0.0),
        )
        yield _counter(
            "seamark_job_checkpoints_triggered",
            "Checkpoints that this driver has begun.",
            labels,
            flow.triggered,
        )
        yield _counter(
            "seamark_job_checkpoints_completed",
            "Checkpoints that this driver has decided and committed to every sink.",
            labels,
            flow.completed,
        )
        yield _counter(
            "seamark_job_checkpoints_failed",
            "Checkpoints of this driver that failed, for whatever reason; they run again.",
            labels,
            flow.failed,
        )
        failures = CounterMetricFamily(
            "seamark_job_checkpoint_failures",
            "Failed checkpoints that tolerable_failed_checkpoints counts, by reason.",
            labels=(*JOB_LABELS, "reason"),
        )
        reasons = [failed.reason for failed in job.supervisor().failed_checkpoints]
        for reason in CheckpointFailureReason:
            failures.add_metric((*labels, reason.name), reasons.count(reason))
        yield failures
        whole = HistogramMetricFamily(
            "seamark_job_checkpoint_duration_seconds",
            "From the trigger until every sink has committed.",
            labels=JOB_LABELS,
        )
        whole.add_metric(labels, self._whole.buckets(), self._whole.sum_s)
        yield whole
        each = HistogramMetricFamily(
            "seamark_job_checkpoint_phase_duration_seconds",
            "The phases of a checkpoint, which follow one another.",
            labels=(*JOB_LABELS, "phase"),
        )
        for name, durations in self._phases.items():
            each.add_metric((*labels, name), durations.buckets(), durations.sum_s)
        yield each

    def _of_the_last_checkpoint(self, labels: tuple[str, str]) -> Iterator[Family]:
        last = self._job.flow.last_completed
        if last is not None:
            ended_ms = last.trigger_timestamp + max(last.end_to_end_duration, 0)
            for name, text, value in (
                ("id", "Its epoch.", float(last.id)),
                ("completed_timestamp_seconds", "When it completed.", ended_ms / 1e3),
                ("duration_seconds", "Trigger to commit.", last.end_to_end_duration / 1e3),
                ("size_bytes", "What it added to the storage.", last.checkpointed_size),
                ("full_size_bytes", "What a restore of it reads.", last.state_size),
                ("processed_data_bytes", "What its tasks wrote to sinks.", last.processed_data),
                ("persisted_data_bytes", "In-flight data stored in it.", last.persisted_data),
            ):
                yield _gauge(
                    f"seamark_job_last_checkpoint_{name}",
                    f"Of the last completed checkpoint. {text}",
                    labels,
                    value,
                )
        coordinator = self._job.supervisor().coordinator
        restored = coordinator.statistics.restored if coordinator is not None else None
        if restored is not None:
            yield _gauge(
                "seamark_job_last_checkpoint_restore_timestamp_seconds",
                "When this driver last went on from a checkpoint.",
                labels,
                restored.restore_timestamp / 1e3,
            )


def _gauge(name: str, text: str, labels: tuple[str, str], value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=JOB_LABELS)
    family.add_metric(labels, value)
    return family


def _counter(name: str, text: str, labels: tuple[str, str], value: float) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=JOB_LABELS)
    family.add_metric(labels, value)
    return family
