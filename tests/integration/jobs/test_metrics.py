"""How: one job from Kafka through an operator to Kafka and files runs in a thread of the test, its
intake capped, to lag behind at first. Prometheus's own parser reads its driver's answers, in both
forms. Every query of the Grafana dashboard and the alert rules, and every metric on their page,
must be in an answer."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import functions as F

import seamark as sm
from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import wait_until
from tests.threads import RunningJob

OPERATIONS = Path(__file__).resolve().parents[3] / "docs/operations"
ROWS = 60
NAME = re.compile(r"\bseamark_(?:job|source|operator|sink)_[a-z_]+")

Samples = dict[str, dict[tuple[str, ...], float]]


def parsed(page: str, families: Callable[[str], Any]) -> Samples:
    """Return each sample's value, by the name and the labels beside the job's."""
    found: Samples = {}
    for family in families(page):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if not k.startswith("job_")}
            found.setdefault(sample.name, {})[tuple(labels.values())] = sample.value
    return found


class MeasuredJob(RunningJob):
    """The job of this file, and the answers of its driver."""

    def __init__(self, directory: Path, servers: str, topic: str, out: str) -> None:
        job = sm.Job(
            "metrics",
            sm.CheckpointConfig(storage=str(directory / "store"), interval="200ms", timeout="4min"),
        )
        source = sm.KafkaSource(servers, topic, options={"maxOffsetsPerTrigger": ROWS // 6})
        clicks = job.source(source, "clicks").withWatermark("timestamp", "1 minute")
        once = job.uid(clicks.dropDuplicatesWithinWatermark(["value"]), "once")
        sink = sm.KafkaSink(servers, out, transactional_id_prefix=out, transaction_timeout="5min")
        rows = once.select(F.col("value").cast("string").alias("value"))
        job.sink(rows, sink, "to-kafka")
        job.sink(rows, sm.FileSink(str(directory / "out"), format="json"), "files")
        super().__init__(job)

    def page(self, accept: str = "") -> str:
        assert self.error is None, self.error
        run = self.job._run
        if run is None:
            return ""
        request = urllib.request.Request(f"{run._rest_url}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=10) as page:
            return str(page.read().decode())

    def samples(self) -> Samples:
        return parsed(self.page(), text_string_to_metric_families)


@pytest.fixture(scope="module")
def running(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredJob]:
    from confluent_kafka.admin import AdminClient, NewTopic

    directory = tmp_path_factory.mktemp("metrics")
    topic, out = f"{directory.name}-in", f"{directory.name}-out"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, 2, 1), NewTopic(out, 2, 1)]).values():
        future.result(300)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(ROWS):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(30) == 0
    running = MeasuredJob(directory, kafka.bootstrap_servers, topic, out)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def samples(running: MeasuredJob) -> Samples:
    """The answer after all rows have arrived; on the way there the lag was seen."""
    lags = set()

    def arrived() -> Any:
        found = running.samples()
        lags.update(found.get("seamark_source_pending_records", {}).values())
        written = found.get("seamark_sink_records_out_total", {})
        return found if written.get(("files",), 0) >= ROWS and 0 in lags else None

    found: Samples = wait_until("every row is counted", arrived, 240, 0.04)
    assert len(lags) > 1, "the intake is capped: there was a lag"
    assert max(lags) < ROWS
    return found


def test_the_figures_are_those_of_the_run(samples: Samples) -> None:
    def of(name: str, *labels: str) -> float:
        return samples[f"seamark_{name}"][labels]

    assert of("job_state", "RUNNING") == 1
    assert of("job_state", "RESTARTING") == 0
    assert of("source_records_in_total", "clicks") == ROWS
    assert of("sink_records_out_total", "to-kafka") == ROWS
    assert of("sink_committables_successful_total", "to-kafka") >= 1
    assert of("sink_committables_failed_total", "to-kafka") == 0
    assert of("operator_state_rows", "once") == ROWS
    assert of("operator_watermark_timestamp_seconds", "once") > 1.7e9
    assert of("operator_busy_seconds_total", "once") > 0
    assert of("sink_busy_seconds_total", "files") > 0
    assert of("sink_transaction_timeout_seconds", "to-kafka") == 300
    assert ("files",) not in samples["seamark_sink_transaction_timeout_seconds"]
    assert 0 <= of("sink_oldest_transaction_age_seconds", "to-kafka") < 300
    completed = of("job_checkpoints_completed_total")
    assert completed >= 6
    assert of("job_checkpoint_duration_seconds_count") == completed
    phases = samples["seamark_job_checkpoint_phase_duration_seconds_sum"]
    assert sum(phases.values()) == pytest.approx(of("job_checkpoint_duration_seconds_sum"))
    assert of("job_checkpoint_interval_seconds") == pytest.approx(0.2)
    assert of("job_last_checkpoint_id") >= 5


def test_openmetrics_is_answered_to_who_asks_for_it(running: MeasuredJob, samples: Samples) -> None:
    page = running.page("application/openmetrics-text; version=1.0.0")
    assert page.endswith("# EOF\n")
    found = parsed(page, openmetrics_parser.text_string_to_metric_families)
    assert found.keys() >= samples.keys() - {"seamark_job_info"}


def test_every_metric_that_dashboard_and_alerts_ask_for_is_there(samples: Samples) -> None:
    dashboard = json.loads((OPERATIONS / "grafana-dashboard.json").read_text())
    asked = {
        *NAME.findall(json.dumps(dashboard)),
        *NAME.findall((OPERATIONS / "alerts.yml").read_text()),
    }
    assert len(asked) > 20
    assert asked - samples.keys() == set()


def test_the_page_of_metrics_has_all_of_them_and_no_others(running: MeasuredJob) -> None:
    page = (OPERATIONS / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(seamark_[a-z_]+)`", page, re.MULTILINE))
    families = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(running.page())
    }
    # Only a job restored, or started again, has gone on from a checkpoint.
    families.add("seamark_job_last_checkpoint_restore_timestamp_seconds")
    assert documented == families
