"""Failpoints: `TIDEMARK_FAILPOINT=name[:nth]` makes this process kill itself there with SIGKILL.

The names are those of `protocol/points.py`, and those that sink writers and committers reach
(ARCHITECTURE lists them all). Off by default, at the cost of one comparison with None.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading

VARIABLE = "TIDEMARK_FAILPOINT"

companions: list[int] = []
"""Processes that die with this one: the Spark JVM of the driver, as when the machine dies."""

_lock = threading.Lock()
_armed: str | None = None
_remaining = 0


def arm(text: str | None) -> None:
    """Arm `name` or `name:nth` (the nth time it is reached, from 1); None disarms."""
    global _armed, _remaining
    name, _, nth = (text or "").partition(":")
    _remaining = int(nth or 1)
    _armed = name or None


arm(os.environ.get(VARIABLE))


def reached(name: str) -> None:
    """Die here, uncatchably, if `name` is armed and this is the nth time; else return at once."""
    global _remaining
    if _armed is None or _armed != name:
        return
    with _lock:
        _remaining -= 1
        if _remaining > 0:
            return
        for pid in companions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
