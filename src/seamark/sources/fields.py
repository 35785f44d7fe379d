"""The column generators of `DatagenSource`: each is a frozen value, `Field`.

They only describe the values; `spark/datagen.py` makes the rows from `specification`.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass
from typing import ClassVar

from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError

MAX_TEXT_BYTES = 10_000
_INT64 = 2**63


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
        _check_int(self.start, "Sequence: start")


@dataclass(frozen=True)
class RandomInt(Field):
    """BIGINT: any whole number from `low` up to, not including, `high`, all equally likely."""

    low: int
    high: int
    kind = "random-int"

    def __post_init__(self) -> None:
        _check_int(self.low, "RandomInt: low")
        _check_int(self.high, "RandomInt: high")
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
                _check_int(value, "Choice: values has an item that")
        object.__setattr__(self, "values", tuple(values))
        if not _is_number(self.skew) or not 0 <= self.skew <= 10:
            raise ConfigurationError(f"Choice: skew is {self.skew!r}; give a number from 0 to 10")
        if self.weights is None:
            return
        weights = self.weights
        if self.skew:
            raise ConfigurationError("Choice: weights and skew are both given; give one of them")
        if (
            not isinstance(weights, SequenceOf)
            or len(weights) != len(values)
            or not all(_is_number(w) and 0 <= w < float("inf") for w in weights)
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
        _check_int(self.size_bytes, "Text: size_bytes")
        if not 1 <= self.size_bytes <= MAX_TEXT_BYTES:
            raise ConfigurationError(
                f"Text: size_bytes is {self.size_bytes}; give 1 to {MAX_TEXT_BYTES}"
            )


def _check_int(value: object, setting: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT64 <= value < _INT64:
        raise ConfigurationError(f"{setting} is {value!r}; give a whole number of 64 bits")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
