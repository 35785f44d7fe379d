"""A real schema registry with Confluent's API, for Avro, JSON Schema and Protobuf: Apicurio's, from
Maven, which has it beside its own.

Confluent's own is not on Maven Central, and Karapace not on PyPI. It keeps everything in memory, so
it is paused rather than killed; it checks the compatibility of schemas, as Confluent's does.
"""

from __future__ import annotations

import json
import tarfile
import urllib.request
from pathlib import Path

from seamark.dev.java_server import JavaServer, free_ports
from seamark.spark.jars import Request, find_java, resolve

VERSION = "2.6.13.Final"


class SchemaRegistryServer:
    """Started by `with`; `directory` is the caller's."""

    def __init__(self, directory: Path) -> None:
        app = f"io.apicurio:apicurio-registry-app:{VERSION}:all@tar.gz"
        (archive,) = resolve(f"apicurio-{VERSION}", Request((app,), transitive=False))
        with tarfile.open(archive) as packed:
            packed.extractall(directory, filter="data")
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self.server = JavaServer(
            "the schema registry",
            find_java(),
            [
                *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *(f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"),
                f"-Djava.io.tmpdir={directory}",
                *("-jar", str(directory / f"apicurio-registry-app-{VERSION}-runner.jar")),
            ],
            directory / "registry.log",
            self._answers,
        )

    def compatible(self, how: str) -> None:
        """Set the compatibility of all subjects, ``BACKWARD`` at first, as Confluent's."""
        body = json.dumps({"compatibility": how}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/config", body, headers, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
            return bool(answer.status == 200)

    def __enter__(self) -> SchemaRegistryServer:
        self.server.start()
        self.compatible("BACKWARD")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()
