"""Failpoints: `SEAMARK_FAILPOINT=name[:nth]` makes this process kill itself there with SIGKILL;
`name[:nth]@stop` makes it stop there with SIGSTOP, once, until somebody sends SIGCONT.

The names are those of `protocol/points.py`, and those reached by sink writers and committers
(docs/reference/failpoints.md lists all). Off by default, at the cost of one comparison with None.
"""

import contextlib
import os
import re
import signal
import threading
from collections.abc import Generator
from enum import Enum
from typing import Any, TypeVar

from seamark.model.errors import ConfigurationError

T = TypeVar("T")

VARIABLE = "SEAMARK_FAILPOINT"
STOP = "@stop"
_NTH = re.compile(r"0*[1-9][0-9]{0,8}")

companions: list[int] = []
"""Processes that die or stop with this one: the Spark JVM of the driver, as with its machine."""

_lock = threading.Lock()
_armed: str | None = None
_remaining = 0
_signal: signal.Signals = signal.SIGKILL


def arm(text: str | None) -> None:
    """Arm `name` or `name:nth` (the nth time it is reached, from 1), each with `@stop` or without;
    None disarms. Raises ConfigurationError if nth is no such number."""
    global _armed, _remaining, _signal
    point, stop, rest = (text or "").partition(STOP)
    name, colon, nth = point.partition(":")
    if rest or (colon and not _NTH.fullmatch(nth)):
        raise ConfigurationError(
            f"{VARIABLE} is {text!r}; give name or name:nth, nth being a number from 1, with "
            f"{STOP} behind it or without, or unset it"
        )
    _remaining = int(nth or 1)
    _signal = signal.SIGSTOP if stop else signal.SIGKILL
    _armed = name or None


arm(os.environ.get(VARIABLE))


def reached_line(name: str, *, stops: bool = False) -> str:
    """Return the line that a process writes to its standard error just before it dies or stops."""
    return f"Seamark {'stops' if stops else 'dies'} at failpoint {name}"


def reached(name: str) -> None:
    """Die or stop here, uncatchably, if `name` is armed and this is the nth time; else return at
    once."""
    global _armed, _remaining
    if _armed is None or _armed != name:
        return
    with _lock:
        _remaining -= 1
        if _remaining > 0:
            return
        with contextlib.suppress(OSError):  # whoever armed it can tell this death from another
            os.write(2, f"{reached_line(name, stops=_signal is signal.SIGSTOP)}\n".encode())
        _armed = None
        for pid in companions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, _signal)
        os.kill(os.getpid(), _signal)


def drive(steps: Generator[Enum, Any, T]) -> T:
    """Drive a procedure of the protocol to its end, dying at an armed point; return its result."""
    while True:
        try:
            reached(next(steps).value)
        except StopIteration as end:
            result: T = end.value
            return result
