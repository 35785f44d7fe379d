"""Drivers that the cluster runs, and operators that are somewhere else.

How: `org.apache.spark.deploy.PythonRunner` is submitted in cluster mode with `--supervise`, as
docs/deploy/standalone.md says, so a worker of the cluster starts the driver, and starts it again
when it dies. Executors, a worker and the driver are killed with -9 in turn while rows keep coming,
speculation on. The verbs run as on another machine: with a home of their own, and the token in
their environment; they know of the driver what the storage says. So does a dashboard, in a real
browser. In the end every row is there
once.

The tests on HDFS and S3 take minutes: make chaos ARGS="-k day_of_a_cluster"
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos import checker
from tests.chaos.driver import REPOSITORY, wait_until
from tests.class_archive import JAVA_OPTIONS
from tests.dashboard.chromium import Visit, browser
from tests.dashboard.server import Dashboard
from tests.integration.cluster.spark_cluster import HOSTS, SparkCluster
from tests.integration.cluster.test_cluster import ClusterScenario
from tests.servers.needed import needed

TOKEN = "the-token-of-driver-and-operators-0123456789"
PATIENCE_S = 240
ELSEWHERE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""Spark gives a driver in cluster mode the environment of its spark-submit."""


class ClusterModeScenario(ClusterScenario):
    """The job of `app.py`, its driver on the cluster. `conf` are Spark settings of the storage."""

    def __init__(
        self,
        directory: Path,
        servers: str,
        cluster: SparkCluster,
        storage: str = "",
        conf: dict[str, str] | None = None,
    ) -> None:
        super().__init__(directory, servers, cluster)
        self.cluster = cluster
        self.conf = conf or {}
        self.uri = storage or f"file://{self.storage}"
        self.options["storage"] = self.uri
        self.home = directory / "elsewhere"
        self.home.mkdir()

    def submit(self, **options: Any) -> None:
        """Submit the job, and return when it runs."""
        package = str(self.directory / "seamark.zip")
        jar = next(Path(pyspark.__file__).parent.glob("jars/spire-platform_*.jar"))
        settings = {
            "spark.submit.pyFiles": package,
            "spark.files": package,
            "spark.driver.memory": "512m",
            **self.conf,
        }
        done = subprocess.run(
            [
                *self.launcher, "--deploy-mode", "cluster", "--supervise",
                *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
                *("--class", "org.apache.spark.deploy.PythonRunner", str(jar)),
                *(str(REPOSITORY / "tests/integration/cluster/app.py"), package),
                json.dumps({**self.options, **options}),
            ],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            env={**ELSEWHERE, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]

    def grows(self) -> None:
        """Wait until rows can be seen that were not sent when this was called."""
        sent = len(self.feeder.rows)
        try:
            wait_until("new rows", lambda: len(self.reader.rows) > sent, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()[-4000:]}") from None

    def said(self) -> str:
        """Return what the drivers have said, in the workers' directories."""
        logs = sorted(self.directory.glob("work-*/driver-*/std*"), key=lambda p: p.stat().st_mtime)
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def verb(self, *arguments: str, storage: str | None = "") -> str:
        """Run a verb elsewhere; return what it prints. None is for verbs that take no storage."""
        where = () if storage is None else ("--storage", storage or self.uri)
        done = subprocess.run(
            [sys.executable, "-m", "seamark.cli.main", *arguments, *where],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            cwd=self.home,
            env={
                **os.environ, "PYTHONPATH": f"{REPOSITORY}/src", "SEAMARK_TOKEN": TOKEN,
                "SEAMARK_HOME": str(self.home), **self.own_spark(),
            },
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stderr}\n{self.said()[-4000:]}"
        return done.stdout

    def own_spark(self) -> dict[str, str]:
        """Return the environment for a Spark that reads the storage elsewhere."""
        conf = " ".join(f"--conf {key}={value}" for key, value in self.conf.items())
        return {
            "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
            "PYSPARK_SUBMIT_ARGS": f"--master local[1] {conf} pyspark-shell",
        }

    def take_checkpoint_in_a_browser(self) -> None:
        """Log in to a dashboard elsewhere, and have the job take a checkpoint."""
        here = {"SEAMARK_TOKEN": TOKEN, **self.own_spark()}
        dashboard = Dashboard(self.uri, self.home, "--address", "0.0.0.0", environment=here)
        with needed("a browser"), browser() as chromium, dashboard:
            tab = Visit(chromium, dashboard.url)
            tab.log_in(dashboard.token)
            tab.page.get_by_role("link", name="cluster", exact=True).click()
            tab.take_checkpoint()
            assert tab.faults == []
            tab.close()

    def listed(self, state: str, storage: str = "") -> dict[str, Any]:
        """Wait until `seamark list` says this of the job; return all it says."""

        def found() -> Any:
            jobs = json.loads(self.verb("list", "-a", "--json", storage=storage))
            return next((job for job in jobs if job["state"] == state), None)

        return dict(wait_until(f"the job is {state}", found, PATIENCE_S, pause_s=1))

    def kill_driver(self) -> None:
        """Kill the driver with -9, and wait for the one that the cluster starts."""
        (driver,) = self.cluster.drivers()
        driver.kill()
        wait_until(
            "another driver", lambda: self.cluster.drivers() not in ([], [driver]), PATIENCE_S
        )

    def end_with_savepoint(self, directory: str, storage: str = "") -> str:
        """End the job from elsewhere; return the savepoint's path."""
        told = self.verb("stop", "cluster", "-p", directory, storage=storage)
        wait_until("a stopped driver stays away", lambda: not self.cluster.drivers(), PATIENCE_S)
        return next(word for word in told.split() if word.startswith(f"{directory}/"))

    def all_there(self) -> None:
        """End the input, and wait until all of it can be seen."""
        self.feeder.close()
        try:
            wait_until(
                "every row", lambda: self.visible() >= self.expected(), PATIENCE_S, pause_s=0.2
            )
        except AssertionError as error:
            counts = f"{self.visible()} of {self.expected()}"
            raise AssertionError(f"{error}: {counts}\n{self.said()[-4000:]}") from None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    home = tmp_path / "home"
    home.mkdir()
    environment = {"SEAMARK_TOKEN": TOKEN, "SEAMARK_HOME": str(home)}
    with SparkCluster(tmp_path, memory="2g", environment=environment) as running:
        yield running


def test_a_killed_driver_comes_back_and_is_operated_from_elsewhere(
    kafka: LocalKafka, cluster: SparkCluster, tmp_path: Path
) -> None:
    with ClusterModeScenario(tmp_path, kafka.bootstrap_servers, cluster) as scenario:
        scenario.submit()
        scenario.grows()
        first = scenario.listed("RUNNING")
        assert not first["rest-url"].startswith("http://127."), "its address is told by itself"
        scenario.kill_driver()
        scenario.grows()
        second = scenario.listed("RUNNING")
        assert (second["jid"], second["pid"]) != (first["jid"], first["pid"])
        scenario.take_checkpoint_in_a_browser()
        scenario.all_there()
        scenario.verb("stop", "cluster")
        assert scenario.listed("FINISHED")["jid"] == first["jid"]
        wait_until("a stopped driver stays away", lambda: not cluster.drivers(), PATIENCE_S)
        checker.require_none(scenario.check())
        scenario.require_settled()


@pytest.mark.chaos
@pytest.mark.parametrize("store", ["hdfs", "s3a"])
def test_a_day_of_a_cluster(
    kafka: LocalKafka,
    cluster: SparkCluster,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    store: str,
) -> None:
    server = request.getfixturevalue("hdfs" if store == "hdfs" else "s3")
    base = server.uri if store == "hdfs" else f"s3a://{server.bucket}/{tmp_path.name}"
    conf = {} if store == "hdfs" else server.spark_settings()
    uri = f"{base}/jobs"
    with ClusterModeScenario(tmp_path, kafka.bootstrap_servers, cluster, uri, conf) as scenario:
        scenario.submit()
        scenario.grows()
        cluster.executors()[0].kill()
        scenario.grows()
        scenario.kill_driver()
        scenario.grows()
        for host in HOSTS:  # one of them runs the driver
            cluster.replace_worker(host)
            scenario.grows()
        assert scenario.listed("RUNNING")["name"] == "cluster"
        scenario.take_checkpoint_in_a_browser()
        scenario.verb("savepoint", "cluster", f"{base}/savepoints")
        path = scenario.end_with_savepoint(f"{base}/last")
        other = f"{uri}-2"
        scenario.submit(storage=other, restore=path, parallelism=3, prefix=f"{scenario.prefix}-2")
        scenario.grows()
        scenario.kill_driver()  # the next one finds the restore done, and goes on
        scenario.grows()
        assert scenario.listed("RUNNING", storage=other)["name"] == "cluster"
        scenario.all_there()
        path = scenario.end_with_savepoint(f"{base}/last", storage=other)
        held = json.loads(scenario.verb("savepoint", "inspect", path, "--json", storage=None))
        assert [operator["partitions"] for operator in held["operators"]] == [3]
        checker.require_none(scenario.check())
        assert scenario.open_transactions() == []
