"""The plan of faults: the seed alone makes it."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from seamark.model.errors import ConfigurationError
from seamark.verify.plan import FAULTS, HOLD, SECOND, SIGTERM, Step, checked, steps

POINTS = ["prepared", "decided"]


def plan(seed: int, faults: list[str], count: int = 40) -> list[Step]:
    return list(islice(steps(seed, faults, POINTS), count))


def test_a_seed_repeats_its_plan_and_another_has_another() -> None:
    assert plan(7, [*FAULTS]) == plan(7, [*FAULTS])
    assert plan(7, [*FAULTS]) != plan(8, [*FAULTS])


def test_each_round_has_each_fault() -> None:
    first = plan(3, [*FAULTS], len(FAULTS) + 3)
    assert {step.fault for step in first} == {*FAULTS}
    assert [step.number for step in first] == [*range(1, len(first) + 1)]


@pytest.mark.parametrize("seed", range(5))
def test_each_kind_of_death_comes_before_one_comes_again(seed: int) -> None:
    points = ["pre-committed", "prepared", "decided", "sealed", "recovered"]
    made = [*islice(steps(seed, ["driver"], points), 6)]
    firsts = [step.at.partition(":")[0] for step in made if not step.then.startswith("recovered")]
    assert sorted(firsts) == ["", "decided", "pre-committed", "prepared", "sealed"]


def test_a_driver_dies_at_random_or_at_a_failpoint_and_its_successor_too() -> None:
    made = plan(1, ["driver"])
    assert {step.how for step in made} == {"", SIGTERM}
    assert {step.at.partition(":")[0] for step in made} == {"", *POINTS}
    assert {step.then for step in made} == {"", "prepared:1", "decided:1"}
    told = {re.sub(r"\d", "n", str(step)) for step in made}
    assert {"driver by SIGTERM", "driver, then at decided:n, then at prepared:n"} <= told


@pytest.mark.parametrize("seed", range(5))
def test_a_driver_stops_at_a_point_and_wakes_up_beside_its_successor(seed: int) -> None:
    made = plan(seed, ["pause"], 5)
    assert sum(not step.at for step in made) == 1
    held = [step for step in made if step.at]
    assert all(step.how == SECOND for step in held)
    void = {"predecessors-fenced", "sink-aborted", "recovered"}
    decides = [s for s in held if s.at.startswith(("prepared", "fence-checked")) and s.then in void]
    assert len(decides) == 1
    told = r"pause at \S+, with a second driver stopped at \S+"
    assert re.fullmatch(told, str(decides[0]))


def test_a_recovery_reaches_its_failpoints_once_and_has_something_to_do() -> None:
    made = [*islice(steps(1, ["driver"], ["recovered", "decided", "recovery-committed"]), 60)]
    assert {s.at for s in made} <= {"", "decided:1", "decided:2", "decided:3"}
    assert {s.then for s in made} == {"", "decided:1", "recovered:1", "recovery-committed:1"}


@pytest.mark.parametrize("seed", range(5))
def test_each_kind_of_broken_line_comes_before_one_comes_again(seed: int) -> None:
    made = [step.how for step in plan(seed, ["connection"], 3)]
    assert sum(how.startswith("cut") for how in made) == 1
    assert sum(how in ("delay", "drop") for how in made) == 1
    assert made.count(HOLD) == 1


def test_no_fault_is_an_endless_calm() -> None:
    assert plan(1, []) == []


@pytest.mark.parametrize(
    ("text", "named"), [("driver,fire", "'fire' is no fault; known are driver, "), (" , ", "give")]
)
def test_a_wrong_fault_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        checked(text)


def test_faults_are_taken_once_and_in_order() -> None:
    assert checked("pause, driver,pause") == ["pause", "driver"]
