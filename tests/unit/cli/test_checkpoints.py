"""How: a coordinator leaves a real job directory, and `seamark checkpoints` is called on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seamark.cli.main import app
from seamark.model.errors import CheckpointError
from tests.unit.checkpoint.test_coordinator import World, until


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    world = World(tmp_path / "store/clicks")
    driver = world.driver()
    for epoch in range(30):
        world.epoch(driver, epoch)
        world.decide(epoch)
        until(lambda: driver.last_committed == epoch)  # noqa: B023
    driver.begin_epoch(30)
    driver.fail(CheckpointError("timeout [600 s]"))
    with pytest.raises(CheckpointError):
        driver.finish()
    return tmp_path / "store"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["checkpoints", *map(str, arguments)])


def test_the_history_is_a_table_and_flinks_json(storage: Path) -> None:
    shown = call("clicks", "--storage", storage)
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert lines[0].startswith("31 checkpoints: 30 completed, 1 failed, 0 in progress; 0 restored")
    assert "30 failed: timeout [600 s]" in lines
    assert "… and 11 older ones: --json shows all" in lines
    row = next(line.split() for line in lines if line.split()[:1] == ["29"])
    assert row[1] == "COMPLETED"
    assert any(line.strip().startswith("end to end duration") for line in lines)

    page = json.loads(call("clicks", "--storage", storage, "--json").output)
    assert len(page["history"]) == 31
    assert page["latest"]["completed"]["id"] == 29
    assert page["latest"]["completed"]["external_path"] == f"file://{storage}/clicks/epochs/29"
    # The fields of Flink 2.2; ours has more.
    assert {
        "className", "id", "status", "is_savepoint", "savepointFormat", "trigger_timestamp",
        "latest_ack_timestamp", "checkpointed_size", "state_size", "end_to_end_duration",
        "alignment_buffered", "processed_data", "persisted_data", "num_subtasks",
        "num_acknowledged_subtasks", "checkpoint_type", "tasks", "external_path", "discarded",
    } <= set(page["latest"]["completed"])  # fmt: skip
    assert set(page["summary"]["end_to_end_duration"]) == {
        "min", "max", "avg", "p50", "p90", "p95", "p99", "p999",
    }  # fmt: skip
    assert {
        "checkpointed_size", "state_size", "end_to_end_duration", "alignment_buffered",
        "processed_data", "persisted_data",
    } <= set(page["summary"])  # fmt: skip


def test_a_single_checkpoint_is_counted_as_one(tmp_path: Path) -> None:
    world = World(tmp_path / "store/clicks")
    driver = world.driver()
    world.epoch(driver, 0)
    world.decide(0)
    driver.finish()
    shown = call("clicks", "--storage", tmp_path / "store")
    assert shown.output.startswith("1 checkpoint: 1 completed")


def test_one_checkpoint_is_shown_with_its_operators(storage: Path) -> None:
    shown = call("clicks", "--storage", storage, "--id", 7)
    assert "checkpoint 7: COMPLETED" in shown.output
    assert any(line.split()[:2] == ["orders", "all"] for line in shown.output.splitlines())
    page = json.loads(call("clicks", "--storage", storage, "--id", 7, "--json").output)
    assert page["tasks"]["orders"]["subtasks"][0]["checkpoint"].keys() == {"sync", "async"}


def test_the_storage_may_stand_in_the_settings_file(storage: Path) -> None:
    (storage.parent / "seamark.toml").write_text(f'[checkpoint]\nstorage = "{storage}"\n')
    assert call("clicks").output.startswith("31 checkpoints")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["orders", "--storage", "store"],
            "holds no job 'orders' (a name, an id, or its first digits); there are clicks",
        ),
        (["clicks", "--storage", "nowhere"], "there is none at all"),
        (["clicks", "--storage", "store", "--id", 99], "kept are those from 0 to 30"),
        (["clicks"], "/checkpoints holds no job"),
    ],
)
def test_mistakes_are_said_in_one_paragraph(
    storage: Path, arguments: list[object], message: str
) -> None:
    ended = call(*arguments)
    assert ended.exit_code == 2
    assert message in ended.output
    assert not (storage.parent / "nowhere").exists()
