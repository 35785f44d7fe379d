"""`CheckpointConfig`, value by value: the accepted values, and the refusals of others."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import seamark as sm
from seamark.model.errors import ConfigurationError


def test_defaults() -> None:
    config = sm.CheckpointConfig(storage="/s")
    assert config.storage == "file:///s"
    assert config.mode is sm.CheckpointMode.EXACTLY_ONCE
    assert (config.interval_s, config.timeout_s, config.min_pause_s) == (10, 600, 0)
    assert config.max_concurrent_checkpoints == 1
    assert config.tolerable_failed_checkpoints == 0
    retention = sm.ExternalizedCheckpointRetention
    assert config.externalized_retention is retention.RETAIN_ON_CANCELLATION
    assert config.num_retained == 100
    assert config.state_backend is sm.StateBackend.HASHMAP
    assert (config.unaligned, config.aligned_timeout_s) == (False, 0)
    assert config.max_in_flight_bytes == 256 * 2**20
    assert config.changelog is False
    assert config.changelog_snapshot_interval == 10
    assert config.checkpoints_after_tasks_finish is True
    assert config.restart_strategy == sm.RestartStrategy.none()


def test_values_as_text_numbers_and_objects() -> None:
    config = sm.CheckpointConfig(
        storage="s3a://bucket/seamark/",
        savepoint_dir="/savepoints",
        interval=timedelta(seconds=2),
        mode="at-least-once",
        timeout=30,
        min_pause="500ms",
        externalized_retention="DELETE_ON_CANCELLATION",
        unaligned=True,
        aligned_timeout="2s",
        max_in_flight_bytes="64MB",
        state_backend="rocksdb",
        changelog=True,
    )
    assert config.storage == "s3a://bucket/seamark"
    assert config.savepoint_dir == "file:///savepoints"
    assert (config.interval_s, config.timeout_s, config.min_pause_s) == (2, 30, 0.5)
    assert (config.unaligned, config.aligned_timeout_s) == (True, 2)
    assert config.max_in_flight_bytes == 64 * 2**20
    assert config.mode is sm.CheckpointMode.AT_LEAST_ONCE
    retention = sm.ExternalizedCheckpointRetention
    assert config.externalized_retention is retention.DELETE_ON_CANCELLATION
    assert config.state_backend is sm.StateBackend.ROCKSDB


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("storage", "", "give a URI"),
        ("storage", None, "give a URI"),
        ("storage", 7, "give a URI"),
        ("storage", sm.EphemeralStorage, "give a URI"),
        ("savepoint_dir", "", "give a URI"),
        ("savepoint_dir", True, "give a URI"),
        ("interval", "often", "not a duration"),
        ("interval", float("nan"), "not a duration"),
        ("interval", 5000, "give text, '5000ms' or '5000s'"),
        ("timeout", -1, "not a duration"),
        ("timeout", True, "not a duration"),
        ("timeout", 0, "at least 10 ms"),
        ("timeout", "9ms", "at least 10 ms"),
        ("min_pause", "-5s", "not a duration"),
        ("mode", "EXACTLY_ONCE", "allowed are 'exactly-once', 'at-least-once', 'at-most-once'"),
        ("mode", None, "allowed are"),
        ("max_concurrent_checkpoints", 0, "at least 1"),
        ("max_concurrent_checkpoints", 1.5, "whole number"),
        ("max_concurrent_checkpoints", True, "whole number"),
        ("tolerable_failed_checkpoints", -1, "at least 0"),
        ("tolerable_failed_checkpoints", "2", "whole number"),
        ("externalized_retention", "NO_EXTERNALIZED", "allowed are 'RETAIN_ON_CANCELLATION'"),
        ("num_retained", 0, "at least 1"),
        ("num_retained", float("inf"), "whole number"),
        ("unaligned", "yes", "True or False"),
        ("aligned_timeout", "-1s", "not a duration"),
        ("max_in_flight_bytes", "64 parsecs", "at least 1048576 bytes"),
        ("max_in_flight_bytes", 1000, "at least 1048576 bytes"),
        ("max_in_flight_bytes", True, "at least 1048576 bytes"),
        ("state_backend", "memory", "allowed are 'hashmap', 'rocksdb'"),
        ("changelog", "yes", "True or False"),
        ("changelog", 1, "True or False"),
        ("changelog_snapshot_interval", 0, "at least 1"),
        ("checkpoints_after_tasks_finish", None, "True or False"),
        ("restart_strategy", "none", "sm.RestartStrategy.fixed_delay"),
        ("restart_strategy", None, "sm.RestartStrategy.fixed_delay"),
        ("restart_strategy", sm.RestartStrategy, "sm.RestartStrategy.fixed_delay"),
    ],
)
def test_a_refusal_names_setting_value_and_what_is_allowed(
    setting: str, value: Any, allowed: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        sm.CheckpointConfig(**{"storage": "/s", setting: value})
    message = str(refused.value)
    assert message.startswith(f"CheckpointConfig: {setting}")
    assert repr(value) in message
    assert allowed in message


def test_unaligned_is_not_for_at_most_once() -> None:
    with pytest.raises(ConfigurationError, match="unaligned is True with mode 'at-most-once'"):
        sm.CheckpointConfig(storage="/s", unaligned=True, mode="at-most-once")


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="intervall"):
        sm.CheckpointConfig(storage="/s", intervall="5s")  # type: ignore[call-arg]


def test_what_was_given_is_told_from_what_was_left_out() -> None:
    config = sm.CheckpointConfig(storage=str(Path("/s")), num_retained=100)
    assert config.given == {"storage", "num_retained"}
    assert config == sm.CheckpointConfig(storage="/s")
    copy = pickle.loads(pickle.dumps(config))
    assert (copy, copy.given) == (config, config.given)


def test_it_is_frozen() -> None:
    config = sm.CheckpointConfig(storage="/s")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.interval = "1s"  # type: ignore[misc]
