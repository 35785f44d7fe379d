"""How: real signals to this process, while its main thread holds a lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from seamark.run.stop_signals import stop_on_signals


@pytest.fixture
def hangup() -> Iterator[None]:
    """As outside of nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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


@pytest.mark.usefixtures("hangup")
def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_on_signals(lambda: None):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


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


FORKING = """
import multiprocessing
import time
from seamark.run.stop_signals import stop_on_signals

def work():
    begun.set()  # Python forgets a signal that comes while it forks
    while True:  # and a sleep that begins after it is not cut short
        time.sleep(0.1)

stopped, forks = [], multiprocessing.get_context("fork")
begun = forks.Event()
with stop_on_signals(lambda: stopped.append(True)):
    child = forks.Process(target=work)
    child.start()
    begun.wait()
    child.terminate()
    child.join(30)
    print(child.exitcode, stopped)
    child.kill()
"""


def test_a_process_that_the_program_forks_ends_as_it_would_without_a_job() -> None:
    """`multiprocessing.Pool` ends its processes by SIGTERM, and waits for them."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == [str(-signal.SIGTERM), "[]"]


PROGRAM = """
import threading
from seamark.run.stop_signals import program_has_ended
looked = threading.Event()

def work():
    main.join()
    looked.wait(60)

def watch():
    found = [program_has_ended()]
    main.join()
    found.append(program_has_ended())
    looked.set()
    worker.join()
    found.append(program_has_ended())
    print(found)

main, worker = threading.main_thread(), threading.Thread(target=work)
threading.Thread(target=threading.Event().wait, daemon=True).start()
worker.start()
threading.Thread(target=watch, name="seamark-watch").start()
"""


def test_a_program_has_ended_with_its_last_thread_that_python_waits_for() -> None:
    """A daemon, and a thread of Seamark's, are none of them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["[False,", "False,", "True]"]
