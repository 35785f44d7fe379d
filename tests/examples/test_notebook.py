"""The notebook: its cells one after another in a Python of their own, by nbclient where it is
installed. Its pictures are looked at as text."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from seamark.runtime.spark_versions import HAS_READ_LIMITS
from tests.examples.example import EXAMPLES, Example

BY_NBCLIENT = """
import nbclient, nbformat
notebook = nbformat.read("kills.ipynb", 4)
nbclient.NotebookClient(notebook, timeout=600).execute()
nbformat.write(notebook, "done.ipynb")
"""
BY_HAND = """
import ast, json
from pathlib import Path
notebook, names = json.loads(Path("kills.ipynb").read_text()), {}
for cell in (c for c in notebook["cells"] if c["cell_type"] == "code"):
    tree, cell["outputs"] = ast.parse("".join(cell["source"])), []
    shown = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if shown is not None:
        value = eval(compile(ast.Expression(shown.value), "cell", "eval"), names)
        if hasattr(value, "_repr_svg_"):
            cell["outputs"] = [{"data": {"image/svg+xml": value._repr_svg_()}}]
Path("done.ipynb").write_text(json.dumps(notebook))
"""


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="DatagenSource needs Spark 4.2")
def test_notebook(example: Callable[..., Example]) -> None:
    here = example("notebook")
    with_nbclient = all(map(importlib.util.find_spec, ("nbclient", "ipykernel")))
    done = here.run("python", "-c", BY_NBCLIENT if with_nbclient else BY_HAND)
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
