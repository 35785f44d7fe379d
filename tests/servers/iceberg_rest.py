"""Apache Iceberg's own REST catalog on this machine: the server of its tests, out of Maven.

It keeps its catalog in a file of SQLite's and its tables on a local disk, over `kill` and
`restart`.
"""

from __future__ import annotations

import urllib.request

from seamark.dev.java_server import JavaServer
from seamark.spark.jars import Request, find_java, resolve
from tests.servers.java import OneServer

VERSION = "1.11.0"
_ICEBERG = "org.apache.iceberg:iceberg"
_OF_TESTS = (f"{_ICEBERG}-open-api:{VERSION}:test-fixtures", f"{_ICEBERG}-core:{VERSION}:tests")
_ARTIFACTS = (
    f"{_ICEBERG}-core:{VERSION}",
    "org.xerial:sqlite-jdbc:3.49.1.0",
    "org.eclipse.jetty:jetty-server:12.1.5",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.5",
    "org.eclipse.jetty.compression:jetty-compression-server:12.1.5",
    "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.5",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.slf4j:slf4j-simple:2.0.16",
)


class IcebergRest(OneServer):
    """A REST catalog, as a context manager."""

    def __init__(self) -> None:
        super().__init__("iceberg")

    @property
    def catalog(self) -> dict[str, str]:
        """The settings of a catalog for pyiceberg."""
        return self.through(self.port)

    def through(self, port: int) -> dict[str, str]:
        """Return the settings of the same catalog behind another port."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{port}"}

    def start(self) -> None:
        """Start the server and return when it answers."""
        jars = resolve(f"iceberg-rest-{VERSION}", Request(_ARTIFACTS))
        jars += resolve(f"iceberg-tests-{VERSION}", Request(_OF_TESTS, transitive=False))
        server = JavaServer(
            "Iceberg REST catalog",
            find_java(),
            [
                *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-cp", ":".join(map(str, jars)), "org.apache.iceberg.rest.RESTCatalogServer"),
            ],
            self._directory / "server.log",
            self._answers,
            {
                "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
                "CATALOG_URI": f"jdbc:sqlite:{self._directory}/catalog.db",
                "CATALOG_WAREHOUSE": f"file://{self._directory}/tables",
                "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
                "CATALOG_REST_PORT": str(self.port),
            },
        )
        self._begin(server)

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/config", timeout=5) as found:
            return bool(found.status == 200)
