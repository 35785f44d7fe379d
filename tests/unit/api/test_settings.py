"""Settings from a real `seamark.toml` and from the command line, laid over a program's own.

Each test has a directory of its own as the current one, and an environment without Seamark's
variables; `command_line` sets the options of `seamark run -D`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import seamark as sm
from seamark.api.settings import COMMAND_LINE_VARIABLE, FILE_VARIABLE, Setting, resolve
from seamark.model.errors import ConfigurationError
from seamark.operations.storage import storage_of, storage_option

PROGRAM = sm.CheckpointConfig(
    storage="/program",
    interval="1s",
    num_retained=3,
    restart_strategy=sm.RestartStrategy.fixed_delay(attempts=3, delay="2s"),
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    monkeypatch.delenv(COMMAND_LINE_VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch):
    def give(*texts: str) -> None:
        monkeypatch.setenv(COMMAND_LINE_VARIABLE, json.dumps(texts))

    return give


def test_without_file_and_command_line_the_program_holds() -> None:
    config, settings, _ = resolve("j", PROGRAM)
    assert config == PROGRAM
    assert settings["checkpoint.interval"] == Setting("1s", "program")
    assert settings["checkpoint.timeout"] == Setting("10min", "default")
    assert settings["checkpoint.restart_strategy.attempts"] == Setting(3, "program")
    # A program giving the default's value has given it.
    given = sm.CheckpointConfig(storage="/s", timeout="10min")
    assert resolve("j", given)[1]["checkpoint.timeout"].origin == "program"


def test_command_line_over_file_over_program(directory: Path, command_line) -> None:
    file = directory / "seamark.toml"
    file.write_text(
        """
        [checkpoint]
        interval = "2s"
        num_retained = 4
        changelog = true
        state_backend = "rocksdb"
        min_pause = 0.5
        """
    )
    command_line("checkpoint.interval=3", "checkpoint.changelog=false", "checkpoint.min_pause=1.5")
    config, settings, _ = resolve("j", PROGRAM)
    assert (config.interval_s, config.num_retained, config.min_pause_s) == (3, 4, 1.5)
    assert config.state_backend is sm.StateBackend.ROCKSDB
    assert config.changelog is False
    assert config.storage == "file:///program"
    assert settings["checkpoint.interval"] == Setting(3, "command line")
    assert settings["checkpoint.num_retained"] == Setting(4, str(file))
    assert settings["checkpoint.storage"] == Setting("file:///program", "program")


def test_a_job_that_names_no_storage_has_the_users_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same for `run` and for every verb: `storage_of` asks with an empty configuration."""
    program, file = sm.CheckpointConfig(interval="5s"), tmp_path / "seamark.toml"
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SEAMARK_STORAGE", raising=False)
    for settings in (program, sm.CheckpointConfig()):
        config, origins, _ = resolve("j", settings)
        assert config.storage == (tmp_path / "home/checkpoints").as_uri()
        assert origins["checkpoint.storage"].origin == str(tmp_path / "home")
    assert storage_of(None) == config.storage
    assert storage_option(config.storage) == ""

    monkeypatch.setenv("SEAMARK_STORAGE", "hdfs://n/seamark")
    config, origins, _ = resolve("j", program)
    assert config.storage == storage_of(None) == "hdfs://n/seamark"
    assert origins["checkpoint.storage"] == Setting("hdfs://n/seamark", "SEAMARK_STORAGE")
    assert resolve("j", PROGRAM)[0].storage == "file:///program"
    file.write_text('checkpoint.storage = "/file"')
    assert resolve("j", program)[0].storage == storage_of(None) == "file:///file"
    assert storage_of("/given") == "file:///given"

    file.write_text("")
    monkeypatch.setenv("SEAMARK_STORAGE", "wasb://c@a/x")
    with pytest.raises(ConfigurationError, match="SEAMARK_STORAGE"):
        resolve("j", program)


def test_storage_may_come_from_outside_alone(command_line) -> None:
    command_line("checkpoint.storage=s3a://bucket/a=b")
    assert resolve("j", sm.CheckpointConfig(interval="5s"))[0].storage == "s3a://bucket/a=b"
    ephemeral = sm.CheckpointConfig(storage=sm.EphemeralStorage())
    assert resolve("j", ephemeral)[0].storage == "s3a://bucket/a=b"


def test_ephemeral_storage_of_the_program_stays() -> None:
    config, _, _ = resolve("j", sm.CheckpointConfig(storage=sm.EphemeralStorage()))
    assert config.storage == sm.EphemeralStorage()


def test_the_last_of_two_on_the_command_line_holds(command_line) -> None:
    command_line("checkpoint.interval=3s", "checkpoint.interval = 4s")
    assert resolve("j", PROGRAM)[0].interval_s == 4


# --- restart strategies


def test_a_parameter_alone_changes_the_programs_strategy(command_line) -> None:
    command_line("checkpoint.restart_strategy.attempts=9")
    config, settings, _ = resolve("j", PROGRAM)
    assert config.restart_strategy == sm.RestartStrategy.fixed_delay(attempts=9, delay="2s")
    assert settings["checkpoint.restart_strategy.type"].origin == "program"
    assert settings["checkpoint.restart_strategy.attempts"].origin == "command line"


def test_another_type_leaves_the_lower_layers_parameters_behind(
    directory: Path, command_line
) -> None:
    (directory / "seamark.toml").write_text(
        '[checkpoint.restart_strategy]\ntype = "failure_rate"\ndelay = "5s"\n'
    )
    expected = sm.RestartStrategy.failure_rate(delay="5s")
    config, settings, _ = resolve("j", PROGRAM)
    assert config.restart_strategy == expected
    assert "checkpoint.restart_strategy.attempts" not in settings
    assert settings["checkpoint.restart_strategy.max_failures_per_interval"].origin == "default"
    command_line("checkpoint.restart_strategy.type=none")
    assert resolve("j", PROGRAM)[0].restart_strategy == sm.RestartStrategy.none()
    command_line("checkpoint.restart_strategy.type=failure_rate")  # the file's own: its delay stays
    assert resolve("j", PROGRAM)[0].restart_strategy == expected


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["checkpoint.restart_strategy.type=often"], "type is 'often'; allowed are 'none', 'fixed"),
        (["checkpoint.restart_strategy.type=3"], "type is 3; allowed are"),
        (["checkpoint.restart_strategy.jitter_factor=0.5"], "jitter_factor is given, but type"),
        (
            ["checkpoint.restart_strategy.type=none", "checkpoint.restart_strategy.delay=1s"],
            "delay is given, but type 'none' takes no parameters",
        ),
        (["checkpoint.restart_strategy.attempts=-1"], "attempts is -1; give a whole number"),
    ],
)
def test_a_strategy_that_is_none_is_refused(command_line, texts: list[str], message: str) -> None:
    command_line(*texts)
    with pytest.raises(ConfigurationError, match=message) as refused:
        resolve("j", PROGRAM)
    assert "was given on the command line" in str(refused.value)


# --- mistakes: each says where it was made


def test_a_bad_value_says_where_it_was_given(directory: Path, command_line) -> None:
    file = directory / "seamark.toml"
    file.write_text('[checkpoint]\nmode = "twice"\nnum_retained = 4\n')
    with pytest.raises(ConfigurationError) as refused:
        resolve("clicks", PROGRAM)
    assert str(refused.value) == (
        "Job 'clicks': CheckpointConfig: mode is 'twice'; allowed are 'exactly-once', "
        f"'at-least-once', 'at-most-once' (checkpoint.mode was given in {file})"
    )
    command_line("checkpoint.mode=exactly-once", "checkpoint.timeout=soon")
    with pytest.raises(ConfigurationError, match=r"'soon'.*timeout was given on the command line"):
        resolve("clicks", PROGRAM)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("checkpoint.intervall", "checkpoint.interval"),
        ("interval", "checkpoint.interval"),
        ("execution.checkpointing.min-pause", "checkpoint.min_pause"),
        ("restart-strategy.fixed-delay.attempts", "checkpoint.restart_strategy.attempts"),
        ("checkpoint.restart_strategy", "checkpoint.restart_strategy.type"),
        ("checkpoint.interval_s", "checkpoint.interval"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(command_line, key: str, near: str) -> None:
    command_line(f"{key}=1")
    with pytest.raises(ConfigurationError) as refused:
        resolve("j", PROGRAM)
    assert str(refused.value) == (
        f"there is no setting {key!r} (given on the command line); did you mean {near!r}?"
    )


def test_an_unknown_key_in_a_file_names_the_file(directory: Path) -> None:
    file = directory / "seamark.toml"
    file.write_text("[checkpoint]\nmin_pausee = 1\n")
    with pytest.raises(ConfigurationError, match=f"given in {file}.*'checkpoint.min_pause'"):
        resolve("j", PROGRAM)
    file.write_text("zzz = 1\n")
    with pytest.raises(ConfigurationError, match=r"known are checkpoint\.aligned_timeout, "):
        resolve("j", PROGRAM)


def test_a_file_may_begin_with_a_byte_order_mark(directory: Path) -> None:
    text = "[checkpoint]\nnum_retained = 8\n"
    (directory / "seamark.toml").write_text(text, encoding="utf-8-sig")  # as Windows' editors do
    assert resolve("j", PROGRAM)[0].num_retained == 8


def test_a_file_can_be_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "seamark.toml").write_text("[checkpoint]\nnum_retained = 8\n")
    (directory / "other.toml").write_text("[checkpoint]\nnum_retained = 9\n")
    monkeypatch.setenv(FILE_VARIABLE, "other.toml")
    config, settings, _ = resolve("j", PROGRAM)
    assert config.num_retained == 9
    assert settings["checkpoint.num_retained"].origin == str(directory / "other.toml")
    monkeypatch.setenv(FILE_VARIABLE, "missing.toml")
    with pytest.raises(ConfigurationError, match=r"missing\.toml \(named by SEAMARK_CONFIG\)"):
        resolve("j", PROGRAM)


@pytest.mark.parametrize("content", [b"[checkpoint", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_a_file_that_is_no_toml_is_refused_by_name(directory: Path, content: bytes) -> None:
    file = directory / "seamark.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=str(file)):
        resolve("j", PROGRAM)


@pytest.mark.parametrize("text", ["{", "{}", '"a=b"', "[1]"])
def test_a_damaged_variable_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(COMMAND_LINE_VARIABLE, text)
    with pytest.raises(ConfigurationError, match="SEAMARK_SETTINGS is"):
        resolve("j", PROGRAM)


def test_a_text_without_equals_sign_is_refused(command_line) -> None:
    command_line("checkpoint.interval")
    with pytest.raises(ConfigurationError, match=r"-D 'checkpoint\.interval': give key=value"):
        resolve("j", PROGRAM)


def test_a_job_without_settings_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Job 'j': checkpoint is None"):
        resolve("j", None)


def test_it_prints_as_a_table(command_line) -> None:
    command_line("checkpoint.interval=3s")
    lines = str(resolve("j", PROGRAM)[1]).splitlines()
    assert [line.split() for line in lines if "interval" in line] == [
        ["checkpoint.changelog_snapshot_interval", "10", "default"],
        ["checkpoint.interval", "3s", "command", "line"],
    ]
    assert ["checkpoint.mode", "exactly-once", "default"] in [line.split() for line in lines]
    assert len({line.index(line.split()[1]) for line in lines}) == 1  # one column
