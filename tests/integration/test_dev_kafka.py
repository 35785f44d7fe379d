"""Local brokers, by using them: records go through clients, and faults are real signals.

The kernel (psutil) tells of a broker's end, never the object of its start.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from seamark.dev.kafka import LocalKafka
from seamark.model.errors import ConfigurationError, PreflightError


def create_topic(servers: str, name: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 1, replicas)])[name].result(300)


def send(servers: str, topic: str, value: bytes) -> None:
    """Produce one record in a transaction, to ask the transaction log too."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.commit_transaction(60)


def read(servers: str, topic: str) -> list[bytes]:
    """Return a read_committed reader's rows of the topic's one partition, from its start."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                values.append(message.value())
            elif message.error().name() == "_PARTITION_EOF":
                return values
    finally:
        consumer.close()
    raise AssertionError(f"no end of {topic} within 60 s; read {values}")


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while alive := [pid for pid in pids if runs(pid)]:
        assert time.monotonic() < deadline, f"still running: {alive}"
        time.sleep(0.05)


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def processes_naming(directory: Path) -> list[int]:
    """Every process with `directory` in its command line: the JVM, and its watchdog."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(directory) in word for word in process.info["cmdline"] or []):
            found.append(process.pid)
    return found


def test_the_session_broker_takes_and_gives_a_record(kafka: LocalKafka, topic) -> None:
    name = topic(partitions=3)
    partitions = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(name)
    assert len(partitions.topics[name].partitions) == 3
    assert name != topic()


def test_a_killed_broker_comes_back_with_its_data_on_its_port() -> None:
    with LocalKafka() as kafka:
        servers = kafka.bootstrap_servers
        create_topic(servers, "kept")
        send(servers, "kept", b"before")

        first = kafka.pid(1)
        kafka.kill(1)
        assert not runs(first)
        with pytest.raises(PreflightError, match="broker 1 has ended"):
            kafka.check()
        kafka.restart(1)
        assert kafka.bootstrap_servers == servers
        assert kafka.pid(1) != first
        send(servers, "kept", b"after")
        assert read(servers, "kept") == [b"before", b"after"]

        kafka.pause(1)
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=2)
        kafka.resume(1)
        send(servers, "kept", b"resumed")
        assert read(servers, "kept") == [b"before", b"after", b"resumed"]
        last, directory = kafka.pid(1), kafka.directory
    wait_until_gone([first, last, *processes_naming(directory)])
    assert not directory.exists()


def test_three_brokers_go_on_when_one_is_killed() -> None:
    with LocalKafka(brokers=3) as kafka:
        servers = kafka.bootstrap_servers
        create_topic(servers, "replicated", replicas=3)
        send(servers, "replicated", b"three")
        leader = AdminClient({"bootstrap.servers": servers}).list_topics("replicated")
        broker = leader.topics["replicated"].partitions[0].leader
        kafka.kill(broker)
        send(servers, "replicated", b"two")
        kafka.restart(broker)
        assert read(servers, "replicated") == [b"three", b"two"]
        pids, directory = [kafka.pid(i) for i in (1, 2, 3)], kafka.directory
    wait_until_gone([*pids, *processes_naming(directory)])


def test_a_broker_outlives_the_thread_that_started_it_but_not_the_process(tmp_path: Path) -> None:
    program = (
        "import sys, threading, time\n"
        "from seamark.dev.kafka import LocalKafka\n"
        "kafka = LocalKafka(directory=sys.argv[1])\n"
        "thread = threading.Thread(target=kafka.start); thread.start(); thread.join()\n"
        "print(kafka.bootstrap_servers, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "kafka")], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        servers = child.stdout.readline().strip()
        time.sleep(1)
        assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).brokers
        started = processes_naming(tmp_path)
        assert len(started) >= 3  # the child, the JVM, its watcher
        child.send_signal(signal.SIGKILL)
    wait_until_gone(started)


def test_a_broker_that_does_not_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    wrong = {"transaction.max.timeout.ms": "soon"}
    with pytest.raises(PreflightError, match=r"(?s)broker 1.*Invalid value soon"):
        LocalKafka(directory=tmp_path / "kafka", overrides=wrong).start()
    wait_until_gone(processes_naming(tmp_path))


def test_sizes_that_are_not_offered_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="brokers is 2"):
        LocalKafka(brokers=2)
    (tmp_path / "cluster.json").write_text('{"cluster_id": "T", "ports": [1, 2]}')
    with pytest.raises(ConfigurationError, match="holds a cluster of 1 brokers, not 3"):
        LocalKafka(brokers=3, directory=tmp_path).start()


def test_the_command_prints_its_address_and_ends_cleanly(tmp_path: Path) -> None:
    """Twice on one directory: the second run has the first one's data, at the same address."""
    directory = tmp_path / "kafka"
    addresses = []
    for end in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(
            [Path(sys.executable).with_name("seamark"), "dev", "kafka", "--directory", directory],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as command:
            assert command.stdout is not None
            assert command.stderr is not None
            address = command.stdout.readline().strip()
            assert address.startswith("127.0.0.1:"), command.stderr.read()
            if not addresses:
                create_topic(address, "kept")
            addresses.append(address)
            send(address, "kept", end.name.encode())
            started = processes_naming(directory)
            command.send_signal(end)
            assert command.wait(120) == 0
            assert "Traceback" not in command.stderr.read()
        wait_until_gone(started)
    assert addresses[0] == addresses[1]
    with LocalKafka(directory=directory) as kafka:
        assert read(kafka.bootstrap_servers, "kept") == [b"SIGINT", b"SIGTERM"]


def test_the_command_says_a_mistake_in_one_line() -> None:
    command = Path(sys.executable).with_name("seamark")
    done = subprocess.run(
        [command, "dev", "kafka", "--brokers", "2"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "seamark: LocalKafka: brokers is 2; give 1 or 3\n"
