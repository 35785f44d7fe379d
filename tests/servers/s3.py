"""A real S3 server on this machine, for development and tests: S3Proxy on a local directory.

It keeps its port and its objects (files below a directory) while the `LocalS3` lives, also over
`kill` and `restart`. A conditional write (``If-None-Match: *``) is a hard link, so exactly one of
several succeeds. The server never outlives our process (`spark/child_jvm.py`).
"""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from seamark.dev.java_server import JavaServer
from seamark.spark.jars import Request, find_java, resolve
from tests.servers.java import OneServer

S3PROXY_VERSION = "4.1.0"


class LocalS3(OneServer):
    """An S3 server with one bucket, as a context manager or by `start` and `stop`.

    signed: requests must be signed with `access_key` and `secret_key`.

    Raises the errors of `JavaServer.start`, and `MissingDependencyError` without Java or the jars.
    """

    bucket = "seamark"

    def __init__(self, *, signed: bool = True) -> None:
        super().__init__("s3")
        self.access_key, self.secret_key = "seamark", secrets.token_hex(20)
        self._signed = signed

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self.port}"

    def spark_settings(self, endpoint: str = "") -> dict[str, str]:
        """Return a Spark session's settings for this bucket alone.

        endpoint: another address in front of this server.
        """
        prefix = f"spark.hadoop.fs.s3a.bucket.{self.bucket}"
        return {
            f"{prefix}.endpoint": endpoint or self.endpoint,
            f"{prefix}.endpoint.region": "us-east-1",
            f"{prefix}.path.style.access": "true",
            f"{prefix}.connection.ssl.enabled": "false",
            f"{prefix}.access.key": self.access_key,
            f"{prefix}.secret.key": self.secret_key,
        }

    def start(self) -> None:
        """Start the server and return when it answers."""
        (self._directory / "objects" / self.bucket).mkdir(parents=True, exist_ok=True)
        settings = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4" if self._signed else "none",
            "s3proxy.identity": self.access_key,
            "s3proxy.credential": self.secret_key,
            "jclouds.provider": "filesystem",
            "jclouds.identity": "identity",
            "jclouds.credential": "credential",
            "jclouds.filesystem.basedir": str(self._directory / "objects"),
        }
        properties = self._directory / "s3proxy.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        class_path = ":".join(map(str, _server_jars()))
        server = JavaServer(
            "S3 server",
            find_java(),
            [
                *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-DLOG_LEVEL=warn"),
                *("-cp", class_path, "org.gaul.s3proxy.Main", "--properties", str(properties)),
            ],
            self._directory / "server.log",
            self._answers,
        )
        self._begin(server)

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
            client.sendall(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            return client.recv(5) == b"HTTP/"


def _server_jars() -> list[Path]:
    """Return the class path of S3Proxy, an S3 server on a local directory (fetched at the first
    call). Leaves out its dependencies for other clouds."""
    return resolve(
        f"s3proxy-{S3PROXY_VERSION}",
        Request(
            (f"org.gaul:s3proxy:{S3PROXY_VERSION}",),
            excludes=(
                "com.azure:*",
                "com.google.cloud:*",
                "com.github.openstack4j.core:*",
                "com.github.openstack4j.core.connectors:*",
                "org.apache.sshd:*",
                "io.netty:*",
            ),
        ),
    )
