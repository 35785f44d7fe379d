"""Savepoints from the command line: taken from a running driver, looked at, restored with another
number of partitions (killed by SIGKILL on the way, and done again), disposed of.

How: the program's drivers are processes of their own, and every verb is one; the sink's files are
read in the end: of the rows read by the jobs, each is counted once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.driver import Driver, wait_until

PROGRAM = """
import json, sys
import seamark as sm
from pyspark.sql import functions as F

name = json.loads(sys.argv[1])["name"]
class Changes(sm.FileSink):
    output_modes = ("append", "update")

job = sm.Job(name, sm.CheckpointConfig(storage="store", interval="1s"), "update")
rows = job.source(sm.DatagenSource(rows_per_second=100), uid="rows")
counts = job.uid(rows.groupBy((F.col("row") % 10).alias("digit")).count(), "digits")
job.sink(counts, Changes("out/" + name, format="json"), uid="files")
if __name__ == "__main__":
    job.run()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "seamark.toml").write_text('[checkpoint]\nstorage = "store"\n')
    return tmp_path


@pytest.fixture
def started(home: Path) -> Iterator[list[Driver]]:
    drivers: list[Driver] = []
    yield drivers
    for driver in drivers:
        driver.kill_tree()


def seamark(home: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "seamark.cli.main", *arguments],
        cwd=home, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stdout + done.stderr


def start(home: Path, started: list[Driver], name: str, **environment: str) -> Driver:
    def executions() -> list[Path]:
        return list((home / "store" / name / "executions").glob("*/started.json"))

    before = len(executions())
    driver = Driver(home / "app.py", {"name": name}, home / f"{name}.log", environment=environment)
    started.append(driver)

    def begins() -> bool:
        assert driver.returncode is None, driver.tail()
        return len(executions()) > before

    def runs() -> bool:
        assert driver.returncode is None, driver.tail()
        jobs = json.loads(seamark(home, "list", "--running", "--json"))
        return any(job["name"] == name and job["state"] == "RUNNING" for job in jobs)

    wait_until("the job begins", begins, 240)  # until then each question would be a process more
    wait_until("the job runs", runs, 240)
    return driver


def last_counts(home: Path, name: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for path in (home / "out" / name).glob("*.json"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["digit"]] = max(row["count"], found.get(row["digit"], 0))
    return found


def counted(home: Path, name: str) -> bool:
    return len(last_counts(home, name)) == 10


def test_taken_looked_at_restored_and_disposed_of(home: Path, started: list[Driver]) -> None:
    first = start(home, started, "first")
    wait_until("counts", lambda: counted(home, "first"), 120)
    taken = seamark(home, "savepoint", "first", "savepoints").split("Path: ")[1].strip()
    shown: dict[str, Any] = json.loads(seamark(home, "savepoint", "inspect", taken, "--json"))
    assert [(o["uid"], o["rows"]) for o in shown["operators"]] == [("digits", 10)]
    assert [s["uid"] for s in shown["sources"]] == ["rows"]
    last = seamark(home, "stop", "first", "-p", "savepoints", "--drain").split("Path: ")[1].strip()
    assert first.wait(60) == 0, first.tail()
    saved = json.loads(seamark(home, "savepoint", "inspect", last, "--json"))
    differences = json.loads(seamark(home, "savepoint", "diff", taken, last, "--json"))
    assert {"epoch", "offset"} <= {one["what"] for one in differences}
    assert "hold the same" in seamark(home, "savepoint", "diff", last, last)
    before = last_counts(home, "first")
    rows = saved["sources"][0]["offset"]["row"]
    assert sum(before.values()) == rows, "nothing is written after the savepoint's epoch"

    assert "there is no savepoint here" in seamark(home, "savepoint", "inspect", "no", code=2)
    assert not (home / "no").exists()
    program = ("app.py", json.dumps({"name": "second"}))
    plan = json.loads(seamark(home, "run", "-s", last, "-p", "3", "--plan", "--json", *program))
    assert plan["restorable"]
    (operator,) = plan["operators"]
    assert (operator["uid"], operator["action"], operator["rows"]) == ("digits", "mapped", 10)
    assert plan["sources"][0]["offset"]["row"] == rows
    assert not (home / "store/second").exists()
    restore = {"SEAMARK_RESTORE": last, "SEAMARK_PARALLELISM": "3"}
    restore["SEAMARK_CLAIM_MODE"] = "claim"
    for failpoint in ("state-restored", "restored"):
        log = home / f"{failpoint}.log"
        Driver(home / "app.py", {"name": "second"}, log, failpoint, environment=restore).die()
        whole = (home / "store/second/job.json").exists()
        assert whole == (failpoint == "restored")
    program = ("app.py", json.dumps({"name": "third"}))
    refused = seamark(home, "run", "-s", last, "--plan", *program, code=4)
    assert "was claimed by job 'second'" in refused
    assert "It cannot be restored so." in refused
    seamark(home, "savepoint", "-d", last, code=2)
    second = start(home, started, "second", **restore)
    wait_until("counts", lambda: counted(home, "second"), 120)
    seamark(home, "stop", "second")
    assert second.wait(60) == 0, second.tail()
    after = last_counts(home, "second")
    assert all(after[digit] > count for digit, count in before.items())
    epochs = home / "store/second/spark/offsets"
    offset = max(epochs.iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    assert '"spark.sql.shuffle.partitions":"3"' in offset.read_text()

    seamark(home, "savepoint", "-d", taken)
    assert not Path(taken.removeprefix("file:")).exists()
    seamark(home, "savepoint", "-d", taken, code=2)
    # The job with the claim on the other one has deleted it.
    assert not list((home / "savepoints").iterdir())
