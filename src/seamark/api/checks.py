"""Checks of plain setting values; each error names the setting, the value and the allowed values.

Durations: `model/durations.py`. Storage URIs: `api/config.py: storage_uri`.
"""

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from seamark.model.errors import ConfigurationError

E = TypeVar("E", bound=Enum)
G = TypeVar("G", bound="Given")
Size = str | int
"""In users' notation: ``"64MB"``, or a number of bytes."""
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


def whole_number(
    value: Any, setting: str, *, least: int, most: float = math.inf, other: str = ""
) -> int:
    """Return `value` if it is an integer (not a bool) within the given bounds. `other` names the
    setting's other allowed values, for the message."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    bounds = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
    alternative = f", or {other}" if other else ""
    raise ConfigurationError(f"{setting} is {value!r}; give a whole number {bounds}{alternative}")


def number(
    value: Any, setting: str, *, least: float = -math.inf, above: float = -math.inf,
    most: float = math.inf,
) -> float:  # fmt: skip
    """Return `value` if it is a finite number (not a bool) within the given bounds."""
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and least <= value <= most
        and value > above
    ):
        return value
    named = (("at least", least), ("above", above), ("at most", most))
    bounds = " and ".join(f"{word} {bound:g}" for word, bound in named if math.isfinite(bound))
    raise ConfigurationError(f"{setting} is {value!r}; give a number {bounds}")


def whole_bytes(value: Size, setting: str, *, least: int = 0) -> int:
    """Return `value` in bytes. As in Spark and Flink, ``1kb`` has 1,024. `setting` is the name for
    the error, e.g. ``CheckpointConfig: max_in_flight_bytes``. Raises ConfigurationError for
    anything but a size of at least `least` bytes."""
    size = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        size = round(float(match[1]) * _UNITS[match[2].lower()])
    if size is not None and size >= least:
        return size
    raise ConfigurationError(
        f"{setting}: {value!r} is not a size of at least {least} bytes; give a number of bytes, or "
        'text such as "64MB" or "1GB"'
    )


def yes_or_no(value: Any, setting: str) -> bool:
    """Return `value` if it is a bool."""
    if isinstance(value, bool):
        return value
    raise ConfigurationError(f"{setting} is {value!r}; give True or False")


def one_of(value: Any, allowed: Iterable[str], setting: str) -> None:
    """Raise unless `value` is one of these texts."""
    if not isinstance(value, str) or value not in allowed:
        shown = ", ".join(map(repr, allowed))
        raise ConfigurationError(f"{setting} is {value!r}; allowed are {shown}")


def member(kind: type[E], value: Any, setting: str) -> E:
    """Return the member of the enum `kind` given as `value`: the member itself or its value."""
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(m.value) for m in kind)
        raise ConfigurationError(f"{setting} is {value!r}; allowed are {allowed}") from None


def texts(values: Any, setting: str) -> dict[str, str]:
    """Return options as Spark and Kafka's clients write them: text to text, True as ``true``. The
    error shows no value: it may be a secret."""
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"{setting} is a {type(values).__name__}; give a dict")
    for name, value in values.items():
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{setting} has the key {name!r}; keys are text")
        if not isinstance(value, str | int | float):
            raise ConfigurationError(
                f"{setting}: option {name!r} has a value of type {type(value).__name__}; give "
                "text, a number or a bool"
            )
    return {name: as_option(value) for name, value in values.items()}


def as_option(value: object) -> str:
    """Return a value as the text of an option."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question that names the known option nearest to a wrong one; "" if none is near."""
    near = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def no_class(value: Any, setting: str) -> None:
    """Raise for a class in the place of one of its objects, which have the same methods."""
    if isinstance(value, type):
        name = value.__name__
        raise ConfigurationError(f"{setting} is the class {name}; make one: {name}(…)")


def called_with(function: Callable[..., Any], arguments: int, setting: str, wanted: str) -> None:
    """Raise for a function that cannot be called with so many arguments; one that does not tell its
    parameters passes. `wanted` names what they will be. Raise for one whose body would not run too:
    it is `async`, or yields."""
    called: Any = function
    while isinstance(called, partial):
        called = called.func
    lazy = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(kind(one) for kind in lazy for one in (called, type(called).__call__)):
        name = getattr(called, "__qualname__", type(called).__name__)
        raise ConfigurationError(
            f"{setting}: a call of {name} runs nothing of it, as it is async or has a yield; give "
            "a plain function (one that calls asyncio.run, or reads the generator to its end)"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        name = getattr(function, "__qualname__", type(function).__name__)
        takes = ", ".join(signature.parameters)  # without defaults, which may be secrets
        raise ConfigurationError(
            f"{setting}: {name}({takes}) has other parameters; give one that takes {wanted}"
        ) from None


class Given:
    """A settings class that remembers which settings the program has given."""

    given: frozenset[str]
    """Their names, whatever their values."""

    def __new__(cls: type[G], **given: Any) -> G:
        """Called before the defaults are filled in."""
        config = super().__new__(cls)
        object.__setattr__(config, "given", frozenset(given))
        return config
