"""What is made once in this process, also when several threads ask for it at one instant."""

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def made_once(function: Callable[P, R]) -> Callable[P, R]:
    """Keep the function's results, as `functools.cache` does, which makes one in each thread."""
    lock = threading.RLock()  # a signal may come while it is held
    kept = cast("Callable[P, R]", functools.cache(function))

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with lock:
            return kept(*args, **kwargs)

    return locked
