"""The demo, small, as a user starts it: real jobs, real kills, and its table read from its output.

Then its sinks are damaged by hand, to see the table and the exit code change.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
from pathlib import Path

import psutil
import pytest

from seamark.demo import kills, workload
from seamark.model.guarantee import Guarantee
from seamark.operations.reading import explain
from tests.newcomer.conftest import Newcomer

EPOCHS, ROWS_PER_EPOCH = 12, 400


def run_demo(newcomer: Newcomer, *arguments: object) -> subprocess.CompletedProcess[str]:
    size = ("--epochs", EPOCHS, "--rows-per-epoch", ROWS_PER_EPOCH)
    return newcomer.run("seamark", "demo", *size, *arguments)


def table(output: str) -> dict[str, list[int]]:
    """Return sink -> expected, visible, lost, duplicated, clicks."""
    rows = [line.strip("│ ").split("│") for line in output.splitlines() if line.startswith("│")]
    return {row[0].strip(): [int(cell.replace(",", "")) for cell in row[1:]] for row in rows}


def test_the_embedded_demo_loses_and_doubles_nothing_and_would_say_so(
    newcomer: Newcomer, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = newcomer.directory / "demo"
    finished = run_demo(newcomer, "--directory", "demo")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    found = table(finished.stdout)
    assert list(found) == ["SQLite", "Parquet files"]
    expected, visible, lost, duplicated, clicks = found["SQLite"]
    assert found["Parquet files"] == found["SQLite"]
    assert visible == expected
    assert (lost, duplicated) == (0, 0)
    # All but the last few windows: each stream has 20 s an epoch, two windows and the delay less.
    all_clicks = 2 * EPOCHS * ROWS_PER_EPOCH
    assert all_clicks * 0.75 < clicks < all_clicks
    assert expected > 1000
    assert finished.stdout.count("kill -9 of driver") == 2
    checkpoint = directory / "checkpoints" / "clicks"
    assert str(checkpoint) in finished.stdout
    assert (checkpoint / "spark" / "commits").is_dir()

    # Take a row from one sink and add a copy of a file to the other; the demo's own report tells.
    with sqlite3.connect(directory / "clicks.db") as database:
        database.execute("DELETE FROM per_user WHERE rowid = (SELECT max(rowid) FROM per_user)")
    database.close()
    file = max((directory / "per-user").glob("part-*.parquet"), key=lambda p: p.stat().st_size)
    shutil.copy(file, file.with_name("part-again.parquet"))
    again = workload.embedded(directory, EPOCHS, ROWS_PER_EPOCH)
    capsys.readouterr()
    kills.console.width = 200
    assert not kills.report(again, directory, 2)
    damaged = table(capsys.readouterr().out)
    assert damaged["SQLite"][:4] == [expected, expected - 1, 1, 0]
    _, visible, lost, duplicated, _ = damaged["Parquet files"]
    assert lost == 0
    assert duplicated == visible - expected > 0


def test_the_kafka_demo_loses_and_doubles_nothing(newcomer: Newcomer) -> None:
    finished = run_demo(newcomer, "--kafka", "--kills", "1")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    found = table(finished.stdout)
    assert list(found) == ["Kafka topic"]
    expected, visible, lost, duplicated, clicks = found["Kafka topic"]
    assert visible == expected > 1000
    assert (lost, duplicated) == (0, 0)
    assert EPOCHS * ROWS_PER_EPOCH * 0.75 < clicks < EPOCHS * ROWS_PER_EPOCH
    assert finished.stdout.count("kill -9 of driver") == 1


def test_a_demo_that_is_ended_leaves_no_driver(newcomer: Newcomer) -> None:
    directory = str(newcomer.directory / "demo")

    def drivers() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("CLICKS_DIRECTORY") == directory:
                    found.append(process)
        return found

    with newcomer.running("seamark demo --directory demo", "demo.log") as demo:
        log = newcomer.directory / "demo/driver-1.log"
        newcomer.wait(lambda: log.exists() and log.stat().st_size, "demo.log", demo)
        assert drivers()
        demo.terminate()
        assert demo.wait(60) == 130
        assert not drivers()


def test_the_demo_refuses_a_directory_that_is_in_use(newcomer: Newcomer) -> None:
    (newcomer.directory / "something").touch()
    finished = run_demo(newcomer, "--directory", ".")
    assert finished.returncode == 2
    assert "not empty" in finished.stderr


def test_both_examples_are_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKS_DIRECTORY", str(tmp_path))
    for program in ("clicks_embedded.py", "clicks_kafka.py"):
        reports = explain(Path(kills.__file__).with_name(program))
        assert reports
        for report in reports.values():
            assert report.guarantee is Guarantee.EXACTLY_ONCE, str(report)
