"""At-least-once and at-most-once, each killed once by kill -9 between two sinks of one epoch.

Three files make three epochs. The driver (and its JVM) dies by its own SIGKILL in epoch 1 when the
first database has the rows and the second has not; Spark has not decided the epoch. Both databases
are read then, as another program reads them, and again when a second driver has gone on to the end:
they must hold the mode's promises, and show its limits.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from seamark.spark.session import spark_session
from tests.chaos import app_modes
from tests.chaos.driver import Driver
from tests.chaos.workload import read_column

EPOCHS = [list(range(n, n + 5)) for n in (0, 5, 10)]
IN_EPOCH_1 = "ledger-committed:3"  # two an epoch: the third is the first database's in epoch 1


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return spark_session("tests")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One killed driver of each mode; they run at the same time."""
    drivers, options = {}, {}
    for mode in ("at-least-once", "at-most-once"):
        directory = tmp_path_factory.mktemp(mode)
        (directory / "in").mkdir()
        for number, ids in enumerate(EPOCHS):
            lines = [json.dumps({"id": i}) for i in ids]
            file = directory / f"in/{number}.json"
            file.write_text("\n".join(lines))
            os.utime(file, (1_700_000_000 + number,) * 2)  # the oldest is read first
        options[mode] = {
            "mode": mode,
            "storage": str(directory / "store"),
            "input": str(directory / "in"),
            "first": str(directory / "first.db"),
            "second": str(directory / "second.db"),
        }
        program = Path(app_modes.__file__)
        drivers[mode] = Driver(program, options[mode], directory / "log", failpoint=IN_EPOCH_1)
    for driver in drivers.values():
        driver.die()
    return options


def both(options: dict[str, Any]) -> tuple[list[int], list[int]]:
    return tuple(sorted(read_column(Path(options[s]), "t", "id")) for s in ("first", "second"))


def decided(options: dict[str, Any], epoch: int) -> bool:
    return (Path(options["storage"]) / f"modes/spark/commits/{epoch}").exists()


def test_at_least_once_loses_nothing_shows_rows_early_and_doubles_them(
    killed: dict[str, dict[str, Any]], spark: SparkSession
) -> None:
    options = killed["at-least-once"]
    assert not decided(options, 1)
    first, second = both(options)
    assert first == EPOCHS[0] + EPOCHS[1], "epoch 1 is not visible before its decision"
    assert second == EPOCHS[0]
    app_modes.run(options)
    first, second = both(options)
    assert set(first) == set(second) == {i for ids in EPOCHS for i in ids}, "rows were lost"
    assert first == sorted(EPOCHS[0] + 2 * EPOCHS[1] + EPOCHS[2]), "a replay doubles, once"
    assert second == EPOCHS[0] + EPOCHS[1] + EPOCHS[2]


def test_at_most_once_doubles_nothing_and_loses_what_was_under_way(
    killed: dict[str, dict[str, Any]], spark: SparkSession
) -> None:
    options = killed["at-most-once"]
    assert not decided(options, 1)
    app_modes.run(options)
    first, second = both(options)
    assert first == EPOCHS[0] + EPOCHS[1] + EPOCHS[2], "rows were doubled"
    assert second == EPOCHS[0] + EPOCHS[2], "the replay of epoch 1 was not skipped"
    staged = Path(options["second"] + ".seamark")
    assert not [p for p in staged.rglob("*") if p.is_file()], "epoch 1's rows lie about"
