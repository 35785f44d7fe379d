"""TLS, passwords and access control, on a broker with all of them on.

How: rows go over its SASL_SSL listener, and are read over one without limits. A whole job is killed
twice, so that its recovery commits and aborts over TLS too; then every file left by it is searched
for its password.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

import seamark as sm
from seamark.cli.main import app
from seamark.model.errors import PreflightError, WriteRefusedError
from seamark.model.findings import errors
from seamark.sinks.kafka import KafkaSink, native_library
from seamark.spark.session import require_format, spark_session
from tests.chaos.scenario import PassthroughScenario
from tests.chaos.workload import PARTITIONS
from tests.integration.jobs.test_write_stream import StreamScenario
from tests.integration.kafka import sink_kit as kit
from tests.servers.secure_kafka import PASSWORD, POOR_PASSWORD, POOR_USER, SecureKafka


def test_a_source_names_the_topic_that_it_may_not_read(secure: SecureKafka) -> None:
    spark = spark_session("test-sink-secure")
    require_format(spark, "kafka")
    name = topic(secure, "seen-")

    def errors_of(*topics: str) -> list[str]:
        source = sm.KafkaSource(secure.servers, topics=topics, options=secure.spark())
        return [str(one) for one in errors(source.inspect_source("in", spark._jvm, 60))]

    secure.grant("TOPIC", "seen-", "DESCRIBE")
    unread, gone = errors_of(name, "t-none")[::-1]
    assert f"not authorised to read topic '{name}'; grant READ on it" in unread
    assert "'t-none' does not exist" in gone
    secure.grant("TOPIC", "seen-", "READ")
    assert errors_of(name) == []


POOR = {"user": POOR_USER, "password": POOR_PASSWORD}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with SecureKafka(tmp_path_factory.mktemp("secure")) as broker:
        broker.grant("GROUP", "spark-kafka-source", "READ")
        for resource, operations in (
            ("TOPIC", ("READ", "WRITE")),
            ("TRANSACTIONAL_ID", ("WRITE",)),
        ):
            for name in ("t-", "passthrough-", "location-"):
                broker.grant(resource, name, *operations)
        yield broker


def topic(secure: SecureKafka, prefix: str = "t-") -> str:
    return secure.create_topic(f"{prefix}{uuid.uuid4().hex[:8]}", 2)


def sink_on(secure: SecureKafka, name: str | None, **client: str) -> KafkaSink:
    options = secure.client(**client)
    prefix = name or f"t-{uuid.uuid4().hex[:8]}"
    return KafkaSink(
        secure.servers, topic=name, transactional_id_prefix=prefix, producer_options=options
    )


def preflight(sink: KafkaSink) -> None:
    with kit.committing(sink, kit.driver(kit.new_job()), preflight=True):
        pass


@pytest.mark.parametrize(("mechanism", "by_row"), [("PLAIN", False), ("SCRAM-SHA-512", True)])
def test_every_step_of_the_protocol_over_tls_with_a_password(
    secure: SecureKafka, mechanism: str, by_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_row:
        monkeypatch.setattr(native_library, "load", lambda: None)
    name = topic(secure)
    sink = sink_on(secure, name, mechanism=mechanism)
    kit.every_step_of_the_protocol(sink, secure.cluster.bootstrap_servers, name)


def test_a_wrong_password_is_said_soon_and_not_shown(
    secure: SecureKafka, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sink = sink_on(secure, topic(secure), password="wr0ng-" + PASSWORD)
    started = time.monotonic()
    with pytest.raises(PreflightError, match=r"(?i)authentication.*sasl\.\*") as caught:
        preflight(sink)
    assert time.monotonic() - started < 60
    for shown in (str(caught.value), caplog.text, repr(sink)):
        assert PASSWORD not in shown


def test_a_certificate_of_an_unknown_authority(secure: SecureKafka) -> None:
    options = secure.client()
    del options["ssl.ca.location"]
    sink = KafkaSink(
        secure.servers, topic="t-x", transactional_id_prefix="t-x", producer_options=options
    )
    with pytest.raises(PreflightError, match=r"certificate verify failed.*ssl\.\*"):
        preflight(sink)


def test_each_missing_permission_is_named_with_what_to_grant(secure: SecureKafka) -> None:
    name = topic(secure, "poor-")
    sink = sink_on(secure, name, **POOR)

    def refused(match: str) -> None:
        with pytest.raises(PreflightError, match=f"sink `{kit.UID}`: {match}"):
            preflight(sink)

    refused(f"not authorised for topic '{name}'; grant DESCRIBE and WRITE on it")
    secure.grant("TOPIC", "poor-", "DESCRIBE", user=POOR_USER)
    refused(f"not authorised to write topic '{name}'; grant WRITE on it")
    every = [one.code.name for one in errors(sink.inspect(kit.driver("x")))]
    assert every == ["SV003"] * 2  # topic, transactional ids
    secure.grant("TOPIC", "poor-", "WRITE", user=POOR_USER)
    refused(rf"not authorised for transactional ids that begin with '{name}'; grant WRITE.*PREFIX")
    secure.grant("TRANSACTIONAL_ID", "poor-", "DESCRIBE", user=POOR_USER)
    refused(r"not authorised for transactional ids")
    secure.grant("TRANSACTIONAL_ID", "poor-", "WRITE", user=POOR_USER)
    preflight(sink)


def test_a_write_without_permission_says_what_to_grant(
    secure: SecureKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(secure, "bare-")
    sink = sink_on(secure, name, **POOR)
    secure.grant("TOPIC", "bare-", "DESCRIBE", user=POOR_USER)
    secure.grant("TRANSACTIONAL_ID", "bare-", "WRITE", user=POOR_USER)
    for _ in ("the fast producer", "the general one"):
        with pytest.raises(WriteRefusedError, match=rf"{name}.*grant WRITE and DESCRIBE on the to"):
            kit.prepare(sink, kit.attempt(kit.new_job()), range(10))
        monkeypatch.setattr(native_library, "load", lambda: None)


@pytest.mark.parametrize(
    "execution", ["micro-batch", pytest.param("real-time", marks=pytest.mark.chaos)]
)
def test_a_job_killed_and_recovered_shows_its_password_nowhere(
    secure: SecureKafka, tmp_path: Path, execution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "source_options": secure.spark(), "producer_options": secure.spark(), "log_level": "INFO",
    }  # fmt: skip
    if execution == "real-time":  # each partition needs a core, and Java's client logs in
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master local[{PARTITIONS},4] pyspark-shell")
        options |= {"execution": execution, "interval": "2s"}
    plain = secure.cluster.bootstrap_servers
    with PassthroughScenario(tmp_path, plain, **options) as scenario:
        scenario.options["servers"] = secure.servers
        driver = scenario.die_at_each(["prepared:2", "sealed:2"])
        scenario.finish(driver)
        assert scenario.open_transactions() == []
    logs = [path.read_bytes() for path in tmp_path.glob("driver-*.log")]
    assert any(b"ConsumerConfig values" in log for log in logs), "Spark did not log at INFO"
    java = any(b"ProducerConfig values" in log for log in logs)
    assert java is (execution == "real-time"), "the rows were written by the other client"
    require_no_password(tmp_path)


def test_a_write_stream_has_its_credentials_once_and_shows_them_nowhere(
    secure: SecureKafka, tmp_path: Path
) -> None:
    plain = secure.cluster.bootstrap_servers
    with StreamScenario(tmp_path, plain, "rows", secured=secure.spark()) as scenario:
        scenario.options["servers"] = secure.servers
        driver = scenario.die_at_each(["prepared:2", "sealed:2"])
        scenario.drain(driver)
        driver.stop()
        assert scenario.written() == Counter((row.key, row.value) for row in scenario.feeder.rows)
        assert scenario.open_transactions() == []
    require_no_password(tmp_path)


def require_no_password(tmp_path: Path) -> None:
    searched = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(searched) > 20
    assert [str(path) for path in searched if PASSWORD.encode() in path.read_bytes()] == []


def test_offsets_are_moved_over_tls_with_a_password(secure: SecureKafka, tmp_path: Path) -> None:
    name, storage = topic(secure), f"file://{tmp_path}/store"
    producer = Producer({"bootstrap.servers": secure.cluster.bootstrap_servers})
    for value in range(3):
        producer.produce(name, str(value))
    assert producer.flush(30) == 0
    source = sm.KafkaSource(secure.servers, topics=name, ending="latest", options=secure.spark())
    job = sm.Job("secure", sm.CheckpointConfig(storage=storage))
    rows = job.source(source, "in").select("offset")
    job.sink(rows, sm.FileSink(str(tmp_path / "out"), "json"), "out")
    job.run()
    settings = tmp_path / "client.properties"
    asked = [
        "offsets", "rewind", "secure", "--to-earliest", "--storage", storage, "--to",
        str(tmp_path / "copies/copy"), "--bootstrap-servers", secure.servers,
        "--command-config", str(settings),
    ]  # fmt: skip

    def rewound(**client: str) -> Any:
        lines = [f"{key}={value}" for key, value in secure.client(**client).items()]
        settings.write_text("# for librdkafka\n\n" + "\n".join(lines))
        return CliRunner().invoke(app, asked)

    wrong = rewound(password="wr0ng-" + PASSWORD)
    assert wrong.exit_code == 4, wrong.output
    assert "uthentication" in wrong.output and PASSWORD not in wrong.output
    assert not (tmp_path / "copies").exists()
    poor = rewound(user=POOR_USER, password=POOR_PASSWORD)
    assert poor.exit_code == 4 and name in poor.output, poor.output
    done = rewound()
    assert done.exit_code == 0 and "Up to 3 rows are read again" in done.output, done.output
    (moved,) = sm.Savepoint(str(tmp_path / "copies/copy")).record.sources
    assert moved.offset == {name: {"0": 0, "1": 0}}
    assert PASSWORD not in done.output


def test_reprs_show_no_password(secure: SecureKafka) -> None:
    source = sm.KafkaSource(secure.servers, topics=["t-x"], options=secure.spark())
    sink = sink_on(secure, "t-x")
    for shown in (repr(source), str(source), source.describe(), repr(sink), sink.describe()):
        assert PASSWORD not in shown
