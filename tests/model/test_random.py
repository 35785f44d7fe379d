"""Random histories of crashing, sleeping and waking drivers; and wrong protocols unmasked by them.

How: Hypothesis makes a world's shape and 150 bytes, `scheduler.random_run` makes a history of them
(the next driver and thread, the next fault) and raises `Violation` if a promise is broken. A
planted bug must be found within its test's examples; the seeds are fixed.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from .driver import Protocol
from .planted_bugs import PLANTED, PLANTED_AT_MOST_ONCE, RIGHT
from .scheduler import random_run
from .world import Setup, Violation

setups = st.builds(
    Setup,
    sinks=st.integers(1, 3),
    tasks=st.integers(1, 2),
    max_concurrent=st.integers(1, 2),
    forgetful=st.booleans(),
    first_epoch=st.sampled_from([0, 2]),
)
at_most_once = st.builds(
    Setup,
    sinks=st.integers(1, 3),
    tasks=st.integers(1, 2),
    max_concurrent=st.integers(1, 2),
    first_epoch=st.sampled_from([0, 2]),
    at_most_once=st.just(True),
    uneven=st.booleans(),
)
with_spool = st.builds(
    Setup,
    sinks=st.integers(1, 2),
    tasks=st.integers(1, 2),
    max_concurrent=st.integers(1, 2),
    forgetful=st.booleans(),
    spool=st.just(True),
)
with_losses = st.builds(
    Setup,
    sinks=st.integers(1, 2),
    tasks=st.integers(1, 2),
    max_concurrent=st.integers(1, 2),
    forgetful=st.booleans(),
    spool=st.booleans(),
    losses=st.just(True),
)
with_restores = st.builds(
    Setup,
    sinks=st.integers(1, 2),
    tasks=st.integers(1, 2),
    max_concurrent=st.integers(1, 2),
    forgetful=st.booleans(),
    first_epoch=st.sampled_from([0, 2]),
    restores=st.just(True),
)
choices = st.binary(min_size=150, max_size=150)
quick = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=2000,
    suppress_health_check=list(HealthCheck),
)


def check(setup: Setup, data: bytes, protocol: Protocol = RIGHT) -> None:
    run = random_run(setup, data, protocol)
    awake = max(1, sum(driver.generation > 0 for driver in run.drivers))
    event(f"drivers that took over: {awake}")
    for stop in {type(d.stopped_by).__name__ for d in run.drivers if d.stopped_by}:
        event(f"a driver stopped by {stop}")


@settings(quick)
@given(setups, choices)
def test_exactly_once_in_random_histories(setup: Setup, data: bytes) -> None:
    check(setup, data)


@settings(quick, max_examples=500)
@given(at_most_once, choices)
def test_at_most_once_in_random_histories(setup: Setup, data: bytes) -> None:
    check(setup, data)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@settings(quick, max_examples=20_000)
@given(at_most_once, choices)
def test_at_most_once_in_very_many_random_histories(setup: Setup, data: bytes) -> None:
    check(setup, data)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@settings(quick, max_examples=50_000)
@given(setups, choices)
def test_exactly_once_in_very_many_random_histories(setup: Setup, data: bytes) -> None:
    check(setup, data)


@settings(quick, max_examples=500)
@given(with_spool, choices)
def test_nothing_is_lost_or_doubled_when_transactions_time_out(setup: Setup, data: bytes) -> None:
    check(setup, data)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@settings(quick, max_examples=20_000)
@given(with_spool, choices)
def test_time_outs_in_very_many_random_histories(setup: Setup, data: bytes) -> None:
    check(setup, data)


@settings(quick, max_examples=500)
@given(with_losses, choices)
def test_only_what_is_lost_is_given_up(setup: Setup, data: bytes) -> None:
    check(setup, data)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@settings(quick, max_examples=20_000)
@given(with_losses, choices)
def test_losses_in_very_many_random_histories(setup: Setup, data: bytes) -> None:
    check(setup, data)


@settings(quick, max_examples=1000)
@given(with_restores, choices)
def test_restores_under_the_same_name_lose_and_double_nothing(setup: Setup, data: bytes) -> None:
    check(setup, data)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@settings(quick, max_examples=30_000)
@given(with_restores, choices)
def test_restores_in_very_many_random_histories(setup: Setup, data: bytes) -> None:
    check(setup, data)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    @settings(quick, max_examples=1500, phases=[Phase.generate], report_multiple_bugs=False)
    @given(setups, choices)
    def look(setup: Setup, data: bytes) -> None:
        check(setup, data, PLANTED[bug])

    with pytest.raises(Violation):
        look()


@pytest.mark.parametrize("bug", PLANTED_AT_MOST_ONCE)
def test_a_planted_bug_of_at_most_once_is_found(bug: str) -> None:
    @settings(quick, max_examples=300, phases=[Phase.generate], report_multiple_bugs=False)
    @given(at_most_once, choices)
    def look(setup: Setup, data: bytes) -> None:
        check(setup, data, PLANTED_AT_MOST_ONCE[bug])

    with pytest.raises(Violation, match="visible twice"):
        look()
