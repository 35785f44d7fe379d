"""Values that a user's Python function gives, as Arrow is to take them.

By itself Arrow alters some without a word: it makes the whole number 1 of 1.5, a date of a number,
a list of letters of a text, and of a datetime without a zone the moment in UTC.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any

import pyarrow as pa

_Take = Callable[[Any], Any] | None


def taking(kind: pa.DataType, what: str, *, stored: bool = False) -> _Take:
    """Return what makes of a value the one that Arrow takes for this type; None if Arrow keeps or
    refuses each value by itself. It raises TypeError, which begins with `what`. `stored`: for
    Spark's state, which has null for a number of another type, 0 for 2**40 as an INT, and rounds a
    decimal."""
    is_ = pa.types
    inner = partial(taking, stored=stored)
    if is_.is_timestamp(kind):
        return partial(_moment, kind, what)
    if stored and (is_.is_primitive(kind) or is_.is_decimal(kind)) and not is_.is_temporal(kind):
        return partial(_exact, kind, what)
    if is_.is_integer(kind):
        return partial(_whole, what)
    if is_.is_date(kind):
        return partial(_date, what)
    if is_.is_list(kind):
        return partial(_listed, inner(kind.value_type, what), what)
    if is_.is_map(kind):
        as_dict = dict if stored else list
        return partial(_mapped, inner(kind.key_type, what), inner(kind.item_type, what), as_dict)
    if is_.is_struct(kind):
        parts = {part.name: inner(part.type, f"{what}.{part.name}") for part in kind}
        return partial(_parts, parts) if any(parts.values()) else None
    return None


def _moment(kind: pa.DataType, what: str, value: Any) -> Any:
    """Return a datetime as Spark reads one of a Python function: one without a zone is this
    machine's local time, and TIMESTAMP_NTZ takes the time on the clock."""
    if value is None or value != value:  # pandas' NaT
        return None
    if not isinstance(value, datetime):
        raise TypeError(f"{what} is {value!r}; give a datetime for a timestamp")
    plain: datetime = getattr(value, "to_pydatetime", lambda: value)()  # pandas'
    if kind.tz is None:
        return plain.replace(tzinfo=None)
    return plain if plain.tzinfo else plain.astimezone()


def _whole(what: str, value: Any) -> Any:
    if type(value) is int or value is None:
        return value
    try:
        whole = bool(value % 1 == 0)
    except (TypeError, ValueError):
        return value  # no number, which Arrow refuses
    if not whole:
        raise TypeError(f"{what} is {value!r}; give a whole number")
    return value


def _exact(kind: pa.DataType, what: str, value: Any) -> Any:
    if value is None:
        return None
    given = _whole(what, value) if pa.types.is_integer(kind) else value
    try:
        return pa.scalar(given, kind).as_py()
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        raise TypeError(f"{what} is {value!r}; give a value of its type, {kind}") from None


def _date(what: str, value: Any) -> Any:
    if value is None or value != value:
        return None
    if not isinstance(value, date):
        raise TypeError(f"{what} is {value!r}; give a date")
    return value


def _listed(take: _Take, what: str, value: Any) -> Any:
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(f"{what} is {value!r}; give a list")
    return value if take is None or value is None else [take(item) for item in value]


def _mapped(key: _Take, item: _Take, made: Callable[[Any], Any], value: Any) -> Any:
    if value is None or key is item is None:
        return value
    pairs = value.items() if isinstance(value, Mapping) else value
    return made((key(k) if key else k, item(v) if item else v) for k, v in pairs)


def _parts(parts: Mapping[str, _Take], value: Any) -> Any:
    if value is None:
        return None
    # A tuple, Spark's `Row` too, has the values in their order.
    given = dict(zip(parts, value, strict=True) if isinstance(value, tuple) else value)
    return {
        name: take(given.get(name)) if take else given.get(name) for name, take in parts.items()
    }
