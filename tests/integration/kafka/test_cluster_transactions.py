"""`seamark txn list --bootstrap-servers`: how: a transaction of a plain producer, as Flink's, and
one of a Kafka sink of ours are open on a real broker; a consumer group waits before the first."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner, Result

from seamark.cli.main import app
from seamark.dev.kafka import LocalKafka
from tests.integration.kafka import sink_kit as kit

Topic = Callable[..., str]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["txn", "list", *arguments])


def listed(kafka: LocalKafka, prefix: str) -> list[dict[str, Any]]:
    ended = call("--bootstrap-servers", kafka.bootstrap_servers, "--prefix", prefix, "--json")
    assert ended.exit_code == 0, ended.output
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


def test_open_transactions_of_anybody_are_listed_with_what_is_known(
    kafka: LocalKafka, topic: Topic
) -> None:
    servers, name = kafka.bootstrap_servers, topic(2)
    group, flink = f"{name}-readers", f"{name}-flink-0-7"
    reader = Consumer({"bootstrap.servers": servers, "group.id": group})
    reader.commit(offsets=[TopicPartition(name, 1, 0)], asynchronous=False)
    reader.close()
    foreign = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": flink,
            "transaction.timeout.ms": 60_000,
        }
    )
    foreign.init_transactions(30)
    foreign.begin_transaction()
    foreign.produce(name, b"row", partition=1)
    foreign.flush(30)
    (one,) = listed(kafka, name)
    assert (one["transaction"], one["state"], one["seamark"]) == (flink, "Ongoing", False)
    assert one["known"].startswith("not Seamark's: no decision record here")
    assert one["producer-id"] >= 0 and one["producer-epoch"] >= 0
    assert abs(one["since"] - time.time() * 1000) < 120_000
    assert one["timeout"] == 60_000 and 0 < one["time-left"] <= 60_000
    assert one["partitions"] == [f"{name}-1"]
    (held,) = one["held-up"]
    assert (held["place"], held["rows"], held["first"]) == (f"{name}-1", 1, True)
    assert held["groups"] == {group: 0}

    job = kit.new_job()
    ours = kit.prepare(
        kit.sink_on(servers, name, transactional_id_prefix=f"{name}-ours"),
        kit.attempt(job, generation=3),
        [1],
    )
    assert [found["seamark"] for found in listed(kafka, name)] == [False, True]
    (mine,) = listed(kafka, f"{name}-ours")
    assert mine["transaction"] == ours.transactional_id
    assert f"of job {job[:8]}…, generation 3" in mine["known"]
    assert "seamark txn list APP.PY" in mine["known"]

    shown = call("--bootstrap-servers", servers, "--prefix", flink)
    assert shown.stdout.splitlines()[0] == flink
    for text in ("Ongoing", f"writes to     {name}-1", "not Seamark's", f"group {group}: waits"):
        assert text in shown.stdout
    foreign.abort_transaction(30)
    assert listed(kafka, flink) == []
    nothing = call("--bootstrap-servers", servers, "--prefix", flink)
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "No transaction is open" in nothing.stderr
    with kit.committing(
        kit.sink_on(servers, name, transactional_id_prefix=f"{name}-ours"), kit.driver(job, 4)
    ) as committer:
        kit.until_proved(committer.abort, [ours])


def test_a_cluster_that_cannot_be_asked(tmp_path: Path) -> None:
    (tmp_path / "client").write_text("acks=1\n")
    given = "--command-config", str(tmp_path / "client"), "--bootstrap-servers"
    refused = call(*given, "127.0.0.1:1")
    assert refused.exit_code == 2 and "producer option 'acks'" in refused.stderr
    (tmp_path / "client").write_text("security.protocol=PLAINTEXT\n")
    silent = call(*given, "127.0.0.1:1")
    assert silent.exit_code == 4
    assert "Kafka at 127.0.0.1:1 does not answer" in silent.stderr
    assert silent.stderr.count("TimeoutError") == 1
