"""Real Kafka brokers on this machine, for development and tests: one node or a cluster of three.

Combined KRaft nodes (broker and controller) run from the jars of `spark/jars.py`, on 127.0.0.1
only. Invariants:

- A broker never outlives the process that started it, however that process ends
  (`spark/child_jvm.py`).
- A node keeps its port and its data for as long as its directory lives: to a client, `kill` and
  `restart` look like a machine that died and came back.
- `start`, `restart` and `resume` return when the broker itself answers a client's question.

`seamark dev kafka` and the tests' fixtures build on this.
"""

import json
import shutil
import signal
import socket
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from seamark.dev.java_server import JavaServer, LocalServers, free_ports, require_free
from seamark.files.deadline import Deadline
from seamark.model.errors import ConfigurationError
from seamark.model.packages import load_driver
from seamark.spark.jars import find_java, kafka_broker_jars

STOP_TIMEOUT_S = 15


class LocalKafka(LocalServers):
    """A Kafka cluster of 1 or 3 brokers, as a context manager or by `start` and `stop`.

    - `directory`: the place of the data. `stop` keeps it, and a later `LocalKafka` on it uses the
      data again, with the same ports. None is a temporary directory, removed by `stop`.
    - `overrides`: broker settings that replace those below.
    - `listeners`: further listeners, each with a port of its own: name to security protocol, e.g.
      ``{"SECURE": "SASL_SSL"}``; `overrides` has their certificates and mechanisms.
    - `advertised`: the ports told to clients of a listener instead of its own, of a proxy in front
      of each broker: ``{"PROXIED": [23456]}``.
    - `port`: of the first broker; the next ones have the next ports. None: those of the directory,
      or free ones.

    Node numbers go from 1 to `brokers`.

    Raises `ConfigurationError` for another number of brokers, or a directory of such a cluster.
    """

    def __init__(
        self,
        brokers: int = 1,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, Sequence[int]] | None = None,
        port: int | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise ConfigurationError(f"LocalKafka: brokers is {brokers!r}; give 1 or 3")
        self.brokers = brokers
        self._heap = "512m" if brokers == 1 else "300m"
        self._overrides = dict(overrides or {})
        self._listeners = dict(listeners or {})
        self._advertised = dict(advertised or {})
        self._ports: list[int] = []
        self._port = port
        self._temporary = directory is None
        self.directory = Path(directory or tempfile.mkdtemp(prefix="seamark-kafka-")).absolute()
        """The place of the cluster's data and each broker's log (`node-<i>/broker.log`)."""
        self._nodes: dict[int, _Node] = {}

    @property
    def bootstrap_servers(self) -> str:
        """All brokers' addresses, `127.0.0.1:port,…`; known once `start` has been called."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self._nodes.values())

    def address(self, listener: str) -> str:
        """All brokers' addresses of one of the further `listeners`; known after `start`."""
        number = list(self._listeners).index(listener)
        return ",".join(f"127.0.0.1:{self._ports_of(i)[2 + number]}" for i in self._numbers())

    def pid(self, broker: int) -> int:
        """Return the process id of `broker`'s JVM, dead or alive."""
        return self._node(broker).pid

    def start(self) -> None:
        """Start every broker; return when all of them are in the cluster and answer. The first
        start on a machine fetches the jars. Raises `PreflightError` with the end of a broker's log
        if it does not come up (nothing is left running), `MissingDependencyError` without Java, the
        jars or the Kafka client."""
        _admin_client_class()  # before the servers, or its absence would look like theirs
        if self._port is not None:  # before the jars, whose download takes its time
            require_free(range(self._port, self._port + self.brokers), "Kafka")
        java, jars = find_java(), kafka_broker_jars()
        cluster_id, self._ports = self._identity()
        require_free(self._ports, "Kafka")
        controllers = ",".join(f"{i}@127.0.0.1:{self._ports_of(i)[1]}" for i in self._numbers())
        for i in self._numbers():
            port = self._ports_of(i)[0]
            directory = self.directory / f"node-{i}"
            self._nodes[i] = _Node(i, directory, port, self._heap, java, jars)
            self._nodes[i].write_settings(self._settings(i, controllers))
        try:
            nodes = self._nodes.values()
            with ThreadPoolExecutor(len(nodes)) as at_once:
                list(at_once.map(lambda node: node.format(cluster_id), nodes))
            for node in nodes:
                node.launch()
            for number, node in self._nodes.items():
                node.expected = set(self._nodes)
                node.wait_until_ready()
                node.expected = {number}
        except BaseException:
            self.stop()
            raise

    def kill(self, broker: int) -> None:
        """End `broker` with SIGKILL, like a dying machine; its data stay. `restart` follows."""
        self._node(broker).kill()

    def pause(self, broker: int) -> None:
        """Freeze `broker` (SIGSTOP): its sockets stay open and nothing answers, until `resume`."""
        self._node(broker).pause()

    def resume(self, broker: int) -> None:
        """Let a paused `broker` run on; return when it answers."""
        self._node(broker).send(signal.SIGCONT)
        self._node(broker).wait_until_ready()

    def restart(self, broker: int) -> None:
        """Start `broker` on its old data and port, killing it first if it runs. Returns when it
        answers and is in the cluster, which needs two of three brokers alive."""
        self._node(broker).start()

    def check(self) -> None:
        """Raise `PreflightError`, with the end of its log, if a broker has ended by itself.

        Call it when all brokers should run: a broker ended by `kill` counts too.
        """
        for node in self._nodes.values():
            if not node.alive():
                raise node.ended()

    def stop(self) -> None:
        """Stop every broker; remove the directory if it is temporary. Idempotent.

        Brokers with kept data are asked to shut down, and killed if they do not within
        STOP_TIMEOUT_S: with most controllers gone, the last of three often cannot finish.
        """
        nodes = list(self._nodes.values())
        if not self._temporary:
            for node in nodes:
                node.send(signal.SIGCONT)
                node.send(signal.SIGTERM)
            Deadline(STOP_TIMEOUT_S).wait_for(lambda: not any(node.alive() for node in nodes))
        for node in nodes:
            node.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _numbers(self) -> range:
        return range(1, self.brokers + 1)

    def _node(self, broker: int) -> "_Node":
        if broker not in self._nodes:
            raise ConfigurationError(
                f"LocalKafka: no broker {broker!r}; started are {sorted(self._nodes) or 'none'}"
            )
        return self._nodes[broker]

    def _identity(self) -> tuple[str, list[int]]:
        """Return the cluster id and the ports (client, controller, further listeners, node by
        node): the directory's, or new ones."""
        path = self.directory / "cluster.json"
        if not path.exists():
            # Kafka's own form of an id: 16 bytes in URL-safe Base64, which must not begin with "-".
            cluster_id = "T" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigurationError(
                    f"{self.directory} cannot be made ({error.strerror}); give another directory"
                ) from None
            record: dict[str, Any] = {"cluster_id": cluster_id}
            record["ports"] = free_ports(self._per_node * self.brokers)
        else:
            record = json.loads(path.read_text())
        if len(record["ports"]) != self._per_node * self.brokers:
            raise ConfigurationError(
                f"{self.directory} holds a cluster of {len(record['ports']) // self._per_node} "
                f"brokers, not {self.brokers}; ask for as many, or name another directory"
            )
        if self._port is not None:
            for number in range(self.brokers):
                record["ports"][number * self._per_node] = self._port + number
        path.write_text(json.dumps(record))
        return record["cluster_id"], record["ports"]

    @property
    def _per_node(self) -> int:
        return 2 + len(self._listeners)

    def _ports_of(self, number: int) -> list[int]:
        return self._ports[(number - 1) * self._per_node :][: self._per_node]

    def _settings(self, number: int, voters: str) -> dict[str, str]:
        port, controller, *further = self._ports_of(number)
        names = ["PLAINTEXT", *self._listeners]
        ports = dict(zip(names, [port, *further], strict=True))
        clients = [f"{name}://127.0.0.1:{at}" for name, at in ports.items()]
        told = ports | {name: at[number - 1] for name, at in self._advertised.items()}
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **self._listeners}
        replicas, in_sync = ("3", "2") if self.brokers == 3 else ("1", "1")
        return {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": ",".join([*clients, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join(f"{n}://127.0.0.1:{p}" for n, p in told.items()),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory / f"node-{number}" / "data"),
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": "4",
            "transaction.max.timeout.ms": "900000",
            # A killed broker may come back only when its session has ended; 9 s is the default.
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            **self._overrides,
        }


class _Node(JavaServer):
    """One broker. It is ready when it names all of `expected` as members of the cluster."""

    def __init__(
        self, number: int, directory: Path, port: int, heap: str, java: Path, jars: list[Path]
    ) -> None:
        self.port = port
        self.expected = {number}
        self._properties = directory / "server.properties"
        self._class_path = ("-cp", ":".join(map(str, jars)))
        arguments = [
            *(f"-Xmx{heap}", "-XX:+UseSerialGC"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            *(*self._class_path, "kafka.Kafka", str(self._properties)),
        ]
        super().__init__(
            f"Kafka broker {number}", java, arguments, directory / "broker.log",
            lambda: self.expected <= self._members(),
        )  # fmt: skip

    def write_settings(self, settings: Mapping[str, str]) -> None:
        self._properties.parent.mkdir(parents=True, exist_ok=True)
        self._properties.write_text("".join(f"{key}={v}\n" for key, v in settings.items()))

    def format(self, cluster_id: str) -> None:
        """Give the data directory its identity; leave it alone if it has one."""
        self.run_once(
            [
                *("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *self._class_path),
                *("kafka.tools.StorageTool", "format", "--ignore-formatted"),
                *("-t", cluster_id, "-c", str(self._properties)),
            ]
        )

    def _members(self) -> set[int]:
        """Ask this broker for the cluster's members; none if it does not answer."""
        with socket.socket() as probe:  # cheaper and quieter than a refused client
            if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                return set()
        from confluent_kafka import KafkaException

        client = _admin_client_class()(
            {"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0}
        )
        try:
            return set(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return set()


def _admin_client_class() -> type:
    library = load_driver("confluent_kafka.admin", "the Kafka client is not installed", "kafka")
    return library.AdminClient  # type: ignore[no-any-return]
