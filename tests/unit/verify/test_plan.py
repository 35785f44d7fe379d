"""The plan of faults: the seed alone makes it."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from seamark.model.errors import ConfigurationError
from seamark.verify.plan import FAULTS, Step, checked, steps

POINTS = ["prepared", "decided"]


def plan(seed: int, faults: list[str], count: int = 40) -> list[Step]:
    return list(islice(steps(seed, faults, POINTS), count))


def test_a_seed_repeats_its_plan_and_another_has_another() -> None:
    assert plan(7, [*FAULTS]) == plan(7, [*FAULTS])
    assert plan(7, [*FAULTS]) != plan(8, [*FAULTS])


def test_each_round_has_each_fault() -> None:
    first = plan(3, [*FAULTS], len(FAULTS) + 2)
    assert {step.fault for step in first} == {*FAULTS}
    assert [step.number for step in first] == [*range(1, len(first) + 1)]


def test_a_driver_dies_at_random_or_at_a_failpoint() -> None:
    variants = {step.how.partition(":")[0] for step in plan(1, ["driver"])}
    assert variants == {"", "SIGTERM", *POINTS}


def test_a_driver_stops_at_a_point_and_wakes_up_beside_its_successor() -> None:
    held = [step for step in plan(1, ["pause"], 80) if step.at]
    assert {step.at.partition(":")[0] for step in held} >= {"prepared", "decided", "sealed"}
    assert {step.then for step in held} >= {"", "recovered", "predecessors-fenced"}
    told = next(str(step) for step in held if step.then == "recovered")
    assert re.fullmatch(r"pause at \S+, with a second driver stopped at recovered", told)


def test_a_recovery_reaches_its_failpoints_once() -> None:
    made = islice(steps(1, ["driver"], ["recovered", "decided"]), 60)
    found = {step.how for step in made} - {"", "SIGTERM"}
    assert found == {"recovered:1", "decided:1", "decided:2", "decided:3"}


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
