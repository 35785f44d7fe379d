"""SIGINT and SIGTERM that end a job in order.

A handler runs in the main thread, wherever that happens to be: it may hold the very lock that the
stop asks for. So the handler only puts into a queue, which may be done anywhere.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within the block: each SIGINT and SIGTERM calls `stop`, from another thread. In another
    thread than the main one, which has no signals, it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: SimpleQueue[int] = SimpleQueue()
    left = 0

    def wait() -> None:
        while received.get() != left:
            stop()

    threading.Thread(target=wait, name="seamark-signals", daemon=True).start()
    before = {
        number: signal.signal(number, lambda number, _: received.put(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        received.put(left)
