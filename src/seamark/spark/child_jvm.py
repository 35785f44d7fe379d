"""Runs a Java program as a child that never outlives this process, however this process ends.

Used for the brokers (`dev/kafka.py`) and for Ivy (`jars.py`). An orphan of either would go on
writing into a directory while a later process believes the directory to be its own.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

# The shell becomes the JVM (same process id), after forking a watcher. The watcher reads from a
# pipe; only our process holds the other end. However we die, the pipe then ends and the watcher
# kills the JVM. A line in the pipe ends the watcher without a kill. (PR_SET_PDEATHSIG would fire
# when the *thread* that started the JVM ends, and its preexec_fn is not safe in a process with
# threads.)
_DIES_WITH_US = (
    'exec 3<&0 </dev/null; { read -r _ <&3 || kill -KILL $$; } >/dev/null 2>&1 & exec "$@" 3<&-'
)


def start_jvm(
    java: Path,
    arguments: Sequence[str],
    output: IO[bytes],
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `java` with `arguments`; both its output streams go to the file `output`. `environment`
    adds to ours.

    The process has a session of its own, so a Ctrl-C in the terminal reaches the caller alone; the
    caller then ends the child. Call `release` once the child has ended.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _DIES_WITH_US, "sh", str(java), *arguments],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )


def release(process: subprocess.Popen[bytes]) -> None:
    """Let the watcher of an ended JVM go, or it could kill a later process of the same id."""
    if process.stdin is not None and not process.stdin.closed:
        with suppress(BrokenPipeError):  # the watcher is gone too
            process.stdin.write(b"\n")
            process.stdin.flush()
        with suppress(BrokenPipeError):
            process.stdin.close()
