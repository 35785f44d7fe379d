"""Sizes in users' notation: `"64MB"`, or a number of bytes."""

from __future__ import annotations

import re

from seamark.model.errors import ConfigurationError

Size = str | int

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


def whole_bytes(value: Size, setting: str, *, least: int = 0) -> int:
    """Return `value` in bytes. As in Spark and Flink, ``1kb`` has 1,024.

    `setting` is the name for the error, e.g. ``CheckpointConfig: max_in_flight_bytes``. Raises
    ConfigurationError for anything but a size of at least `least` bytes.
    """
    found = None
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif isinstance(value, str) and (match := _TEXT.fullmatch(value)):
        found = round(float(match[1]) * _UNITS[match[2].lower()])
    if found is not None and found >= least:
        return found
    raise ConfigurationError(
        f"{setting}: {value!r} is not a size of at least {least} bytes; give a number of bytes, or "
        'text such as "64MB" or "1GB"'
    )
