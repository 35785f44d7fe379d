"""`seamark init` with a wrong name. What it makes is run in `tests/newcomer`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SEAMARK = Path(sys.executable).with_name("seamark")


def init(directory: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SEAMARK, "init", name], cwd=directory, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [("used", "is not empty"), ("no such name!", "seamark init: NAME"), ("file", "cannot be made")],
)
def test_a_wrong_name_is_one_line(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "app.py").write_text("mine")
    (tmp_path / "file").write_text("mine")
    done = init(tmp_path, name)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "used" / "app.py").read_text() == "mine"
    assert not (tmp_path / "no such name!").exists()
