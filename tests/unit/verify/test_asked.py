"""What is asked of a verification: the command that repeats it, and refusals before any start."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from seamark.cli.main import app
from seamark.model.errors import ConfigurationError
from seamark.operations.verify import Verification, verify


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
