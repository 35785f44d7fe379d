"""A reader that ends before it is told to: what it would have seen, nobody has. How: real threads
over a query that fails in them alone."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seamark.verify.history import UNKNOWN
from seamark.verify.outcome import Outcome
from seamark.verify.readers import WatchedTable
from seamark.verify.trial import ROWS, Trial, Workload
from seamark.verify.workloads import numbered_by

NOTHING = np.zeros(0, np.int64), np.zeros(0, np.int64)


def test_a_value_without_a_number_is_a_phantom_and_ends_no_reader() -> None:
    number = numbered_by("id")
    for value in (b'{"id": 1e999}', b"Infinity", b"NaN", b"[]", b"\xff", b"", b'{"n": 1}'):
        assert number(b"", value) == (UNKNOWN, 1)
    assert number(b"", b'{"id": 7}') == (7, 1)


def test_a_run_whose_reader_has_failed_is_not_good(tmp_path: Path) -> None:
    asked = threading.Event()

    def query() -> Any:
        if threading.current_thread() is threading.main_thread():
            return NOTHING
        asked.set()
        raise ValueError("no number")

    sink = WatchedTable("table", ROWS, query)
    workload = Workload(
        "job", [], tmp_path / "job", "127.0.0.1:9", "topic", lambda n: ("", ""), [sink], []
    )
    outcome = Outcome("job", 1, "seamark verify", time.time())
    systems: Any = SimpleNamespace(storage=tmp_path / "storage")
    trial = Trial(workload, systems, outcome, lambda line: None)
    sink.follow(trial._take)
    assert asked.wait(60)
    trial._judge()
    assert not outcome.good
    assert "table: a reader has failed: ValueError('no number')" in outcome.failures


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is no glibc")
def test_threads_share_what_they_free() -> None:
    """Arenas of threads that have ended kept 800 MB of an hour's run."""

    def arenas(first: str) -> int:
        program = (
            "import ctypes, threading, sys\n"
            "from seamark.verify.readers import share_memory\n"
            f"{first}\n"
            "libc = ctypes.CDLL(None)\n"
            "libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]\n"
            "barrier = threading.Barrier(8)\n"
            "def work():\n"
            "    barrier.wait(); libc.malloc(100_000); barrier.wait()\n"
            "threads = [threading.Thread(target=work) for _ in range(8)]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]\n"
            "libc.fdopen.restype = ctypes.c_void_p\n"
            "file = ctypes.c_void_p(libc.fdopen(1, b'w'))\n"
            "libc.malloc_info(0, file); libc.fflush(file)\n"
        )
        told = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        return told.stdout.count("<heap nr=")

    assert arenas("") > 2
    assert arenas("share_memory()") == 2
