"""README's two examples as typed: blocks of the page, with another port."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds

from seamark.dev.java_server import free_ports
from tests.newcomer.conftest import Newcomer

PAGE = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = PAGE.split("```")[1::2]
JOB, WRITE_STREAM = (b.removeprefix("python\n") for b in BLOCKS if b.startswith("python\n"))
(SHELL,) = (block for block in BLOCKS if "dev kafka" in block)


def test_the_job_shows_rows_and_each_window_once_after_a_kill(newcomer: Newcomer) -> None:
    (port,) = free_ports(1)
    here = newcomer.directory
    (here / "app.py").write_text(JOB.replace("9092", str(port)))
    at = f"--bootstrap-servers localhost:{port}"
    broker, clicks, app, tail = (
        line.split("#")[0].strip().removesuffix("&") for line in SHELL.strip().splitlines()
    )
    assert app.strip() == "python app.py"

    def rows() -> int:
        return newcomer.said("rows.log").count('"count"')

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            newcomer.running(broker.replace("9092", str(port)), "broker.log")
        )
        newcomer.wait(
            lambda: f"\n127.0.0.1:{port}\n" in newcomer.said("broker.log"), "broker.log", server
        )
        stack.enter_context(newcomer.running(f"{clicks} {at}", "clicks.log"))
        reader = stack.enter_context(newcomer.running(f"{tail} {at}", "rows.log"))
        newcomer.wait(lambda: "read_committed" in newcomer.said("rows.log"), "rows.log", reader)
        with newcomer.running(app, "app.log") as job:
            newcomer.wait(rows, "app.log", job)  # and then it dies
        before = rows()
        with newcomer.running(app, "app.log") as job:
            newcomer.wait(lambda: rows() >= before + 20, "app.log", job)
    found = [line.split("\t") for line in newcomer.said("rows.log").splitlines()[1:]]
    seen = Counter((json.loads(v)["window"]["start"], json.loads(v)["user"]) for _, v in found[:-1])
    assert len(seen) >= 20
    assert set(seen.values()) == {1}
    assert all(json.loads(value)["user"] == key for key, value in found[:-1])  # text, no base64
    home = Path(newcomer.environment["SEAMARK_HOME"])
    assert (home / "checkpoints/clicks/job.json").exists()


def test_the_query_runs_on_in_a_script(newcomer: Newcomer) -> None:
    (newcomer.directory / "query.py").write_text(WRITE_STREAM)
    etl = newcomer.directory / "etl"
    with newcomer.running("python query.py", "query.log") as query:
        newcomer.wait(lambda: list(etl.glob("*.parquet")), "query.log", query)
        assert ds.dataset(etl).count_rows() > 0
        assert query.poll() is None


def test_a_session_without_kafkas_connector_is_told_the_line(newcomer: Newcomer) -> None:
    (newcomer.directory / "query.py").write_text(
        "import seamark as sm\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "options = {'kafka.bootstrap.servers': 'localhost:9092', 'subscribe': 'clicks'}\n"
        "sm.write_stream(spark.readStream.format('kafka').options(**options).load())\n"
    )
    done = newcomer.run("python", "query.py")
    assert done.returncode == 1
    (line,) = re.findall(
        "^seamark: this Spark session lacks its Kafka connector.*", done.stderr, re.M
    )
    assert re.search(r"--packages org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.\d\.\d", line)
