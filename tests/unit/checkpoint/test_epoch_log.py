"""How: a real coordinator on a real directory goes through epochs (Spark is played by `decide`);
its log lines are parsed by the rules of the page of logs."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.checkpoint.coordinator import Coordinator
from tests.unit.checkpoint.test_coordinator import World, until

PAGE = Path(__file__).resolve().parents[3] / "docs/operations/logs.md"


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    caplog.set_level(logging.INFO, logger="seamark.epochs")
    yield World(tmp_path)


def run(world: World, driver: Coordinator, *epochs: int) -> None:
    for epoch in epochs:
        world.epoch(driver, epoch)
        world.decide(epoch)
        until(lambda: driver.last_committed == epoch)  # noqa: B023


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    """Parse the lines; of `shlex` and JSON the quotes are the same here."""
    return [
        dict(word.split("=", 1) for word in shlex.split(record.getMessage()))
        for record in caplog.records
        if record.name == "seamark.epochs"
    ]


def test_each_epoch_has_one_line_and_its_phases_add_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    driver = world.driver()
    run(world, driver, 0, 1, 2)
    driver.finish()
    assert [(line["epoch"], line["status"]) for line in lines(caplog)] == [
        ("0", "COMPLETED"), ("1", "COMPLETED"), ("2", "COMPLETED"),
    ]  # fmt: skip
    identity = driver.identity
    assert identity is not None
    for line in lines(caplog):
        assert (line["job"], line["job_id"], line["generation"]) == ("job", identity.job_id, "1")
        assert (line["rows"], line["committables"]) == ("10", "1")
        phases = ("read_and_process_ms", "pre_commit_ms", "decision_ms", "commit_ms")
        assert sum(int(line[name]) for name in phases) == int(line["duration_ms"])
        assert 0 <= int(line["decision_wait_ms"]) <= int(line["duration_ms"])


def test_an_epoch_that_ends_undecided_has_one_line_with_the_reason(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    driver = world.driver()
    run(world, driver, 0)
    driver.begin_epoch(1)
    driver.finish(reason='stopped by "me"')
    first, last = lines(caplog)
    assert first["epoch"] == "0"
    assert (last["epoch"], last["status"], last["reason"]) == ("1", "FAILED", 'stopped by "me"')
    assert "commit_ms" not in last
    assert "read_and_process_ms" not in last


def test_a_record_has_each_key_as_an_attribute_and_the_page_knows_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    driver = world.driver()
    run(world, driver, 0)
    driver.finish()
    (record,) = (record for record in caplog.records if record.name == "seamark.epochs")
    (line,) = lines(caplog)
    page = PAGE.read_text()
    for key, text in line.items():
        assert str(getattr(record, key)) == text
        assert f"`{key}`" in page
    assert isinstance(vars(record)["rows"], int)
    json.dumps({key: vars(record)[key] for key in line})
