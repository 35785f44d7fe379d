"""How: a program stands where Spark's tasks are to find their Python."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.model.errors import ConfigurationError
from seamark.spark import session


@pytest.mark.parametrize(
    ("program", "says"),
    [("\0no program", "Exec format error"), ("#!/bin/sh\nexec sleep 600\n", "timed out")],
)
def test_a_python_of_the_tasks_that_does_not_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, says: str
) -> None:
    monkeypatch.setattr(session, "PYTHON_ANSWERS_S", 1.0, raising=False)
    python = tmp_path / "python"
    python.write_text(program)
    python.chmod(0o755)
    context = SimpleNamespace(pythonExec=str(python), master="local[1]")
    spark: Any = SimpleNamespace(sparkContext=context)
    with pytest.raises(
        ConfigurationError, match=rf"Spark's tasks run .*{says}.*Set PYSPARK_PYTHON"
    ):
        session.require_tasks_python(spark)
