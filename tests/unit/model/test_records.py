"""How: dataclasses are written as JSON objects and read again, whole, and with a fault in each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from seamark.model.records import read_as, record_of


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Pair:
    """Has a form of its own."""

    left: int
    right: int

    def to_record(self) -> list[int]:
        return [self.left, self.right]

    @staticmethod
    def from_record(body: Sequence[int]) -> Pair:
        return Pair(*body)


@dataclass(frozen=True)
class Part:
    name: str
    size: float = 0.0


@dataclass(frozen=True)
class Whole:
    colour: Colour
    data: tuple[bytes, ...]
    parts: Sequence[Part]
    pairs: Mapping[str, Pair]
    files: Mapping[str, tuple[int, str]]
    last: Part | None = None
    free: Any = None
    names: list[dict[str, Any]] = field(default_factory=list)


WHOLE = Whole(
    Colour.RED,
    (b"\0\xff", b""),
    (Part("a", 2), Part("b")),
    {"x": Pair(1, 2)},
    {"f": (3, "crc")},
    Part("last"),
    {"any": [1, None]},
    [{"id": 1}],
)


def stored(**other: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(record_of(WHOLE)))
    return {**body, **other}


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_as(Whole, stored()) == WHOLE
    assert stored()["pairs"] == {"x": [1, 2]}
    assert stored()["data"] == ["AP8=", ""]


def test_a_field_with_a_default_may_be_missing() -> None:
    older = stored()
    for name in ("last", "free", "names"):
        del older[name]
    assert read_as(Whole, older).last is None
    del older["colour"]
    with pytest.raises(TypeError, match="colour"):
        read_as(Whole, older)


def test_an_unknown_field_is_refused_or_left_out() -> None:
    newer = stored(more=1, parts=[{"name": "a", "more": 1}])
    with pytest.raises(TypeError, match="more"):
        read_as(Whole, newer)
    assert read_as(Whole, newer, newer=True).parts == (Part("a"),)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"colour": "blue"}, "colour: 'blue'"),
        ({"parts": [{"name": 5}]}, "parts: name: 5 is no str"),
        ({"last": {"name": "x", "size": "big"}}, "last: size: 'big' is no float"),
        ({"files": {"f": [1]}}, "files: "),
        ({"names": ["a"]}, "names: 'a' is no dict"),
        ({"data": ["a"]}, "data: "),
    ],
)
def test_a_value_of_another_type_is_named(fault: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_as(Whole, stored(**fault))
