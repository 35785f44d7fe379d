"""Traces of a job's epochs, and its metrics, sent by OTLP over HTTP. Needs the extra ``otel``.

Invariants: spans are made of an epoch's statistics, after its end and on the statistics' thread,
and OpenTelemetry's own threads send them. So nothing here takes time of an epoch, and a receiver
that is away costs the spans that it misses. The program's own tracer provider is left alone.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from re import match
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from seamark.checkpoint.upkeep import Upkeep
from seamark.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    SubtaskCheckpointStatistics,
)
from seamark.model.packages import VERSION
from seamark.model.phases import phases
from seamark.rest.live_job import LiveJob
from seamark.rest.metrics import BUCKETS_S, METRICS, JobMetrics

PLANNING = ("latestOffset", "walCommit", "getBatch", "queryPlanning")
"""Spark's durations before it hands an epoch over, which triggers it."""
MOST_TASKS = 100
"""The slowest tasks of an epoch have a span; `seamark.tasks` counts all."""
CLOSE_S = 5.0
"""The longest wait, at the end of a job, for the receiver."""
FRESH_S = 1.0
"""All instruments of one export read the same values, made at most this long ago."""
Row = Sequence[SubtaskCheckpointStatistics]


class Otlp:
    """Sends one job's `signals`, TRACES and METRICS, until `close`; made before its first epoch."""

    def __init__(self, job: LiveJob, signals: Sequence[str]) -> None:
        self._job = job
        self._upkeep = Upkeep()
        # The variables' name of the service goes before the job's.
        own = Resource.create({"service.name": job.name})
        resource = own.merge(OTELResourceDetector().detect())
        self._providers: list[TracerProvider | MeterProvider] = []
        if "TRACES" in signals:
            traces = TracerProvider(resource=resource, shutdown_on_exit=False)
            traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            self._tracer = traces.get_tracer("seamark", VERSION)
            self._providers.append(traces)
            job.flow.listen(partial(self._spared, self._trace))
        if "METRICS" in signals:
            self._metrics = JobMetrics(job)
            self._values: Mapping[str, list[Observation]] = {}
            self._made_s = -FRESH_S
            reader = PeriodicExportingMetricReader(OTLPMetricExporter())
            meters = MeterProvider([reader], resource, shutdown_on_exit=False)
            self._instruments(meters.get_meter("seamark", VERSION))
            self._providers.append(meters)
            job.flow.listen(partial(self._spared, self._measure))

    def close(self) -> None:
        """Send what is left; return after CLOSE_S at the latest."""
        ends = [threading.Thread(target=one.shutdown, daemon=True) for one in self._providers]
        until_s = time.monotonic() + CLOSE_S
        for thread in ends:
            thread.start()
        for thread in ends:
            thread.join(max(until_s - time.monotonic(), 0))

    def _spared(self, send: Callable[[CheckpointStatistics], None], done: Any) -> None:
        with self._upkeep.spared("an epoch for OpenTelemetry"):
            send(done)

    # --- traces

    def _trace(self, done: CheckpointStatistics) -> None:
        """Make the spans of one ended epoch."""
        begun, whole = done.trigger_timestamp, max(done.end_to_end_duration, 0)
        planned = sum(max(done.spark_durations.get(name, 0), 0) for name in PLANNING)
        root = self._span(
            "checkpoint", None, begun - planned,
            epoch=done.id, generation=self._job.origin()[0], outcome=done.status.value,
            rows=done.rows, bytes=done.processed_data, checkpoint_bytes=done.checkpointed_size,
            state_bytes=done.state_size, unaligned=done.unaligned,
        )  # fmt: skip
        if not root.is_recording():  # the sampler left this epoch out
            return
        if planned:
            self._ended("plan", root, begun - planned, begun)
        if done.sync_duration >= 0:
            self._tasks(root, done)
        if done.status is CheckpointStatus.COMPLETED:
            decided = begun + whole - max(done.async_duration, 0)
            self._ended("decide", root, begun + max(done.sync_duration, 0), decided)
            self._commits(root, done, decided, begun + whole)
        else:
            class_name = match(r"\w+(?:Error|Exception)\b", done.failure_message)
            root.set_attribute("error.type", class_name[0] if class_name else "_OTHER")
            root.set_status(Status(StatusCode.ERROR, done.failure_message))
        root.end((begun + whole) * 1_000_000)

    def _tasks(self, root: Span, done: CheckpointStatistics) -> None:
        """Make the span of all tasks, and one for each of the slowest."""
        begun, end = done.trigger_timestamp, done.trigger_timestamp + done.sync_duration
        sinks = (task.subtasks for task in done.tasks if task.kind == "sink")
        by_task: list[Row] = list(zip(*sinks, strict=True))  # each task is a subtask of every sink
        parent = self._ended("process and pre-commit", root, begun, end, tasks=len(by_task))
        for row in sorted(by_task, key=_took_ms, reverse=True)[:MOST_TASKS]:
            start = begun + max(row[0].start_delay, 0)
            self._ended(
                "task", parent, start, start + _took_ms(row),
                partition=row[0].index, rows=sum(part.rows for part in row),
                bytes=sum(part.processed_data for part in row),
                pre_commit_ms=sum(max(part.sync_duration, 0) for part in row),
            )  # fmt: skip

    def _commits(self, root: Span, done: CheckpointStatistics, start: int, end: int) -> None:
        """Make the span of the commit, and one for each sink: they commit one after another, and
        the wait before the first is not told from the rest of the time."""
        parent = self._ended("commit", root, start, end)
        sinks = [(sink, max(sink.async_duration, 0)) for sink in done.tasks if sink.kind == "sink"]
        at = max(end - sum(took_ms for _, took_ms in sinks), start)
        for sink, took_ms in sinks:
            self._ended(
                "commit sink", parent, at, min(at + took_ms, end),
                sink=sink.uid, rows=sink.rows, bytes=sink.processed_data, outcome="COMMITTED",
            )  # fmt: skip
            at = min(at + took_ms, end)

    def _span(self, name: str, parent: Span | None, start_ms: int, **attributes: Any) -> Span:
        context = Context() if parent is None else set_span_in_context(parent)
        own = {"job.name": self._job.name, "job.id": self._job.job_id(), **attributes}
        named = {f"seamark.{key}": value for key, value in own.items()}
        return self._tracer.start_span(
            name, context, attributes=named, start_time=start_ms * 1_000_000
        )

    def _ended(self, name: str, parent: Span, start: int, end: int, **attributes: Any) -> Span:
        span = self._span(name, parent, start, **attributes)
        span.end(max(start, end) * 1_000_000)
        return span

    # --- metrics, with the names and values of the Prometheus page

    def _instruments(self, meter: Any) -> None:
        self._durations = []
        for metric, text in METRICS.items():
            kind, short = metric.split()
            name = f"seamark_{short}"
            if kind == "histogram":
                bounds = {"explicit_bucket_boundaries_advisory": BUCKETS_S}
                self._durations.append(meter.create_histogram(name, description=text, **bounds))
                continue
            counts = {"counter": meter.create_observable_counter}
            make = counts.get(kind, meter.create_observable_gauge)
            shown = f"{name}_info" if kind == "info" else name
            make(shown, callbacks=[partial(self._observed, name)], description=text)

    def _observed(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        if time.monotonic() - self._made_s >= FRESH_S:
            self._made_s = time.monotonic()
            with self._upkeep.spared("metrics for OpenTelemetry"):
                self._values = {
                    family.name: [Observation(one.value, one.labels) for one in family.samples]
                    for family in self._metrics.collect()
                }
        return self._values.get(name, ())

    def _measure(self, done: CheckpointStatistics) -> None:
        """Record the durations of a completed checkpoint."""
        if done.status is not CheckpointStatus.COMPLETED:
            return
        whole, phase = self._durations  # in the order of METRICS
        of_job = {"job_id": self._job.job_id(), "job_name": self._job.name}
        whole.record(done.end_to_end_duration / 1e3, of_job)
        for name, took_ms in asdict(phases(done)).items():
            phase.record(max(took_ms, 0) / 1e3, {**of_job, "phase": name})


def _took_ms(row: Row) -> int:
    return max(row[0].end_to_end_duration - max(row[0].start_delay, 0), 0)
