"""A job's processes, as `seamark.verify.driver` starts them; here with the tests' own modules and
the archive of Spark's classes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seamark.verify.driver import MARK, DriverProcess, kill_marked, marked, wait_until
from tests.class_archive import JAVA_OPTIONS

REPOSITORY = Path(__file__).resolve().parents[2]

__all__ = ["MARK", "REPOSITORY", "Driver", "kill_marked", "marked", "spark_submit", "wait_until"]


def spark_submit(*arguments: str) -> list[str]:
    """Return a `launcher`: the spark-submit beside this Python, as in a user's environment."""
    return [str(Path(sys.executable).with_name("spark-submit")), *arguments]


class Driver(DriverProcess):
    """One run of one program of the tests; `options` are its argument, as JSON."""

    def __init__(
        self,
        program: Path,
        options: Mapping[str, Any],
        log: Path,
        failpoint: str | None = None,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (sys.executable,),
    ) -> None:
        variables = {
            # The tests too: a sink of theirs must be found in Spark's workers as well.
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
            "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
            **(environment or {}),
        }
        command = [*launcher, str(program), json.dumps(options)]
        super().__init__(command, log, failpoint, variables)
