"""What the nemesis prepares; what it does is tried on real jobs (tests/chaos/test_verify.py)."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.find_spark_home import _find_spark_home

from seamark.verify.driver import DriverProcess
from seamark.verify.faulty_job import OverError
from seamark.verify.nemesis import Nemesis, spark_home
from seamark.verify.plan import SECOND, Step


def test_a_spark_of_links_has_a_place_of_its_own_for_what_executors_leave(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark")
    installed = Path(_find_spark_home())
    assert (home / "bin" / "spark-submit").samefile(installed / "bin" / "spark-submit")
    assert any((home / "jars").glob("spark-core_*.jar"))
    (home / "work").mkdir()
    assert (home / "work").resolve().parent == home.resolve()
    assert spark_home(home) == home, "the next driver with executors has the same one"


PROGRAM = """
import os, sys, time
from seamark.model import failpoints
own = int(open("drivers").read())
while True:
    failpoints.reached("prepared")
    failpoints.reached("recovered")
    time.sleep(0.01)
    if int(open("drivers").read()) > own:
        sys.exit("LostTransactionError" if os.path.exists("wrong") else 1)
"""


class Programs:
    """A `FaultyJob` without Spark: a driver ends once another one has started, and it wakes up."""

    patience_s = 60.0

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        self.failures: list[str] = []
        self.over = threading.Event()
        self.driver: DriverProcess

    def start(self, failpoint: str | None = None, environment: object = None) -> None:
        self.count += 1
        (self.directory / "drivers").write_text(str(self.count))
        log = self.directory / f"{self.count}.log"
        self.driver = DriverProcess([sys.executable, "-c", PROGRAM], log, failpoint)

    def aim(self, seconds: float) -> None:
        pass

    def recovered(self, timeout_s: float) -> bool:
        return True

    def epochs_done(self) -> int:
        return 0

    def check(self) -> None:
        if self.over.is_set():
            raise OverError

    def fail(self, text: str) -> None:
        self.failures.append(text)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize(
    ("then", "told"),
    [("recovered", "while its successor stood at recovered"), ("", "after its successor had come")],
)
def test_a_driver_is_held_at_a_point_and_woken_beside_its_successor(
    then: str, told: str, wrong: bool, tmp_path: Path
) -> None:
    programs = Programs(tmp_path)
    if wrong:
        (tmp_path / "wrong").touch()
    nemesis = Nemesis(cast(Any, None), cast(Any, programs))
    try:
        programs.start()
        step = Step(1, "pause", 0, 0, 5, SECOND, 0, 0.5, "prepared:2", then)
        assert nemesis.do(step) == f"woken {told}, ended with 1"
        assert programs.count == 3
        assert programs.driver.returncode is None, "the successor goes on"
        assert [text.split("\n")[0] for text in programs.failures] == (
            ["driver 2 (failpoint prepared:2@stop) was superseded and met LostTransactionError"]
            * wrong
        )
    finally:
        for driver in list(DriverProcess.living):
            driver.kill_tree()


def test_a_driver_dies_at_one_point_and_its_successor_at_another(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    nemesis = Nemesis(cast(Any, None), cast(Any, programs))
    try:
        programs.start()
        step = Step(1, "driver", 0, 0, 5, "", 0, 0.5, "prepared:2", "recovered:1")
        assert nemesis.do(step) == "killed, then died at prepared:2, then died at recovered:1"
        assert programs.count == 4
        assert programs.driver.returncode is None
    finally:
        for driver in list(DriverProcess.living):
            driver.kill_tree()


@pytest.mark.parametrize("fault", ["driver", "pause"])
def test_the_end_of_the_run_ends_a_fault_under_way(fault: str, tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    nemesis = Nemesis(cast(Any, None), cast(Any, programs))
    try:
        programs.start()
        threading.Timer(1, programs.over.set).start()
        with pytest.raises(OverError):
            nemesis.do(Step(1, fault, 0, 0, 5, "", 0, 0.5, "never-reached:1", ""))
    finally:
        for driver in list(DriverProcess.living):
            driver.kill_tree()
