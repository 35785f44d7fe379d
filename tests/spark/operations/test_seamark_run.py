"""`seamark run` with a real job: a process of its own, with Spark, ended by SIGTERM.

The program asks for an epoch every two hours and `seamark.toml` for one an hour: only the command
line's interval gives several within this test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seamark.checkpoint.store import CheckpointStore
from seamark.files.local import LocalDirectory

PROGRAM = """
import sys
import seamark as sm

job = sm.Job("j", sm.CheckpointConfig(interval="2h"))
rows = job.source(sm.DatagenSource(rows_per_second=100), uid="rows")
job.sink(rows.select("row"), sm.FileSink(sys.argv[1], format="json"), uid="out")
if __name__ == "__main__":
    print(job.config(), flush=True)
    job.run()
"""
FILE = """
[checkpoint]
interval = "1h"
storage = "store"
"""


def committed(directory: Path) -> int:
    return len(list(directory.glob("store/j/epochs/*/committed.json")))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_command_lines_interval_holds_and_a_signal_ends_the_job_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A closed terminal sends SIGHUP to each process in it."""
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "seamark.toml").write_text(FILE)
    command = [sys.executable, "-m", "seamark.cli.main", "run", "-D", "checkpoint.interval=200ms"]
    output = tmp_path / "output.txt"
    with (
        output.open("w") as log,
        subprocess.Popen(
            [*command, "app.py", "out"],
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if not k.startswith("SEAMARK_")},
            start_new_session=True,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while committed(tmp_path) < 3 and time.monotonic() < deadline:
                assert process.poll() is None, output.read_text()
                time.sleep(0.05)
            assert committed(tmp_path) >= 3, output.read_text()
            (os.killpg if number is signal.SIGHUP else os.kill)(process.pid, number)
            assert process.wait(60) == 0, output.read_text()
        finally:
            process.kill()
    lines = [line.split() for line in output.read_text().splitlines()]
    assert ["checkpoint.interval", "200ms", "command", "line"] in lines
    storage = ["checkpoint.storage", f"file://{tmp_path}/store", f"{tmp_path}/seamark.toml"]
    assert storage in lines
    prepared = {path.parent.name for path in tmp_path.glob("store/j/epochs/*/prepared.*")}
    done = {path.parent.name for path in tmp_path.glob("store/j/epochs/*/committed.json")}
    assert prepared == done  # the epoch under way at the signal was settled


FAILING = """
import json, sys
from pathlib import Path
import seamark as sm
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.functions import udf

Path("in").mkdir(exist_ok=True)
Path("in/0.json").write_text(json.dumps({"id": 7}))
job = sm.Job("j", sm.CheckpointConfig(storage="store"))
source = sm.FileSource("in", format="json", schema="id BIGINT", ending="latest")
rows = job.source(source, uid="in")

def check(row):
    raise ValueError(f"bad row {row}")

class Reader(SimpleDataSourceStreamReader):
    def initialOffset(self):
        return {"n": 7}

    def read(self, start):
        check(start["n"])

class Sensor(DataSource):
    def schema(self):
        return "id BIGINT"

    def simpleStreamReader(self, schema):
        return Reader()

if sys.argv[1] == "source":
    spark = SparkSession.active()
    spark.dataSource.register(Sensor)
    made = job.source(spark.readStream.format("Sensor").load(), uid="sensor", replayable=True)
elif sys.argv[1] == "udf":
    made = rows.select(udf(check, "bigint")("id").alias("id"))
else:
    made = rows.selectExpr("1 div (id - 7) AS id")
job.sink(made, sm.FileSink("out"), uid="out")
job.run()
"""


@pytest.mark.parametrize("seamark", [[], ["-m", "seamark.cli.main", "run"]], ids=["python", "run"])
@pytest.mark.parametrize("kind", ["udf", "div", "source"])
def test_a_failing_query_ends_the_program_with_the_users_own_lines(
    tmp_path: Path, kind: str, seamark: list[str]
) -> None:
    (tmp_path / "app.py").write_text(FAILING)
    ended = subprocess.run(
        [sys.executable, *seamark, "app.py", kind],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=240,
        env={k: v for k, v in os.environ.items() if not k.startswith("SEAMARK_")},
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    above, said, last = ended.stderr.rpartition("StreamingQueryException: ")
    assert said, ended.stderr
    lines = last.splitlines()
    assert lines[0] == (
        "job j: Spark's query has failed; a start goes on from its checkpoint."
        if kind == "source"
        else "job j: epoch 0 has failed, and nothing of it is committed; a start of the job goes "
        "on with epoch 0."
    )
    if kind != "div":
        assert re.search(r'^  File ".*app.py", line 16, in check$', last, re.MULTILINE), last
        assert "ValueError: bad row 7" in lines  # a worker of PySpark may speak after it
    else:
        assert lines[1].startswith("[DIVIDE_BY_ZERO] Division by zero."), last
    # PySpark's own log of an error with a place in the query is a line of JSON.
    shown = "\n".join(line for line in ended.stderr.splitlines() if not line.startswith('{"ts"'))
    for noise in ("py4j", "StackOverflowError", "seamark/run/", "FOREACH_BATCH"):
        assert noise not in shown, shown
    if not seamark:
        assert re.search(r'  File ".*app.py", line 41, in <module>\n    job.run\(\)\n$', above)


def test_a_superseded_driver_ends_without_javas_stack(tmp_path: Path) -> None:
    """The second driver is its lease alone: the first looks for no more."""
    (tmp_path / "app.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "seamark.cli.main", "run", "-D", "checkpoint.interval=200ms"]
    settings = ["-D", "checkpoint.storage=store", "app.py", "out"]
    output = tmp_path / "output.txt"
    with (
        output.open("w") as log,
        subprocess.Popen(
            [*command, *settings], cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if not k.startswith("SEAMARK_")},
        ) as process,
    ):  # fmt: skip
        try:
            deadline = time.monotonic() + 120
            while not committed(tmp_path) and time.monotonic() < deadline:
                time.sleep(0.05)
            store = CheckpointStore(
                LocalDirectory(tmp_path / "store/j"), LocalDirectory(tmp_path / "store/j/spark")
            )
            assert store.claim_generation(2), output.read_text()
            assert process.wait(60) == 1, output.read_text()
        finally:
            process.kill()
    said = output.read_text()
    assert "FencedError: driver generation 1 was superseded by generation 2" in said
    for noise in ("\tat ", "py4j", "seamark/run/"):
        assert noise not in said, said
