"""`seamark run` with a real job: a process of its own, with Spark, ended by SIGTERM.

The program asks for an epoch every two hours and `seamark.toml` for one an hour: only the command
line's interval gives several within this test.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import sys
import seamark as sm

job = sm.Job("j", sm.CheckpointConfig(interval="2h"))
rows = job.source(sm.DatagenSource(rows_per_second=100), uid="rows")
job.sink(rows.select("row"), sm.FileSink(sys.argv[1], format="json"), uid="out")
if __name__ == "__main__":
    print(job.config(), flush=True)
    job.run()
"""
FILE = """
[checkpoint]
interval = "1h"
storage = "store"
"""


def committed(directory: Path) -> int:
    return len(list(directory.glob("store/j/epochs/*/committed.json")))


def test_the_command_lines_interval_holds_and_sigterm_ends_the_job_cleanly(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "seamark.toml").write_text(FILE)
    command = [sys.executable, "-m", "seamark.cli.main", "run", "-D", "checkpoint.interval=200ms"]
    output = tmp_path / "output.txt"
    with (
        output.open("w") as log,
        subprocess.Popen(
            [*command, "app.py", "out"],
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if not k.startswith("SEAMARK_")},
        ) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while committed(tmp_path) < 3 and time.monotonic() < deadline:
                assert process.poll() is None, output.read_text()
                time.sleep(0.05)
            assert committed(tmp_path) >= 3, output.read_text()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, output.read_text()
        finally:
            process.kill()
    lines = [line.split() for line in output.read_text().splitlines()]
    assert ["checkpoint.interval", "200ms", "command", "line"] in lines
    storage = ["checkpoint.storage", f"file://{tmp_path}/store", f"{tmp_path}/seamark.toml"]
    assert storage in lines
    prepared = {path.parent.name for path in tmp_path.glob("store/j/epochs/*/prepared.*")}
    done = {path.parent.name for path in tmp_path.glob("store/j/epochs/*/committed.json")}
    assert prepared == done  # the epoch under way at SIGTERM was settled
