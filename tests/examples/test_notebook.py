"""The notebook, run as Jupyter runs it. Its pictures are looked at as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seamark.spark.spark_versions import HAS_READ_LIMITS
from tests.examples.example import EXAMPLES, Example

BY_NBCLIENT = """
import nbclient, nbformat
notebook = nbformat.read("kills.ipynb", 4)
nbclient.NotebookClient(notebook, timeout=600).execute()
nbformat.write(notebook, "done.ipynb")
"""


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="DatagenSource needs Spark 4.2")
def test_notebook(example: Callable[..., Example]) -> None:
    here = example("notebook")
    done = here.run("python", "-c", BY_NBCLIENT)
    assert done.returncode == 0, done.stderr + here.said("driver.log")
    rows, checkpoints = pictures(here.directory / "done.ipynb")
    assert rows.count("kill -9 at") == 2
    assert rows.count(" V ") >= 4 + 2, "fewer steps than epochs"
    assert checkpoints.count("<rect") >= 1 + 3  # a killed driver leaves none of its last epoch


def test_the_notebook_is_kept_with_its_pictures() -> None:
    rows, checkpoints = pictures(EXAMPLES / "notebook/kills.ipynb")
    assert rows.startswith("<svg")
    assert checkpoints.startswith("<svg")


def pictures(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    found = [output["data"].get("image/svg+xml") for output in outputs if "data" in output]
    return ["".join(svg) for svg in found if svg]
