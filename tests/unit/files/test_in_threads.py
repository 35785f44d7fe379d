"""Calls at once, also when the program ends: its own threads go on, and new ones cannot begin."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading

from seamark.files import in_threads


def late():
    threading.main_thread().join()
    print(in_threads(lambda n: n + 1, [1, 2, 3], 16))


threading.Thread(target=late).start()
"""


def test_calls_after_the_programs_end() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[2, 3, 4]\n", "")
