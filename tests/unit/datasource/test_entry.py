"""The module by which Spark finds ``format("seamark")``: it is imported in every session that has a
Python data source, so nothing that may be missing is imported with it."""

from __future__ import annotations

import subprocess
import sys


def test_the_name_alone_imports_nothing_of_ours() -> None:
    program = "import sys, pyspark_seamark; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    modules = done.stdout.split()
    assert "pyspark_seamark" in modules
    assert not [name for name in modules if name.startswith(("seamark", "pyarrow"))]
