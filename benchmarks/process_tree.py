"""CPU time of this process and all its children: the driver, its JVM and the Python workers."""

from __future__ import annotations

import psutil


def cpu_s(exclude: frozenset[int] = frozenset(), pid: int | None = None) -> float:
    """Return user + system seconds of the living tree, and of children already waited for.

    `exclude` holds the pids of children that do not belong to the measurement, e.g. a broker.
    `pid` is the root of another tree.
    """
    me = psutil.Process(pid)
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        if process.pid in exclude:
            continue
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
