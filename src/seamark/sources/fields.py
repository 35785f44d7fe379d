"""The column generators of `DatagenSource`: each is a frozen value, `Field`.

They only describe the values; `spark/datagen.py` makes the rows from `specification`.
"""

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

from seamark.api.checks import number, whole_number
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError

MAX_TEXT_BYTES = 10_000
_whole = partial(whole_number, least=-(2**63), most=2**63 - 1)


@dataclass(frozen=True)
class Field:
    """A column's generator. Its value in row i depends on the seed, the column's name and i alone.

    Raises ConfigurationError when it is built with a wrong value.
    """

    kind: ClassVar[str]

    def specification(self) -> dict[str, object]:
        """Return the generator as plain JSON values, with its `kind`."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Sequence(Field):
    """BIGINT: `start`, `start` + 1, …: the row's number from there."""

    start: int = 0
    kind = "sequence"

    def __post_init__(self) -> None:
        _whole(self.start, "Sequence: start")


@dataclass(frozen=True)
class RandomInt(Field):
    """BIGINT: any whole number from `low` up to, not including, `high`, all equally likely."""

    low: int
    high: int
    kind = "random-int"

    def __post_init__(self) -> None:
        _whole(self.low, "RandomInt: low")
        _whole(self.high, "RandomInt: high")
        if self.high <= self.low:
            raise ConfigurationError(
                f"RandomInt: low is {self.low} and high is {self.high}; high must be greater"
            )


@dataclass(frozen=True)
class Choice(Field):
    """One of `values`, all of them text, int, float or bool.

    `weights` are the relative frequencies, in any unit. `skew` is for many values instead: the k-th
    is chosen in proportion to 1 / k ** skew (Zipf's law; 0: all equal, 1: as words in a language).
    """

    values: SequenceOf[str] | SequenceOf[int] | SequenceOf[float] | SequenceOf[bool]
    weights: SequenceOf[float] | None = None
    skew: float = 0.0
    kind = "choice"

    def __post_init__(self) -> None:
        values = self.values
        if isinstance(values, str | bytes) or not isinstance(values, SequenceOf) or not values:
            raise ConfigurationError(f"Choice: values is {values!r}; give a list of at least one")
        kinds = {type(value) for value in values}
        if len(kinds) > 1 or not kinds <= {str, int, float, bool}:
            raise ConfigurationError(
                f"Choice: values has the types {', '.join(sorted(k.__name__ for k in kinds))}; "
                "give values of one type: str, int, float or bool"
            )
        for value in values:
            if type(value) is int:
                _whole(value, "Choice: values has an item that")
        object.__setattr__(self, "values", tuple(values))
        number(self.skew, "Choice: skew", least=0, most=10)
        if self.weights is None:
            return
        weights = self.weights
        if self.skew:
            raise ConfigurationError("Choice: weights and skew are both given; give one of them")
        if (
            not isinstance(weights, SequenceOf)
            or len(weights) != len(values)
            or not all(type(w) in (int, float) and 0 <= w < math.inf for w in weights)
            or not sum(weights) > 0
        ):
            raise ConfigurationError(
                f"Choice: weights is {weights!r} for {len(values)} values; give a number of 0 or "
                "more for each, not all 0"
            )
        object.__setattr__(self, "weights", tuple(weights))


@dataclass(frozen=True)
class EventTime(Field):
    """TIMESTAMP: row i's moment, the source's start_time + i / rows_per_second.

    `out_of_orderness` makes each row earlier by a random time of up to this much. A watermark with
    the same delay drops no row.
    """

    out_of_orderness: Duration = 0
    kind = "event-time"

    def __post_init__(self) -> None:
        seconds(self.out_of_orderness, "EventTime: out_of_orderness")

    def specification(self) -> dict[str, object]:
        """Return the generator with its duration in microseconds."""
        jitter_s = seconds(self.out_of_orderness, "EventTime: out_of_orderness")
        return {"kind": self.kind, "out_of_orderness_us": round(jitter_s * 1_000_000)}


@dataclass(frozen=True)
class Text(Field):
    """STRING: `size_bytes` random letters and digits."""

    size_bytes: int
    kind = "text"

    def __post_init__(self) -> None:
        whole_number(self.size_bytes, "Text: size_bytes", least=1, most=MAX_TEXT_BYTES)
