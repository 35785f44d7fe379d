"""How: real signals to this process, while its main thread holds a lock."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from seamark.runtime.stop_signals import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finds_the_main_thread_with_the_lock_that_the_stop_takes(number: int) -> None:
    lock, stopped = threading.Lock(), threading.Event()

    def stop() -> None:
        assert lock.acquire(timeout=10), "it waits for the thread that it has interrupted"
        lock.release()
        stopped.set()

    before = signal.getsignal(number)
    with stop_on_signals(stop):
        with lock:
            os.kill(os.getpid(), number)
            assert not stopped.wait(0.2)
        assert stopped.wait(10)
    assert signal.getsignal(number) is before


def test_a_thread_without_signals_leaves_them_alone() -> None:
    found = []
    before = signal.getsignal(signal.SIGTERM)

    def run() -> None:
        with stop_on_signals(lambda: None):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [before]
