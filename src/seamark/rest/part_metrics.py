"""The Prometheus metrics of a job's sources, operators and sinks; `metrics.py` has the job's own.

Their names are ``seamark_<kind>_<what>``, and the label of that kind has the part's uid.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from seamark.checkpoint.flow_figures import CommitCounts, PartFigures
from seamark.model.guarantee import SinkWay
from seamark.model.rates import WATERMARK
from seamark.rest.views import JobView

Family = CounterMetricFamily | GaugeMetricFamily
Labels = tuple[str, str]

JOB_LABELS = ("job_id", "job_name")
_STATE_ROWS = "numRowsTotal"
_COMMITTABLES = {
    "committed": (
        "committables_successful",
        "Transactions committed after the decision.",
    ),
    "already_committed": (
        "committables_already_committed",
        "Transactions that were found committed when their commit was repeated.",
    ),
    "retried": (
        "committables_retried",
        "Commits whose outcome was not known and that were asked for again.",
    ),
    "lost": (
        "committables_failed",
        "Decided transactions that are gone, or not known to be visible: the job fails.",
    ),
    "rewritten": (
        "committables_rewritten",
        "Decided transactions that were lost and written again from the spool.",
    ),
    "aborted": (
        "transactions_aborted",
        "Transactions of stored epochs that were not decided.",
    ),
    "lingering_aborted": (
        "lingering_transactions_aborted",
        "Transactions that a dead attempt or driver had left open.",
    ),
}


def of_parts(job: JobView, labels: Labels) -> Iterator[Family]:
    """Yield what flows through the parts of the job's graph."""
    of: dict[str, dict[str, PartFigures]] = {"source": {}, "operator": {}, "sink": {}}
    for part in job.graph.vertices:
        of[part.kind][part.id] = job.flow.of(part.id)
    for kind, name, text in (
        ("source", "records_in", "Rows read."),
        ("operator", "records_updated", "Rows changed in its state."),
        ("sink", "records_out", "Rows written, of completed checkpoints."),
    ):
        rows = {uid: part.rows for uid, part in of[kind].items()}
        yield _counter(kind, name, text, labels, rows)
        busy = {uid: p.busy_ms / 1e3 for uid, p in of[kind].items() if p.busy_ms is not None}
        yield _counter(kind, "busy_seconds", "Time that it has worked.", labels, busy)
    lags = {uid: part.lag for uid, part in of["source"].items() if part.lag is not None}
    text = "Rows that the last checkpoint has left for later ones."
    yield _gauge("source", "pending_records", text, labels, lags)
    written = {uid: part.data_bytes for uid, part in of["sink"].items()}
    yield _counter("sink", "bytes_out", "Bytes written, as Arrow has them.", labels, written)
    yield from _of_operators(of["operator"], labels)


def _of_operators(operators: Mapping[str, PartFigures], labels: Labels) -> Iterator[Family]:
    def last(metric: str, unit: float = 1.0) -> dict[str, float]:
        return {
            uid: part.metrics[metric] * unit
            for uid, part in operators.items()
            if metric in part.metrics
        }

    state = {uid: part.state_bytes for uid, part in operators.items()}
    late = {uid: part.late_rows for uid, part in operators.items()}
    yield _gauge("operator", "state_rows", "Rows in its state.", labels, last(_STATE_ROWS))
    yield _gauge("operator", "state_bytes", "What a restore of its state reads.", labels, state)
    text = "Rows that came later than its watermark."
    yield _counter("operator", "late_records_dropped", text, labels, late)
    text = "Its input is held to be complete up to this time."
    yield _gauge("operator", "watermark_timestamp_seconds", text, labels, last(WATERMARK, 1e-3))


def of_transactions(job: JobView, labels: Labels) -> Iterator[Family]:
    """Yield what becomes of the sinks' transactions."""
    coordinator = job.supervisor().coordinator
    pending = coordinator.pending_committables() if coordinator is not None else {}
    begun = coordinator.epochs.in_progress() if coordinator is not None else []
    sinks = {uid: declared.sink for uid, declared in job.declaration.sinks.items()}
    waiting = {uid: pending.get(uid, 0) for uid in sinks}
    text = "Flushed transactions that wait for their commit."
    yield _gauge("sink", "pending_committables", text, labels, waiting)
    counts = {uid: job.flow.commits.get(uid, CommitCounts()) for uid in sinks}
    for attribute, (name, text) in _COMMITTABLES.items():
        values = {uid: getattr(count, attribute) for uid, count in counts.items()}
        yield _counter("sink", name, text, labels, values)
    timeouts = {
        uid: getattr(sink, "transaction_timeout_s", None)
        for uid, sink in sinks.items()
        if sink.way is SinkWay.TWO_PHASE_COMMIT
    }
    limits = {uid: float(limit) for uid, limit in timeouts.items() if limit is not None}
    text = "Its system aborts a transaction that is open for so long."
    yield _gauge("sink", "transaction_timeout_seconds", text, labels, limits)
    oldest_s = max((time.monotonic() - progress.started_s for progress in begun), default=0.0)
    text = "How long its oldest transaction can have been open; 0 if none is."
    ages = dict.fromkeys(limits, oldest_s)
    yield _gauge("sink", "oldest_transaction_age_seconds", text, labels, ages)


def _gauge(
    kind: str, name: str, text: str, labels: Labels, values: Mapping[str, float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"seamark_{kind}_{name}", text, labels=(*JOB_LABELS, kind))
    for uid, value in values.items():
        family.add_metric((*labels, uid), value)
    return family


def _counter(
    kind: str, name: str, text: str, labels: Labels, values: Mapping[str, float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"seamark_{kind}_{name}", text, labels=(*JOB_LABELS, kind))
    for uid, value in values.items():
        family.add_metric((*labels, uid), value)
    return family
