"""Each message that docs/troubleshooting.md quotes is one of Seamark's texts; `…` stands for what
differs. Spark's own are marked so on the page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
PAGE = (REPO / "docs/troubleshooting.md").read_text()
ROW = re.compile(r"^\| (`.*?) \| ", re.MULTILINE)


def messages() -> list[str]:
    rows = [cell for cell in ROW.findall(PAGE) if "(Spark's)" not in cell]
    return [message for cell in rows for message in re.findall("`([^`]+)`", cell)]


def texts() -> list[str]:
    """Return every text in `src`; what an f-string takes in is `…`."""
    found = []
    for file in (REPO / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def is_in(message: str, text: str) -> bool:
    return re.search(".*?".join(map(re.escape, message.split("…"))), text, re.DOTALL) is not None


@pytest.fixture(scope="module")
def ours() -> list[str]:
    return texts()


@pytest.mark.parametrize("message", messages())
def test_each_message_is_one_of_ours(message: str, ours: list[str]) -> None:
    assert any(is_in(message, text) for text in ours)


def test_a_message_of_nobody_would_be_found(ours: list[str]) -> None:
    assert len(messages()) > 50
    assert not any(is_in("the moon is … tonight", text) for text in ours)
