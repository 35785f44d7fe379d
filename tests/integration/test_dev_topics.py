"""`seamark dev … --port` and `seamark topic`, as typed: real servers, asked through the command."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from seamark.dev.java_server import free_ports
from seamark.dev.kafka import LocalKafka
from tests.servers.needed import needed

SEAMARK = Path(sys.executable).with_name("seamark")


def seamark(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SEAMARK, *map(str, arguments)],
        input=stdin, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@contextlib.contextmanager
def serving(*arguments: object) -> Iterator[str]:
    """A server of `seamark dev`; yields the line on its stdout."""
    with subprocess.Popen(
        [SEAMARK, "dev", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as command:  # fmt: skip
        assert command.stdout is not None
        assert command.stderr is not None
        try:
            line = command.stdout.readline().strip()
            assert line, command.stderr.read()
            yield line
        finally:
            command.send_signal(signal.SIGINT)
        assert command.wait(60) == 0, command.stderr.read()


def test_the_port_and_the_topics_are_those_asked_for(tmp_path: Path) -> None:
    (port, other) = free_ports(2)
    kept = tmp_path / "kafka"
    for wanted in (port, other):  # a kept cluster moves to another port with its data
        options = ("--port", wanted, "--topic", "clicks:4", "--topic", "out", "--directory", kept)
        with serving("kafka", *options) as servers:
            assert servers == f"127.0.0.1:{wanted}"
            told = seamark("topic", "create", "clicks", "out", "--bootstrap-servers", servers)
            assert "clicks, partitions: 4\n" in told.stderr
            assert "out, partitions: 1\n" in told.stderr
            seamark("topic", "produce", "out", "--bootstrap-servers", servers, stdin=f"{wanted}\n")
    with serving("kafka", "--directory", kept) as servers:
        rows = seamark(
            *("topic", "tail", "out", "--from-beginning", "-n", 2, "--bootstrap-servers", servers)
        )
        assert rows.stdout.split() == [str(port), str(other)]


def test_rows_go_in_and_come_out_as_text_and_json(kafka: LocalKafka, topic) -> None:
    name, at = topic(partitions=1), ("--bootstrap-servers", kafka.bootstrap_servers)
    lines = 'a\t1\nb\t{"x":1}\njust\n\t\n'
    assert seamark("topic", "produce", name, *at, stdin=lines).returncode == 0
    refused = seamark("topic", "produce", name, *at, stdin="x" * 2_000_000 + "\n")
    assert refused.returncode == 4
    assert "row 1: " in refused.stderr
    assert refused.stderr.count("\n") == 1
    objects = '{"key": "k", "value": {"ü": 2}}\n{"value": null}\n'
    assert seamark("topic", "produce", name, *at, "--json", stdin=objects).returncode == 0
    shown = seamark("topic", "tail", name, *at, "--from-beginning", "-n", 6).stdout
    assert shown == 'a\t1\nb\t{"x":1}\njust\n\t\nk\t{"ü": 2}\nnull\n'
    rows = [
        json.loads(line)
        for line in seamark(
            "topic", "tail", name, *at, "--from-beginning", "-n", 6, "--json"
        ).stdout.splitlines()
    ]
    assert [(row["key"], row["value"]) for row in rows] == [
        ("a", "1"), ("b", '{"x":1}'), (None, "just"), ("", ""), ("k", '{"ü": 2}'), (None, None),
    ]  # fmt: skip
    assert [row["offset"] for row in rows] == list(range(6))

    bad = seamark("topic", "produce", name, *at, "--json", stdin='{"key": "k"}\n')
    assert bad.returncode == 2
    assert bad.stderr.startswith('seamark: stdin, line 1: \'{"key": "k"}\' is no row')


def test_tail_shows_rows_of_open_transactions_only_if_asked(kafka: LocalKafka, topic) -> None:
    name, servers = topic(partitions=1), kafka.bootstrap_servers
    seamark("topic", "produce", name, "--bootstrap-servers", servers, stdin="before\n")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, b"open")
    producer.flush(60)
    tail = [SEAMARK, "topic", "tail", name, "--bootstrap-servers", servers, "-n", "1"]
    dirty = subprocess.run(
        [*tail[:-1], "2", "--from-beginning", "--isolation-level", "read_uncommitted"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert dirty.stdout == "before\nopen\n"
    with subprocess.Popen(tail, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as clean:
        assert clean.stderr is not None
        assert "read_committed" in clean.stderr.readline()
        producer.abort_transaction(60)
        seamark("topic", "produce", name, "--bootstrap-servers", servers, stdin="after\n")
        assert clean.communicate(timeout=300)[0] == "after\n"


def test_made_up_clicks_have_their_user_as_key(kafka: LocalKafka, topic) -> None:
    name, at = topic(partitions=2), ("--bootstrap-servers", kafka.bootstrap_servers)
    done = seamark("topic", "produce", name, *at, "--rate", 1000, "-n", 50)
    assert done.stderr == f"50 rows are in {name}\n"
    rows = seamark("topic", "tail", name, *at, "--from-beginning", "-n", 50).stdout.splitlines()
    clicks = [line.split("\t") for line in rows]
    assert len(clicks) == 50
    assert all(json.loads(value)["user"] == key for key, value in clicks)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("dev", "kafka", "--port", "0"), "port is 0; give one from 1 to 65535"),
        (("dev", "kafka", "--port", "65534", "--brokers", "3"), "port is 65536; give one from"),
        (("dev", "postgres", "--port", "99999"), "PostgreSQL: port is 99999; give one from"),
        (("dev", "kafka", "--topic", "clicks:none"), "topic 'clicks:none': give a name of letters"),
        (("topic", "create", "clicks:99999999999"), "or NAME:PARTITIONS such as clicks:4, of at"),
        (("topic", "create", "my clicks"), "topic 'my clicks': give a name of letters, digits"),
        (("topic", "create", "x", "--bootstrap-servers", "127.0.0.1:one"), "127.0.0.1:one"),
        (("dev", "kafka", "--directory", "/proc/nowhere"), "/proc/nowhere cannot be made ("),
        (("demo", "--directory", "/proc/nowhere"), "/proc/nowhere cannot be made: "),
        (("topic", "tail", "x", "--bootstrap-servers", "127.0.0.1:1"), "seamark dev kafka --port"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_the_remedy(arguments: tuple[str, ...], said: str) -> None:
    done = seamark(*arguments)
    assert done.returncode in (2, 4)
    assert done.stdout == ""
    assert done.stderr.startswith("seamark: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("server", ["kafka", "postgres"])
def test_a_taken_port_is_named(server: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = seamark("dev", server, "--port", port)
    assert done.returncode == 2
    assert f"port {port} is taken" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_topic_is_named_with_the_command_that_makes_it(kafka: LocalKafka) -> None:
    for verb in ("tail", "produce"):
        done = seamark("topic", verb, "nowhere", "--bootstrap-servers", kafka.bootstrap_servers)
        assert done.returncode == 2
        assert done.stderr.endswith("make it: seamark topic create nowhere\n")


def test_postgres_serves_at_the_port_and_ends_with_the_command() -> None:
    (port,) = free_ports(1)
    with needed("PostgreSQL"), serving("postgres", "--port", port) as url:
        assert f":{port}/" in url
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.execute("SHOW max_prepared_transactions").fetchone() == ("100",)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url, connect_timeout=5)
