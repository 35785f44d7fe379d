"""Durations, identifiers and the error tree, by examples."""

from __future__ import annotations

import inspect
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.api.checks import whole_bytes
from seamark.model import errors
from seamark.model.durations import seconds
from seamark.model.guarantee import Guarantee
from seamark.model.schema import quoted


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("500ms", 0.5), ("500 milliseconds", 0.5), ("5s", 5), ("5 seconds", 5), (" 1.5 MIN ", 90),
        ("10min", 600), ("2m", 120), ("1h", 3600), ("1d", 86400), (3, 3), (0, 0), (0.25, 0.25),
        (timedelta(minutes=1), 60), (timedelta(0), 0),
    ],
)  # fmt: skip
def test_durations(value, expected: float) -> None:
    assert seconds(value, "x") == expected


@pytest.mark.parametrize(
    "value",
    ["", "5", "s", "5 parsecs", "-5s", "5s 5s", "1e3s", -1, -0.1, float("inf"), float("nan"),
     True, None, [], timedelta(seconds=-1)],
)  # fmt: skip
def test_what_is_no_duration_is_refused_by_name(value) -> None:
    with pytest.raises(errors.ConfigurationError, match="CheckpointConfig: interval") as refused:
        seconds(value, "CheckpointConfig: interval")
    assert repr(value) in str(refused.value)
    assert isinstance(refused.value, ValueError)


@given(st.text())
def test_a_quoted_name_reads_back(name: str) -> None:
    text = quoted(name)
    assert text[0] == text[-1] == "`"
    assert text[1:-1].replace("``", "\0").count("`") == 0
    assert text[1:-1].replace("``", "`") == name


def test_guarantees_are_listed_weakest_first() -> None:
    # guarantees/end_to_end.py ranks them by this order.
    levels = [g.value for g in Guarantee]
    assert levels == ["none", "at-most-once", "at-least-once", "exactly-once"]


def test_every_error_is_in_the_tree_and_says_what_it_is() -> None:
    members = inspect.getmembers(errors, inspect.isclass)
    classes = [c for _, c in members if c.__module__ == errors.__name__]
    assert errors.LostTransactionError in classes
    for found in classes:
        assert issubclass(found, errors.SeamarkError)
        assert found.__doc__


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("64MB", 64 * 2**20), ("1gb", 2**30), ("1.5 k", 1536), ("100 b", 100), ("7", 7), (0, 0),
        ("2MiB", 2**21), ("1t", 2**40),
    ],
)  # fmt: skip
def test_sizes(value, expected: int) -> None:
    assert whole_bytes(value, "x") == expected


@pytest.mark.parametrize("value", ["", "MB", "-1", "1 mile", -1, 1.5, True, None])
def test_a_wrong_size_is_refused(value) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"x: .* is not a size"):
        whole_bytes(value, "x")
