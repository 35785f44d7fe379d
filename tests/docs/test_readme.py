"""README's two examples as typed, in an empty directory: blocks of the page, with another port."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds

from seamark.dev.java_server import free_ports

PAGE = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = PAGE.split("```")[1::2]
JOB, WRITE_STREAM = (b.removeprefix("python\n") for b in BLOCKS if b.startswith("python\n"))
(SHELL,) = (block for block in BLOCKS if "dev kafka" in block)


@contextlib.contextmanager
def running(command: str, directory: Path, log: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command line of README in the background; its whole group is killed at the end."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SEAMARK_HOME": str(directory / "home")}
    with (directory / log).open("ab") as output:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=directory, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(directory: Path, log: str, text: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 240
    while True:
        said = (directory / log).read_text(errors="replace")
        if text in said:
            return said
        assert process.poll() is None, said
        assert time.monotonic() < deadline, said
        time.sleep(0.1)


def test_the_job_shows_rows_and_each_window_once_after_a_kill(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "app.py").write_text(JOB.replace("9092", str(port)))
    at = f"--bootstrap-servers localhost:{port}"
    broker, clicks, app, tail = (
        line.split("#")[0].strip().removesuffix("&") for line in SHELL.strip().splitlines()
    )
    assert app.strip() == "python app.py"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            running(broker.replace("9092", str(port)), tmp_path, "broker.log")
        )
        wait_for(tmp_path, "broker.log", f"\n127.0.0.1:{port}\n", server)
        stack.enter_context(running(f"{clicks} {at}", tmp_path, "clicks.log"))
        reader = stack.enter_context(running(f"{tail} {at}", tmp_path, "rows.log"))
        wait_for(tmp_path, "rows.log", "read_committed", reader)
        with running(app, tmp_path, "app.log") as job:
            wait_for(tmp_path, "rows.log", '"count"', job)  # and then it dies
        before = (tmp_path / "rows.log").read_text().count('"count"')
        with running(app, tmp_path, "app.log") as job:
            deadline = time.monotonic() + 240
            while (tmp_path / "rows.log").read_text().count('"count"') < before + 20:
                assert job.poll() is None, (tmp_path / "app.log").read_text()
                assert time.monotonic() < deadline, (tmp_path / "app.log").read_text()
                time.sleep(0.1)
    rows = [line.split("\t") for line in (tmp_path / "rows.log").read_text().splitlines()[1:]]
    seen = Counter((json.loads(v)["window"]["start"], json.loads(v)["user"]) for _, v in rows[:-1])
    assert len(seen) >= 20
    assert set(seen.values()) == {1}
    assert all(json.loads(value)["user"] == key for key, value in rows[:-1])  # text, no base64
    assert (tmp_path / "home/checkpoints/clicks/job.json").exists()


def test_the_query_runs_on_in_a_script(tmp_path: Path) -> None:
    (tmp_path / "query.py").write_text(WRITE_STREAM)
    with running("python query.py", tmp_path, "query.log") as query:
        deadline = time.monotonic() + 240
        while not list((tmp_path / "etl").glob("*.parquet")):
            assert query.poll() is None, (tmp_path / "query.log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "query.log").read_text()
            time.sleep(0.1)
        assert ds.dataset(tmp_path / "etl").count_rows() > 0
        assert query.poll() is None


def test_a_session_without_kafkas_connector_is_told_the_line(tmp_path: Path) -> None:
    (tmp_path / "query.py").write_text(
        "import seamark as sm\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "options = {'kafka.bootstrap.servers': 'localhost:9092', 'subscribe': 'clicks'}\n"
        "sm.write_stream(spark.readStream.format('kafka').options(**options).load())\n"
    )
    with running("python query.py", tmp_path, "query.log") as query:
        assert query.wait(240) == 1
    said = (tmp_path / "query.log").read_text()
    (line,) = re.findall("^seamark: this Spark session lacks its Kafka connector.*", said, re.M)
    assert re.search(r"--packages org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.\d\.\d", line)
