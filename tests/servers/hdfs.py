"""A real HDFS on this machine, for development and tests: one NameNode and one DataNode.

Each is a process of its own, on 127.0.0.1 only. Each keeps its port and its data while the
`LocalHdfs` lives: to a client, `kill` and `restart` look like a machine that died and came back.
The processes never outlive ours (`spark/child_jvm.py`).
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import escape

from seamark.dev.java_server import JavaServer, LocalServers, free_ports
from seamark.spark.jars import Request, find_java, hadoop_version, pyspark_jars, resolve

Daemon = Literal["namenode", "datanode"]
SUPERUSER = "hdfs"
"""The file system's owner: not our user, so that permissions hold for us."""


class LocalHdfs(LocalServers):
    """HDFS as a context manager, or by `start` and `stop`. Everybody may write below ``/``.

    Raises the errors of `JavaServer.start`, and `MissingDependencyError` without Java or the jars.
    """

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="seamark-hdfs-"))
        self._rpc, self._http, *self._data_ports = free_ports(5)
        self._daemons: dict[Daemon, JavaServer] = {}

    @property
    def uri(self) -> str:
        """``hdfs://127.0.0.1:<port>``."""
        return f"hdfs://127.0.0.1:{self._rpc}"

    def start(self) -> None:
        """Format the file system, start both daemons and return when files can be written."""
        java = find_java()
        class_path = ":".join([str(self._directory), *map(str, _server_jars())])
        for site, settings in (("core", self._core()), ("hdfs", self._hdfs())):
            (self._directory / f"{site}-site.xml").write_text(_site(settings))
        base = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path)
        server = "org.apache.hadoop.hdfs.server"
        classes: dict[Daemon, str] = {
            "namenode": f"{server}.namenode.NameNode",
            "datanode": f"{server}.datanode.DataNode",
        }
        for daemon, main in classes.items():
            self._daemons[daemon] = JavaServer(
                f"HDFS {daemon}",
                java,
                [*base, main],
                self._directory / f"{daemon}.log",
                self._serves if daemon == "datanode" else self._answers,
                {"HADOOP_USER_NAME": SUPERUSER},
            )
        try:
            namenode = self._daemons["namenode"]
            namenode.run_once([*base, classes["namenode"], "-format", "-nonInteractive"])
            namenode.launch()
            self._daemons["datanode"].launch()
            namenode.wait_until_ready()
            self._daemons["datanode"].wait_until_ready()
            self.webhdfs("PUT", "/", "SETPERMISSION", permission="777")
        except BaseException:
            self.stop()
            raise

    def pid(self, daemon: Daemon) -> int:
        """Return a daemon's process id, dead or alive."""
        return self._daemons[daemon].pid

    def kill(self, daemon: Daemon) -> None:
        """End a daemon with SIGKILL, like a dying machine; its data stay."""
        self._daemons[daemon].kill()

    def send(self, daemon: Daemon, number: signal.Signals) -> None:
        """Send a daemon a signal. Between SIGSTOP and SIGCONT it hangs."""
        self._daemons[daemon].send(number)

    def restart(self, daemon: Daemon) -> None:
        """Start a daemon on its old data and port; return when it serves. Files can be written once
        both daemons do."""
        self._daemons[daemon].start()
        if self._daemons["datanode"].alive():
            self._daemons["datanode"].wait_until_ready()

    def webhdfs(self, method: str, path: str, operation: str, **options: str) -> None:
        """Make one call of WebHDFS's REST interface as the superuser."""
        query = urllib.parse.urlencode({"op": operation, "user.name": SUPERUSER, **options})
        url = f"http://127.0.0.1:{self._http}/webhdfs/v1{path}?{query}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30):
            pass

    def stop(self) -> None:
        """Kill both daemons and remove their data."""
        for daemon in self._daemons.values():
            daemon.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _answers(self) -> bool:
        return bool(_bean(self._http, "NameNode", "FSNamesystemState"))

    def _serves(self) -> bool:
        """Whether the DataNode has registered and the NameNode lets files be written."""
        datanode = _bean(self._data_ports[1], "DataNode", "DataNodeInfo")
        actors = json.loads(datanode.get("BPServiceActorInfo") or "[]")
        state = _bean(self._http, "NameNode", "FSNamesystemState")
        return (
            [actor["ActorState"] for actor in actors] == ["RUNNING"]
            and state["FSState"] == "Operational"
            and bool(state["NumLiveDataNodes"] == 1)
        )

    def _core(self) -> dict[str, str]:
        return {"fs.defaultFS": self.uri, "hadoop.tmp.dir": str(self._directory / "tmp")}

    def _hdfs(self) -> dict[str, str]:
        data, http, ipc = (f"127.0.0.1:{port}" for port in self._data_ports)
        return {
            "dfs.namenode.name.dir": f"file://{self._directory}/name",
            "dfs.datanode.data.dir": f"file://{self._directory}/data",
            "dfs.namenode.http-address": f"127.0.0.1:{self._http}",
            "dfs.datanode.address": data,
            "dfs.datanode.http.address": http,
            "dfs.datanode.ipc.address": ipc,
            "dfs.replication": "1",
            # A killed daemon is missed, and a restarted one accepted again, within seconds.
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        }


def _bean(port: int, service: str, name: str) -> dict[str, Any]:
    """Return one of a daemon's metrics. Raises OSError if the daemon does not have it yet."""
    url = f"http://127.0.0.1:{port}/jmx?qry=Hadoop:service={service},name={name}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        beans: list[dict[str, Any]] = json.load(answer)["beans"]
    if not beans:
        raise OSError(f"the {service} is starting")
    return beans[0]


def _site(settings: Mapping[str, str]) -> str:
    properties = "".join(
        f"<property><name>{key}</name><value>{escape(value)}</value></property>\n"
        for key, value in settings.items()
    )
    return f"<configuration>\n{properties}</configuration>\n"


def _server_jars() -> list[Path]:
    """Return the class path of a NameNode and a DataNode (56 MB, fetched at the first call)."""
    version = hadoop_version()
    servers = resolve(
        f"hdfs-server-{version}",
        Request((f"org.apache.hadoop:hadoop-client-minicluster:{version}",), transitive=False),
    )
    # Only the jars the servers need of PySpark's 300: at start they search every jar on the class
    # path.
    needed = ("hadoop-client-*", "log4j-*", "slf4j-api-*", "jcl-over-slf4j-*", "commons-lang-*")
    return [*servers, *(jar for name in needed for jar in pyspark_jars().glob(f"{name}.jar"))]
