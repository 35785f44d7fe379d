"""`RestartStrategy`: whether and when a failed job is started again, named as in Flink.

A strategy is a frozen value in `CheckpointConfig.restart_strategy`. Its `Backoff` decides for one
run, and is pure: the caller brings the time. The supervisor calls it after a failure, and restarts
from the last decided epoch.
"""

from __future__ import annotations

import builtins
import math
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import ClassVar

from seamark.api.checks import number, whole_number
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError

Backoff = Callable[[float], float | None]
"""The decisions of one strategy over one run of a job. Called once per failure, at once, with the
time of one monotonic clock; returns the seconds to wait before the restart, or None: give up, the
job fails. After None: no more."""


@dataclass(frozen=True, kw_only=True)
class RestartStrategy(ABC):
    """The reaction to a failure. Make one with `fixed_delay`, `exponential_delay`, `failure_rate`
    or `none`; defaults are Flink's. Each raises ConfigurationError for a bad value."""

    type: ClassVar[str]
    none: ClassVar[builtins.type[NoRestart]]
    fixed_delay: ClassVar[builtins.type[FixedDelay]]
    exponential_delay: ClassVar[builtins.type[ExponentialDelay]]
    failure_rate: ClassVar[builtins.type[FailureRate]]

    @property
    def longest_delay_s(self) -> float:
        """The longest wait of a failed job for its restart, in seconds."""
        return float(getattr(self, "delay_s", 0.0))

    @abstractmethod
    def backoff(self) -> Backoff:
        """Return the decisions for a new run of the job, with no failure yet."""

    def __repr__(self) -> str:
        given = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.init)
        return f"RestartStrategy.{self.type}({given})"


@dataclass(frozen=True, kw_only=True, repr=False)
class NoRestart(RestartStrategy):
    """Never restart: the first failure ends the job with its error."""

    type: ClassVar[str] = "none"

    def backoff(self) -> Backoff:
        """Return decisions that always give up."""
        return lambda now_s: None


@dataclass(frozen=True, kw_only=True, repr=False)
class FixedDelay(RestartStrategy):
    """Restart `attempts` times in all, each `delay` after the failure; then give up."""

    attempts: int = 1
    delay: Duration = "1s"
    delay_s: float = field(init=False)
    type: ClassVar[str] = "fixed_delay"

    def __post_init__(self) -> None:
        setting = f"RestartStrategy.{self.type}: "
        whole_number(self.attempts, setting + "attempts", least=0)
        object.__setattr__(self, "delay_s", seconds(self.delay, setting + "delay"))

    def backoff(self) -> Backoff:
        """Return decisions with all attempts left."""
        delays_s = repeat(self.delay_s, self.attempts)
        return lambda now_s: next(delays_s, None)


@dataclass(frozen=True, kw_only=True, repr=False)
class ExponentialDelay(RestartStrategy):
    """Restart after a growing delay.

    The delay grows from `initial_backoff` by `backoff_multiplier` with each failure, up to
    `max_backoff`; each delay varies at random by up to `jitter_factor` of itself.

    A job begins anew after it has run for `reset_backoff_threshold` since a restart. `attempts` is
    the number of restarts before that (None: no limit; Flink: ``attempts-before-reset-backoff``).
    """

    initial_backoff: Duration = "1s"
    max_backoff: Duration = "1min"
    backoff_multiplier: float = 1.5
    reset_backoff_threshold: Duration = "1h"
    jitter_factor: float = 0.1
    attempts: int | None = None
    initial_backoff_s: float = field(init=False)
    max_backoff_s: float = field(init=False)
    reset_backoff_threshold_s: float = field(init=False)
    type: ClassVar[str] = "exponential_delay"

    def __post_init__(self) -> None:
        setting = f"RestartStrategy.{self.type}: "
        for name in ("initial_backoff", "max_backoff", "reset_backoff_threshold"):
            value_s = seconds(getattr(self, name), setting + name, least_s=0.001)
            object.__setattr__(self, f"{name}_s", value_s)
        if self.max_backoff_s < self.initial_backoff_s:
            raise ConfigurationError(
                f"{setting}max_backoff is {self.max_backoff!r}, below initial_backoff "
                f"{self.initial_backoff!r}; raise the one or lower the other"
            )
        number(self.backoff_multiplier, setting + "backoff_multiplier", above=1)
        number(self.jitter_factor, setting + "jitter_factor", least=0, most=1)
        if self.attempts is not None:
            whole_number(self.attempts, setting + "attempts", least=0, other="None for no limit")

    @property
    def longest_delay_s(self) -> float:
        """`max_backoff`, never exceeded by jitter."""
        return self.max_backoff_s

    def backoff(self, jitter: Callable[[], float] | None = None) -> Backoff:
        """Return decisions beginning with `initial_backoff`. `jitter` gives numbers from -1 to 1;
        only tests pass their own."""
        vary = jitter or (lambda: random.uniform(-1, 1))
        attempts, backoff_s, restarted_s = 0, self.initial_backoff_s, math.inf

        def after_failure(now_s: float) -> float | None:
            nonlocal attempts, backoff_s, restarted_s
            if now_s - restarted_s >= self.reset_backoff_threshold_s:
                attempts, backoff_s = 0, self.initial_backoff_s
            if self.attempts is not None and attempts >= self.attempts:
                return None
            varied_s = backoff_s * (1 + self.jitter_factor * vary())
            delay_s = min(max(varied_s, self.initial_backoff_s), self.max_backoff_s)
            attempts += 1
            backoff_s = min(backoff_s * self.backoff_multiplier, self.max_backoff_s)
            restarted_s = now_s + delay_s
            return delay_s

        return after_failure


@dataclass(frozen=True, kw_only=True, repr=False)
class FailureRate(RestartStrategy):
    """Restart `delay` after a failure, unless more than `max_failures_per_interval` failures came
    within `failure_rate_interval`; then give up."""

    max_failures_per_interval: int = 1
    failure_rate_interval: Duration = "1min"
    delay: Duration = "1s"
    failure_rate_interval_s: float = field(init=False)
    delay_s: float = field(init=False)
    type: ClassVar[str] = "failure_rate"

    def __post_init__(self) -> None:
        setting = f"RestartStrategy.{self.type}: "
        whole_number(self.max_failures_per_interval, setting + "max_failures_per_interval", least=1)
        interval_s = seconds(
            self.failure_rate_interval, setting + "failure_rate_interval", least_s=0.001
        )
        object.__setattr__(self, "failure_rate_interval_s", interval_s)
        object.__setattr__(self, "delay_s", seconds(self.delay, setting + "delay"))

    def backoff(self) -> Backoff:
        """Return decisions with no failure in the interval."""
        failures_s: deque[float] = deque()

        def after_failure(now_s: float) -> float | None:
            failures_s.append(now_s)
            while now_s - failures_s[0] > self.failure_rate_interval_s:
                failures_s.popleft()
            return None if len(failures_s) > self.max_failures_per_interval else self.delay_s

        return after_failure


RestartStrategy.none = NoRestart
RestartStrategy.fixed_delay = FixedDelay
RestartStrategy.exponential_delay = ExponentialDelay
RestartStrategy.failure_rate = FailureRate
