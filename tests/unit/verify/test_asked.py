"""What is asked of a verification: the command that repeats it, and refusals before any start."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamark.cli.main import app
from seamark.model.errors import ConfigurationError
from seamark.operations.verify import Verification, _run, verify
from seamark.operations.verify_app import AppUnderTest, DeclaredApp
from seamark.verify.outcome import Outcome


def test_the_command_repeats_it() -> None:
    asked = Verification("kafka-to-kafka+postgres", minutes=60, brokers=3, stop_at_first=True)
    assert asked.command(7) == (
        "seamark verify --minutes 60 --seed 7 --brokers 3 --stop-at-first "
        "--workload kafka-to-kafka+postgres"
    )


@pytest.mark.parametrize("brokers", [0, 2, 4])
def test_another_number_of_brokers_is_refused(brokers: int) -> None:
    with pytest.raises(ConfigurationError, match=f"--brokers is {brokers}; give 1 or 3"):
        verify(Verification(brokers=brokers), print)


def test_brokers_are_not_those_of_a_kafka_that_is_there() -> None:
    done = CliRunner().invoke(
        app, ["verify", "--brokers", "3", "--kafka", "localhost:9092", "--app", "app.py"]
    )
    assert done.exit_code == 2
    assert "--brokers" in done.output and "--kafka" in done.output


def test_a_run_without_any_of_its_faults_is_refused(tmp_path: Path) -> None:
    """A Kafka that was given is left alone: nothing would be tried out, and all would be good."""
    app = AppUnderTest(Path("app.py"), kafka="127.0.0.1:9")
    outcome = Outcome("app.py", 1, "", time.time(), faults=["broker", "connection"])
    said: list[str] = []
    with pytest.raises(ConfigurationError, match="none of broker, connection can be had here"):
        _run(
            Verification(app=app), DeclaredApp("job", "topic", False, {}, {}), outcome,
            tmp_path, said.append,
        )  # fmt: skip
    assert any("Kafka at 127.0.0.1:9 was given" in line for line in said)


def test_the_command_itself_does_without_what_its_drivers_need() -> None:
    """It runs for hours beside them; with pyarrow it had 60 MB more."""
    command = "import seamark.cli.verify, seamark.operations.verify, seamark.verify.trial, sys"
    shown = "print({'pyarrow', 'pandas'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{command}; {shown}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
