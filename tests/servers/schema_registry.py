"""A real schema registry with Confluent's API: Cloudera's (formerly Hortonworks'), from Maven.

Confluent's own is not on Maven Central, and Karapace not on PyPI. It keeps everything in memory and
checks the compatibility of schemas, as Confluent's does. It is older than two fields, empty here,
sent by a client of today with each schema: a proxy in front of it drops them, and says 404 to a
question the server takes for an error.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from seamark.dev.java_server import JavaServer, free_ports
from seamark.runtime.jars import Request, find_java, resolve

VERSION = "0.8.1"
_SETTINGS = """
modules:
  - name: schema-registry
    className: com.hortonworks.registries.schemaregistry.webservice.SchemaRegistryModule
    config:
      schemaProviders:
        - providerClass: com.hortonworks.registries.schemaregistry.avro.AvroSchemaProvider
          defaultSerializerClass: \
com.hortonworks.registries.schemaregistry.serdes.avro.AvroSnapshotSerializer
          defaultDeserializerClass: \
com.hortonworks.registries.schemaregistry.serdes.avro.AvroSnapshotDeserializer
      schemaCacheSize: 10000
      schemaCacheExpiryInterval: 3600
servletFilters:
  - className: com.hortonworks.registries.schemaregistry.webservice.RewriteUriFilter
    params:
      forwardPaths: "/api/v1/confluent,/subjects/*,/schemas/ids/*"
      redirectPaths: "/ui/,/"
fileStorageConfiguration:
  className: com.hortonworks.registries.common.util.LocalFileSystemStorage
  properties:
    directory: "{directory}/files"
storageProviderConfiguration:
  providerClass: com.hortonworks.registries.storage.impl.memory.InMemoryStorageManager
swagger:
  resourcePackage: com.hortonworks.registries.schemaregistry.webservice
enableCors: false
server:
  applicationConnectors:
    - type: http
      bindHost: 127.0.0.1
      port: {port}
  adminConnectors:
    - type: http
      bindHost: 127.0.0.1
      port: {admin_port}
logging:
  level: WARN
"""


class SchemaRegistryServer:
    """Started by `with`; `directory` is the caller's."""

    def __init__(self, directory: Path) -> None:
        jars = resolve(
            f"schema-registry-{VERSION}",
            Request(
                (f"com.hortonworks.registries:schema-registry-webservice:{VERSION}",),
                # What it needs for Hadoop, Kerberos and clusters only; Hadoop's Jersey fails it.
                excludes=(
                    "io.confluent:*",
                    "org.apache.hadoop:*",
                    "org.apache.curator:*",
                    "org.apache.kerby:*",
                    "org.springframework:*",
                    "org.springframework.security:*",
                    "org.springframework.security.kerberos:*",
                    "io.netty:*",
                    "com.netflix.rxjava:*",
                    "biz.paluch.redis:*",
                ),
            ),
        )
        port, admin_port = free_ports(2)
        self._origin = f"http://127.0.0.1:{port}"
        self._proxy = _proxy(self._origin)
        self.url = f"http://127.0.0.1:{self._proxy.server_port}"
        settings = directory / "registry.yaml"
        settings.write_text(_SETTINGS.format(directory=directory, port=port, admin_port=admin_port))
        self._server = JavaServer(
            "the schema registry",
            find_java(),
            [
                *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                # Its libraries are of the time of Java 8.
                *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
                *("-cp", ":".join(map(str, jars))),
                "com.hortonworks.registries.webservice.RegistryApplication",
                *("server", str(settings)),
            ],
            directory / "registry.log",
            self._answers,
        )

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"{self._origin}/subjects", timeout=5) as answer:
            return bool(answer.status == 200)

    def __enter__(self) -> SchemaRegistryServer:
        self._server.start()
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()
        self._server.kill()


def _proxy(origin: str) -> ThreadingHTTPServer:
    class Forward(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/associations/"):  # asked for by readers: newer, too
                self._answer(404, b'{"error_code": 404, "message": "not found"}')
            else:
                self._forward(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert body.pop("schemaType") == "AVRO"
            assert body.pop("references") == []
            self._forward(json.dumps(body).encode())

        def _forward(self, body: bytes | None) -> None:
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(origin + self.path, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    self._answer(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Forward)
