"""Jobs in real-time mode from Kafka to Kafka, killed with -9 in every window of an epoch.

An epoch is as long as the checkpoint interval, and rows flow all the while: a driver that dies
leaves open transactions nearly always. Each scenario feeds and reads without a break, and is judged
in the end: at-least-once, nothing may be lost; exactly-once, nothing lost, doubled, reordered
within a key, or shown too early.

Rows that meet no Python are written by the JVM, others by Python: the tests at whose end the two
differ run with both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer

import seamark as sm
from seamark.dev.kafka import LocalKafka
from seamark.model.errors import ConfigurationError
from tests.chaos import checker, workload
from tests.chaos.driver import Driver, wait_until
from tests.chaos.scenario import PassthroughScenario
from tests.chaos.workload import PARTITIONS
from tests.integration.jobs.test_two_drivers import freeze_before_decision
from tests.threads import RunningJob

CORES = PARTITIONS
"""Each partition needs one for itself."""
REAL_TIME = {"execution": "real-time"}
WRITERS = ["jvm", pytest.param("python", marks=pytest.mark.chaos)]
KILLS = [
    # Spark begins the epoch; its tasks have not started.
    "epoch-started:3",
    # All tasks have flushed their transactions; nobody knows.
    "pre-committed:2",
    "fence-checked:2",
    # Stored, and neither of Spark's logs is written.
    "prepared:2",
    # Both logs are written; no sink, or one of two transactions, is committed.
    "decided:2",
    "sealed:2",
    "end-transaction-sent:12",
    "sink-committed:1",
    "committed:3",
]
FEW = ["pre-committed:2", "prepared:2", "decided:2", "end-transaction-sent:12"]


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = pc.binary_repeat(batch.column("value"), 2)
    return pa.RecordBatch.from_arrays([batch.column("key"), values], ["key", "value"])


def a_job(
    directory: Path, servers: str, topics: dict[str, str], name: str, **checkpoint: Any
) -> Any:
    """Return a job with a Python function and two sinks of one stream, one at-least-once and one
    exactly-once."""
    job = sm.Job(name, sm.CheckpointConfig(storage=str(directory / "store"), **checkpoint))
    rows = job.source(sm.KafkaSource(servers, topics["in"], starting_offsets="earliest"), uid="in")
    made = sm.process(
        rows.select("key", "value"), doubled, "key BINARY, value BINARY", uid="double"
    )
    for uid in ("at-least-once", "exactly-once"):
        sink = sm.KafkaSink(
            servers,
            topics[uid],
            delivery_guarantee=uid,
            transactional_id_prefix=topics[uid],
            transaction_timeout="12min",
        )
        job.sink(made, sink, uid=uid)
    return job


def read(servers: str, topic: str) -> list[str]:
    """Return the values that a read_committed reader finds now, sorted."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": topic, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[str] = []
    try:
        while True:
            message = consumer.poll(10)
            assert message is not None, "the broker is silent"
            if message.error() is not None:
                return sorted(rows)
            rows.append(message.value().decode())
    finally:
        consumer.close()


def test_a_job_with_two_sinks(kafka: LocalKafka, topic: Callable[[], str], tmp_path: Path) -> None:
    """Rows of one sink are visible while their epoch runs, of the other after it. A checkpoint
    and a savepoint are taken on request, and a job in micro-batches goes on from the savepoint."""
    servers = kafka.bootstrap_servers
    topics = {uid: topic() for uid in ("in", "at-least-once", "exactly-once")}
    producer = Producer({"bootstrap.servers": servers})
    job = a_job(tmp_path, servers, topics, "real-time", interval="4s")
    rows = []
    running = RunningJob(job, execution="real-time")
    try:
        running.wait_for_epochs(1)
        for value in "abcdefgh":
            producer.produce(topics["in"], value)
            producer.flush()
            rows.append(2 * value)
            wait_until("the row", lambda: read(servers, topics["at-least-once"]) == rows, 30)
            if read(servers, topics["exactly-once"]) != rows:  # else its epoch has just ended
                break
        else:
            pytest.fail("no row was visible before the end of its epoch")
        job.trigger_checkpoint().result(300)
        assert read(servers, topics["exactly-once"]) == rows
        savepoint = job.stop_with_savepoint(str(tmp_path / "savepoints")).result(300)
    finally:
        running.end()

    producer.produce(topics["in"], "z")
    producer.flush()
    rows.append("zz")
    running = RunningJob(
        a_job(tmp_path, servers, topics, "batches", interval="200ms"), restore=savepoint
    )
    try:
        for uid in ("at-least-once", "exactly-once"):
            wait_until("all rows", lambda: read(servers, topics[uid]) == rows, 60)  # noqa: B023
    finally:
        running.end()


def test_too_few_cores(kafka: LocalKafka, topic: Callable[[int], str], tmp_path: Path) -> None:
    name = topic((os.cpu_count() or 1) + 1)
    topics = {"in": name, "at-least-once": topic(1), "exactly-once": topic(1)}
    job = a_job(tmp_path, kafka.bootstrap_servers, topics, "real-time", interval="1s")
    with pytest.raises(ConfigurationError, match="each partition needs a core for itself"):
        job.run(execution="real-time")


@pytest.fixture
def scenario(
    kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PassthroughScenario]:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master local[{CORES},4] pyspark-shell")
    with PassthroughScenario(
        tmp_path, kafka.bootstrap_servers, rate=100, interval="2s", **REAL_TIME
    ) as made:
        yield made


def kill_within_epoch(scenario: PassthroughScenario, driver: Driver) -> None:
    """Kill -9 all of the driver while tasks have sent rows of an epoch that has not ended."""
    epoch = max(driver.epochs())
    wait_until("the next epoch ends", lambda: max(driver.epochs()) > epoch, 60, pause_s=0.01)
    time.sleep(1)
    driver.kill_tree()
    assert max(scenario.epochs_in("epochs")) == max(scenario.epochs_in("spark/commits")), (
        "it died at the end of its epoch"
    )


def finish_after_a_kill(scenario: PassthroughScenario) -> None:
    """Start a driver, kill it within an epoch, and let the next one do all the rest."""
    driver = scenario.start()
    driver.wait_for_epochs(2)
    kill_within_epoch(scenario, driver)
    driver = scenario.start()
    driver.wait_for_epochs(2)
    scenario.finish(driver)
    assert scenario.open_transactions() == []


@pytest.mark.chaos
def test_at_least_once_loses_nothing(scenario: PassthroughScenario) -> None:
    scenario.options["delivery"] = "at-least-once"
    scenario.options["interval"] = "5s"
    driver = scenario.start()
    driver.wait_for_epochs(1)
    wait_until(
        "rows within their epoch",
        lambda: len(scenario.reader.rows) > sum(rows for rows, _ in driver.epochs().values()),
        30,
    )
    kill_within_epoch(scenario, driver)
    driver = scenario.start()
    driver.wait_for_epochs(1)
    scenario.drain(driver)
    driver.stop()
    kinds = {found.kind for found in scenario.check()}
    assert kinds <= {checker.Kind.DUPLICATED, checker.Kind.REORDERED}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kills", [FEW, pytest.param(KILLS, marks=pytest.mark.chaos)])
def test_killed_at_failpoints(scenario: PassthroughScenario, kills: list[str], writer: str) -> None:
    scenario.options["python"] = writer == "python"
    driver = scenario.die_at_each(kills)
    driver.wait_for_epochs(2)
    scenario.finish(driver)
    assert scenario.open_transactions() == []


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_killed_within_an_epoch(scenario: PassthroughScenario) -> None:
    scenario.options["python"] = True
    driver = scenario.start("transaction-flushed:3")
    # Here a Python worker dies, and Spark runs its task again, within the same epoch or after it.
    driver.wait_for_epochs(3)
    assert "SIGKILL" in driver.text() or "crashed" in driver.text(), "no worker died"
    kill_within_epoch(scenario, driver)
    finish_after_a_kill(scenario)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "point", ["transaction-flushed:3", pytest.param("transaction-begun:4", marks=pytest.mark.chaos)]
)
def test_jvm_killed_in_its_task(scenario: PassthroughScenario, point: str) -> None:
    """The writing JVM is the driver's own here: the driver ends with it, and aborts what is open.
    Then all of the driver dies at the same place, and leaves that to its successor."""
    driver = scenario.start(point)
    assert driver.wait(240) == 1, driver.tail()
    assert f"dies at failpoint {point[:-2]}" in driver.text(), driver.tail()
    driver.kill_tree()
    assert scenario.open_transactions() == []
    driver = scenario.start(f"{point}@stop")
    wait_until("the JVM to stop", lambda: "stops at failpoint" in driver.text(), 240)
    driver.kill_tree()
    assert scenario.open_transactions() != []
    finish_after_a_kill(scenario)


@pytest.mark.timeout(1200)
def test_fenced_tasks(scenario: PassthroughScenario) -> None:
    """A transactional id is taken from a task that writes: it fails, and another attempt writes its
    rows. Then a driver is frozen while its tasks write, and they go on beside its successor's."""
    driver = scenario.start(interval="6s")
    driver.wait_for_epochs(2)
    found = wait_until("an open transaction", scenario.open_transactions, 30, pause_s=0.0)
    thief = Producer(
        {"bootstrap.servers": scenario.servers, "transactional.id": found[0].split(" ")[0]}
    )
    thief.init_transactions(30)
    epochs = len(driver.epochs())
    driver.wait_for_epochs(epochs + 2)
    assert "ProducerFenced" in driver.text() or "InvalidProducerEpoch" in driver.text(), "no fence"
    wait_until("an open transaction", scenario.open_transactions, 30, pause_s=0.0)
    driver.freeze()
    second = scenario.start()
    second.wait_for_epochs(3)
    driver.thaw()
    assert driver.wait(90) == 1
    assert "FencedError" in driver.text(), driver.tail()
    driver.kill_tree()
    scenario.finish(second)
    assert scenario.open_transactions() == []


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("writer", WRITERS)
def test_stop_within_an_epoch(scenario: PassthroughScenario, writer: str) -> None:
    """The epoch is longer than the patience of a stop, which cuts it off: its tasks' iterators end
    as if all was read, and their transactions must not be committed."""
    scenario.options["python"] = writer == "python"
    driver = scenario.start(interval="25s")
    driver.wait_for_epochs(1)
    time.sleep(4)
    before = scenario.epochs_in("spark/commits")
    took_s = driver.stop()
    print(f"stopped within {took_s:.1f} s")
    assert scenario.epochs_in("spark/commits") == before, "no stop within an epoch"
    assert scenario.open_transactions() == []
    driver = scenario.start()
    driver.wait_for_epochs(2)
    scenario.finish(driver)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_to_micro_batches_and_back(scenario: PassthroughScenario) -> None:
    """A killed real-time run goes on in micro-batches, and the other way round."""
    for execution, point in [
        ("real-time", "prepared:2"),
        ("micro-batch", "prepared:2"),
        ("real-time", "decided:2"),
        ("micro-batch", "decided:2"),
    ]:
        scenario.die_at(point, execution=execution)
    driver = scenario.start()
    driver.wait_for_epochs(2)
    scenario.finish(driver)
    assert workload.open_transactions(scenario.servers, scenario.prefix) == []


@pytest.mark.timeout(1200)
def test_old_driver_that_decides_with_other_offsets(scenario: PassthroughScenario) -> None:
    """A frozen driver wakes up in its successor's first epoch, of the same number, and writes both
    of Spark's logs: the end offsets there are its own. The successor's attempt has read other rows,
    so it must not be taken for the one decided."""
    first = scenario.start()
    first.wait_for_epochs(2)
    epoch = freeze_before_decision(scenario, first)
    second = scenario.start(interval="45s")  # Python's workers must come up within its first epoch
    wait_until("the successor's epoch", lambda: "goes on after" in second.text(), 90)
    wait_until("rows of it", scenario.open_transactions, 40)
    first.thaw()
    assert first.wait(60) == 1
    assert "FencedError" in first.text(), first.tail()
    first.kill_tree()
    assert epoch in scenario.epochs_in("spark/commits"), "it wrote no decision"
    assert second.wait(90) == 1, second.tail()
    assert "DecisionVoidError" in second.text(), second.tail()
    second.kill_tree()
    last = scenario.start()
    last.wait_for_epochs(2)
    scenario.finish(last)
    assert scenario.open_transactions() == []
