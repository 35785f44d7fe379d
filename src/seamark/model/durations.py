"""Durations in users' notation: `"5s"`, `"10min"`, seconds as a number, or `timedelta`; and moments
of event time for people."""

import re
from datetime import datetime, timedelta, timezone

from seamark.model.errors import ConfigurationError

Duration = str | int | float | timedelta

_UNITS_S = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0, "d": 86400.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def seconds(value: Duration, setting: str, *, least_s: float = 0.0) -> float:
    """Return `value` in seconds. `setting` is the name for the error, e.g. ``KafkaSink 'orders':
    transaction_timeout``. Raises ConfigurationError for anything but a duration of at least
    `least_s` seconds."""
    length_s = _seconds(value, setting)
    if length_s < least_s:
        raise ConfigurationError(f"{setting} is {value!r}; give at least {least_s * 1000:g} ms")
    return length_s


def _seconds(value: Duration, setting: str) -> float:
    match value:
        case bool():
            pass
        case timedelta():
            if value >= timedelta(0):
                return value.total_seconds()
        case int() | float():
            if 0 <= value < float("inf"):
                return float(value)
        case str():
            match = _TEXT.fullmatch(value)
            if match and match[2].lower() in _UNITS_S:
                return float(match[1]) * _UNITS_S[match[2].lower()]
    raise ConfigurationError(
        f"{setting}: {value!r} is not a duration; give a number of seconds, a timedelta, "
        'or text such as "500ms", "5s", "10min", "1h"'
    )


def moment_text(ms: int) -> str:
    """Return a moment of event time, in milliseconds since 1970, for people. A mistaken unit in a
    row puts a watermark beyond the year 9999, where Python's calendar ends."""
    try:
        return f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms since 1970"
