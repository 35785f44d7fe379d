"""How: checkpoints as the recorder hands them over, a receiver of OTLP/HTTP that parses what the
SDK sends, and receivers that are away or hang. A real job sends to the same receiver in
tests/spark/operations/test_telemetry.py."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seamark.dev.java_server import free_ports
from seamark.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    SubtaskCheckpointStatistics,
    TaskCheckpointStatistics,
)
from seamark.rest.metrics import JobMetrics
from seamark.rest.telemetry import begin_telemetry
from tests.servers.otlp import OtlpReceiver, otlp_receiver, values
from tests.unit.rest.test_answers import JOB_ID, live_job

TRIGGERED_MS = 1_700_000_000_000
PLANNING = {"latestOffset": 30, "walCommit": 15, "getBatch": 4, "queryPlanning": 1, "addBatch": 300}


def sink(uid: str, commit_ms: int, *writing_ms: int) -> TaskCheckpointStatistics:
    """A sink with a subtask for each of `writing_ms`: begun at 20 ms, each 50 ms longer."""
    subtasks = [
        SubtaskCheckpointStatistics(
            index=index, start_delay=20, end_to_end_duration=70 + 50 * index, rows=10,
            processed_data=1000, sync_duration=took_ms,
        )
        for index, took_ms in enumerate(writing_ms)
    ]  # fmt: skip
    return TaskCheckpointStatistics(
        uid, "sink", f"{uid} at kafka:9092", CheckpointStatus.COMPLETED, subtasks=subtasks,
        async_duration=commit_ms, rows=10 * len(subtasks), processed_data=1000 * len(subtasks),
    )  # fmt: skip


def completed(epoch: int = 7) -> CheckpointStatistics:
    """200 ms of tasks, 40 ms until the decision, 60 ms of commits."""
    return CheckpointStatistics(
        id=epoch, status=CheckpointStatus.COMPLETED, trigger_timestamp=TRIGGERED_MS,
        end_to_end_duration=300, sync_duration=200, async_duration=60, rows=40,
        processed_data=4000, checkpointed_size=512, state_size=2048, spark_durations=PLANNING,
        tasks=(sink("orders", 30, 8, 9), sink("audit", 20, 1, 2)), num_subtasks=4,
    )  # fmt: skip


def failed(message: str) -> CheckpointStatistics:
    return CheckpointStatistics(
        id=8, status=CheckpointStatus.FAILED, trigger_timestamp=TRIGGERED_MS,
        end_to_end_duration=150, failure_timestamp=TRIGGERED_MS + 150, failure_message=message,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with otlp_receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        yield found


def span_ms(span: object) -> tuple[int, int]:
    """Return start and end after the trigger."""
    start, end = span.start_time_unix_nano, span.end_time_unix_nano  # type: ignore[attr-defined]
    return start // 10**6 - TRIGGERED_MS, end // 10**6 - TRIGGERED_MS


def test_an_epoch_is_a_trace(receiver: OtlpReceiver, tmp_path: Path) -> None:
    job = live_job(tmp_path)
    close = begin_telemetry(job)
    job.flow.add(completed())
    close()
    (root,) = receiver.named("checkpoint")
    assert root.parent_span_id == b""
    assert span_ms(root) == (-50, 300)
    assert values(root.attributes) == {
        "seamark.job.name": "clicks", "seamark.job.id": JOB_ID, "seamark.epoch": 7,
        "seamark.generation": 2, "seamark.outcome": "COMPLETED", "seamark.rows": 40,
        "seamark.bytes": 4000, "seamark.checkpoint_bytes": 512, "seamark.state_bytes": 2048,
        "seamark.unaligned": False,
    }  # fmt: skip
    phases = receiver.below(root)
    assert [(span.name, span_ms(span)) for span in phases] == [
        ("plan", (-50, 0)),
        ("process and pre-commit", (0, 200)),
        ("decide", (200, 240)),
        ("commit", (240, 300)),
    ]
    tasks = receiver.below(phases[1])
    assert sorted((span.name, *span_ms(span)) for span in tasks) == [
        ("task", 20, 70),
        ("task", 20, 120),
    ]
    slowest = max(tasks, key=lambda span: span.end_time_unix_nano)
    found = values(slowest.attributes)
    assert found["seamark.partition"] == 1
    assert (found["seamark.rows"], found["seamark.bytes"]) == (20, 2000)
    assert found["seamark.pre_commit_ms"] == 9 + 2
    commits = receiver.below(phases[3])
    assert [
        (
            values(span.attributes)["seamark.sink"],
            *span_ms(span),
            values(span.attributes)["seamark.outcome"],
        )
        for span in commits
    ] == [("orders", 250, 280, "COMMITTED"), ("audit", 280, 300, "COMMITTED")]
    assert len({span.trace_id for span in receiver.spans}) == 1
    assert receiver.services == {"clicks"}


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("PreCommitError: sink 'orders' refused a row", "PreCommitError"),
        ("epoch 8 was not decided within 60 s", "_OTHER"),
    ],
)
def test_a_failed_epoch_has_its_reason(
    receiver: OtlpReceiver, tmp_path: Path, message: str, kind: str
) -> None:
    job = live_job(tmp_path)
    close = begin_telemetry(job)
    job.flow.add(failed(message))
    job.flow.add(completed())
    close()
    wrong, well = sorted(receiver.named("checkpoint"), key=lambda span: -span.status.code)
    assert (wrong.status.code, wrong.status.message) == (2, message)
    assert values(wrong.attributes)["error.type"] == kind
    assert span_ms(wrong) == (0, 150)
    assert receiver.below(wrong) == []
    assert well.status.code == 0
    assert wrong.trace_id != well.trace_id


def test_a_large_epoch_has_the_slowest_tasks(receiver: OtlpReceiver, tmp_path: Path) -> None:
    job = live_job(tmp_path)
    close = begin_telemetry(job)
    job.flow.add(
        CheckpointStatistics(
            id=1, status=CheckpointStatus.COMPLETED, trigger_timestamp=TRIGGERED_MS,
            end_to_end_duration=9999, sync_duration=9990, async_duration=1,
            tasks=(sink("orders", 1, *range(150)),),
        )
    )  # fmt: skip
    close()
    indexes = [values(span.attributes)["seamark.partition"] for span in receiver.named("task")]
    assert sorted(indexes) == list(range(50, 150))
    (parent,) = receiver.named("process and pre-commit")
    assert values(parent.attributes)["seamark.tasks"] == 150


def test_metrics_are_those_of_the_prometheus_page(
    receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Also the time that a collection may take; the end makes one.
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "60000")
    job = live_job(tmp_path)
    page, close = JobMetrics(job), begin_telemetry(job)
    job.flow.add(completed(1))
    job.flow.add(completed(2))
    close()
    families = list(text_string_to_metric_families(page.page(None)[0].decode()))
    assert len(families) > 30
    for family in families:
        if family.type == "histogram":
            shown = {
                s.labels.get("phase"): s.value for s in family.samples if s.name.endswith("_sum")
            }
            sent = {labels.get("phase"): p.sum for labels, p in receiver.points[family.name]}
            assert sent == pytest.approx(shown), family.name
            continue
        name = f"{family.name}_info" if family.type == "info" else family.name
        sent_rows = receiver.points.get(name, [])
        assert len(sent_rows) == len(family.samples), name
        for labels, point in sent_rows:
            (value,) = (s.value for s in family.samples if s.labels == labels)
            found = getattr(point, point.WhichOneof("value"))
            assert found == pytest.approx(value, abs=30), (name, labels)  # uptimes go on


def test_the_variables_name_the_service_and_switch_signals_off(
    receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    job = live_job(tmp_path)
    close = begin_telemetry(job)
    job.flow.add(completed())
    close()
    assert receiver.services == {"shop"}
    assert receiver.spans and not receiver.points
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    before = len(receiver.spans)
    close = begin_telemetry(job)
    job.flow.add(completed())
    close()
    assert len(receiver.spans) == before


@pytest.mark.parametrize("receiver_is", ["away", "hanging"])
def test_a_receiver_that_is_away_or_hangs_disturbs_nothing(
    receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver_is: str
) -> None:
    if receiver_is == "away":
        (port,) = free_ports(1)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    receiver.hangs = True
    job = live_job(tmp_path)
    close = begin_telemetry(job)
    begun_s = time.monotonic()
    for epoch in range(200):
        job.flow.add(completed(epoch))
    assert time.monotonic() - begun_s < 5
    assert job.flow.completed == 200
    ended_s = time.monotonic()
    close()
    assert time.monotonic() - ended_s < 8


def test_an_error_of_ours_costs_no_figure(
    receiver: OtlpReceiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = live_job(tmp_path)
    close = begin_telemetry(job)
    wrong = completed()
    object.__setattr__(wrong, "spark_durations", {"latestOffset": "no number"})
    job.flow.add(wrong)
    close()
    assert job.flow.completed == 1
    assert "an epoch for OpenTelemetry" in caplog.text


def test_without_an_endpoint_nothing_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.setitem(sys.modules, "seamark.rest.otlp", None)
    begin_telemetry(live_job(tmp_path))()


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "http://127.0.0.1:1",
            "pip install 'pyspark-seamark[otel]'",
        ),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "set it to 'http/protobuf'"),
    ],
)
def test_what_stands_in_the_way_is_a_warning_with_the_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    value: str,
    line: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv(variable, value)
    monkeypatch.delitem(sys.modules, "seamark.rest.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level(logging.WARNING):
        begin_telemetry(live_job(tmp_path))()
    (found,) = (record for record in caplog.records if record.name == "seamark.rest.telemetry")
    assert line in found.getMessage()
    assert found.levelno == logging.WARNING
