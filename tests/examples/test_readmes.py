"""Each example has a short README, is in the table of `examples/README.md`, and has a test."""

from __future__ import annotations

from pathlib import Path

from tests.docs.test_shell_lines import commands_of, fault
from tests.examples.example import EXAMPLES

NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


def test_each_example_is_listed_and_tested() -> None:
    table = (EXAMPLES / "README.md").read_text()
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    others = {"pipeline"}  # tests/integration/data_source/test_kills.py has it
    for name in NAMES:
        assert f"]({name}/" in table, name
        assert name in others or f'"{name}"' in tests, name


def test_each_readme_is_short_and_its_commands_are_there() -> None:
    for name in NAMES:
        text = (EXAMPLES / name / "README.md").read_text()
        assert len(text.splitlines()) <= 30, name
        assert [said for each in commands_of(text) if (said := fault(*each))] == [], name
