"""The table of `core.py`: each name in it is a test's, and the line at the end of `make test`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.core import CORE, EVERY_SPARK, is_core, what_is_left


@pytest.mark.parametrize("name", [*CORE, *EVERY_SPARK])
def test_what_is_named_is_there(name: str) -> None:
    path, _, test = name.partition("::")
    text = (Path(__file__).parent / path).read_text()
    assert not test or f"def {test}(" in text or f"class {test}(" in text


def test_a_name_stands_for_all_below_it_and_for_nothing_else() -> None:
    assert is_core("tests/unit/test_jars.py::test_a")
    assert is_core("tests/integration/jobs/test_two_sinks.py::test_a")
    assert is_core("tests/conformance/test_files.py::TestFiles::test_a[parquet]")
    assert not is_core("tests/conformance/test_files.py::TestFilesElsewhere::test_a[s3]")
    assert not is_core("tests/integration/jobs/test_restarts.py::test_away")
    assert not is_core("tests/spark/test_new.py::test_a")


def test_the_last_line_says_what_is_left_out() -> None:
    line = what_is_left(Counter({"spark": 3, "integration": 20}))
    assert "`make test-all` adds 23 tests (20 in integration, 3 in spark)" in line


def test_a_run_without_the_rest_ends_with_that_line(pytestconfig: pytest.Config) -> None:
    command = ["-m", "pytest", "-q", "-m", "not chaos and not full", "-p", "no:cacheprovider"]
    for workers in (["-p", "no:xdist"], ["-n", "2"]):
        done = subprocess.run(
            [sys.executable, *command, *workers, "tests/docs/test_alerts.py", "tests/servers"],
            cwd=pytestconfig.rootpath, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        line = done.stdout.splitlines()[-1]
        assert re.match(r"`make test-all` adds \d+ tests \(\d+ in docs\)", line), done.stdout
