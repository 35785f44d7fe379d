"""Every file named by a docstring is there: ``store.py`` somewhere in the repository,
``checkpoint/store.py`` and ``docs/adr/0003-seal.md`` at that place. The product has one name."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).parents[2]
PACKAGE = REPO / "src/seamark"
FILES = [p for d in ("src", "tests", "docs", "benchmarks") for p in REPO.glob(f"{d}/**/*.*")]
NAMED = re.compile(r"[\w./-]*\w\.(?:py|md|yml)\b")
PLACEHOLDERS = {"tests/a/test_b.py", "test_b.py"}


def docstrings(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def test_each_file_that_a_docstring_names_is_there() -> None:
    names = {file.name for file in FILES} | PLACEHOLDERS
    missing, found = set(), 0
    for file in (f for f in FILES if f.suffix == ".py"):
        for name in (n for text in docstrings(file) for n in NAMED.findall(text)):
            found += 1
            at = (REPO, PACKAGE, *file.parents)
            if name not in names and not any((place / name).is_file() for place in at):
                missing.add((str(file.relative_to(REPO)), name))
    assert found > 100
    assert missing == set()


def test_the_products_first_name_is_nowhere() -> None:
    """Another distribution on PyPI, and a command of it, have this name."""
    first = "tide" + "mark"
    search = ["git", "grep", "--ignore-case", "--untracked", "--files-with-matches", "-e"]
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=REPO, text=True, stdout=subprocess.PIPE, check=True
    ).stdout
    assert len(tracked) > 1000 and first not in tracked.lower()
    assert (
        subprocess.run([*search, first], cwd=REPO, text=True, stdout=subprocess.PIPE).stdout == ""
    )
    assert (
        subprocess.run([*search, "seamark"], cwd=REPO, text=True, stdout=subprocess.PIPE).stdout
        != ""
    )


def test_nobody_is_told_to_install_somebody_elses_package() -> None:
    """The bare name on PyPI is another program."""
    bare = r"(pip|uv|pipx|conda) [^\n]*[ '\"]seamark($|[][ '\"`=<>~])|[ '\"`]seamark\[[a-z]"
    search = ["git", "grep", "--untracked", "-nE", "-e", bare, "--", ":!docs/adr"]
    assert subprocess.run(search, cwd=REPO, text=True, stdout=subprocess.PIPE).stdout == ""
    asked = [*search[:5], r"pip install [^\n]*'pyspark-seamark\["]
    assert subprocess.run(asked, cwd=REPO, stdout=subprocess.PIPE).stdout != b""


def test_the_same_pandas_is_asked_for_everywhere() -> None:
    """Below 3: there PySpark's own functions in pandas fail at a struct with a text."""
    search = ["git", "grep", "--untracked", "-hoE", r"pandas ?>=[0-9.,<]+", "--", ":!tests"]
    found = subprocess.run(search, cwd=REPO, text=True, stdout=subprocess.PIPE).stdout
    assert set(found.replace(" ", "").split()) == {"pandas>=2.2,<3"}
