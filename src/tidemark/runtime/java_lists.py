"""Java's lists, to and from Python, without py4j's own iteration.

That ends with an exception, for which PySpark asks Java so much that every loop takes 15 ms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def java_list(jvm: Any, items: Iterable[Any]) -> Any:
    """Return a new ``java.util.ArrayList`` of the items."""
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return found


def items_of(found: Any) -> list[Any]:
    """Return what a ``java.util.List`` holds."""
    return [found.get(number) for number in range(found.size())]
