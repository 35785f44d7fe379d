"""Restart strategies: each decision for a list of failure times, with the clock brought along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seamark as sm
from seamark.api.restart_strategy import Backoff
from seamark.model.errors import ConfigurationError


def decisions(backoff: Backoff, failures_s: Iterable[float]) -> list[float | None]:
    return [backoff(now_s) for now_s in failures_s]


def test_none_gives_up_at_once() -> None:
    assert decisions(sm.RestartStrategy.none().backoff(), [0]) == [None]


def test_fixed_delay_gives_up_after_its_attempts() -> None:
    strategy = sm.RestartStrategy.fixed_delay(attempts=2, delay="3s")
    assert decisions(strategy.backoff(), [0, 1, 10_000]) == [3, 3, None]
    assert decisions(strategy.backoff(), [0, 1, 10_000]) == [3, 3, None]  # each run counts anew
    assert decisions(sm.RestartStrategy.fixed_delay(attempts=0).backoff(), [0]) == [None]


def test_exponential_delay_grows_up_to_its_maximum_and_begins_anew_after_a_quiet_time() -> None:
    strategy = sm.RestartStrategy.exponential_delay(
        initial_backoff="1s", max_backoff="5s", backoff_multiplier=2,
        reset_backoff_threshold="60s", jitter_factor=0,
    )  # fmt: skip
    # the fifth restart is at 45; 104 is 59 s after it, the restart after it is at 109
    assert decisions(strategy.backoff(), [0, 10, 20, 30, 40, 104, 168.9]) == [1, 2, 4, 5, 5, 5, 5]
    assert decisions(strategy.backoff(), [0, 10, 20, 84, 85]) == [1, 2, 4, 1, 2]


def test_exponential_delay_gives_up_after_its_attempts_unless_there_was_a_quiet_time() -> None:
    strategy = sm.RestartStrategy.exponential_delay(
        attempts=2, reset_backoff_threshold="60s", jitter_factor=0
    )
    assert decisions(strategy.backoff(), [0, 10, 20]) == [1, 1.5, None]
    assert decisions(strategy.backoff(), [0, 10, 80, 90, 100]) == [1, 1.5, 1, 1.5, None]
    assert None not in decisions(sm.RestartStrategy.exponential_delay().backoff(), range(1000))


@given(st.floats(0, 1), st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_jitter_stays_within_its_share_and_the_bounds(factor: float, draws: list[float]) -> None:
    strategy = sm.RestartStrategy.exponential_delay(
        initial_backoff=2, max_backoff=100, backoff_multiplier=3, jitter_factor=factor
    )
    left = iter(draws)
    backoff = strategy.backoff(jitter=lambda: next(left))
    for attempt, delay_s in enumerate(decisions(backoff, [0.0] * len(draws))):
        plain_s = min(2 * 3**attempt, 100)
        assert delay_s is not None
        assert max(2, plain_s * (1 - factor) - 1e-9) <= delay_s <= min(100, plain_s * 2)


def test_jitter_varies_the_delay() -> None:
    strategy = sm.RestartStrategy.exponential_delay(initial_backoff=10, jitter_factor=0.5)
    assert len({strategy.backoff()(0) for _ in range(50)}) > 1


def test_failure_rate_gives_up_when_more_failures_than_allowed_come_within_the_interval() -> None:
    strategy = sm.RestartStrategy.failure_rate(
        max_failures_per_interval=2, failure_rate_interval="10s", delay="1s"
    )
    assert decisions(strategy.backoff(), [0, 1, 2]) == [1, 1, None]
    assert decisions(strategy.backoff(), [0, 5, 10]) == [1, 1, None]
    assert decisions(strategy.backoff(), [0, 6, 12, 18, 24, 25]) == [1, 1, 1, 1, 1, None]


@pytest.mark.parametrize(
    ("strategy", "longest_s"),
    [
        (sm.RestartStrategy.none(), 0),
        (sm.RestartStrategy.fixed_delay(delay="7s"), 7),
        (sm.RestartStrategy.exponential_delay(max_backoff="2min"), 120),
        (sm.RestartStrategy.failure_rate(delay="3s"), 3),
    ],
)
def test_the_longest_delay_is_known(strategy: sm.RestartStrategy, longest_s: float) -> None:
    assert strategy.longest_delay_s == longest_s


def test_it_shows_as_it_is_written() -> None:
    shown = "RestartStrategy.fixed_delay(attempts=3, delay='1s')"
    assert repr(sm.RestartStrategy.fixed_delay(attempts=3)) == shown
    assert repr(sm.RestartStrategy.none()) == "RestartStrategy.none()"


@pytest.mark.parametrize(
    ("strategy", "setting", "value"),
    [
        ("fixed_delay", "attempts", -1),
        ("fixed_delay", "attempts", True),
        ("fixed_delay", "attempts", 1.5),
        ("fixed_delay", "delay", "-1s"),
        ("exponential_delay", "initial_backoff", 0),
        ("exponential_delay", "max_backoff", "500ms"),
        ("exponential_delay", "backoff_multiplier", 1),
        ("exponential_delay", "backoff_multiplier", float("nan")),
        ("exponential_delay", "backoff_multiplier", "2"),
        ("exponential_delay", "reset_backoff_threshold", "soon"),
        ("exponential_delay", "jitter_factor", 1.01),
        ("exponential_delay", "jitter_factor", -0.1),
        ("exponential_delay", "jitter_factor", False),
        ("exponential_delay", "attempts", -1),
        ("failure_rate", "max_failures_per_interval", 0),
        ("failure_rate", "failure_rate_interval", 0),
        ("failure_rate", "delay", None),
    ],
)
def test_a_bad_value_is_refused_by_name(strategy: str, setting: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        getattr(sm.RestartStrategy, strategy)(**{setting: value})
    assert f"RestartStrategy.{strategy}: {setting}" in str(refused.value)
    assert repr(value) in str(refused.value)
