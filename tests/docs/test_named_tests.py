"""Every test that `docs/verification.md` names for a claim of the users' pages is there, under this
name.

In backticks: ``tests/a/test_b.py``, ``test_b.py: test_c``, ``test_c``, ``test_c…``.
"""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).parents[2]
FUNCTIONS = {
    (path.name, name)
    for path in REPO.glob("tests/**/test_*.py")
    for name in re.findall(r"^\s*def (test_\w+)", path.read_text(), re.MULTILINE)
}
NAMED = re.compile(r"(?:(?P<file>[\w/]+\.py)(?:: )?)?(?P<test>test_\w+(?:…\w*)?…?)?(?:\[\w+\])?")


def is_there(file: str | None, test: str | None) -> bool:
    if file is not None and "/" in file and not (REPO / file).exists():
        return False
    pattern = re.compile(re.escape(test or "").replace("…", r"\w*") or r"\w+")
    name = None if file is None else file.rsplit("/", 1)[-1]
    return any(name in (None, f) and pattern.fullmatch(t) for f, t in FUNCTIONS)


def test_each_test_that_is_named_for_a_claim_is_there() -> None:
    page = (REPO / "docs/verification.md").read_text()
    text = page.split("\n## Claims of the users' pages\n")[1].replace("\n", " ")
    quoted = [q for q in re.findall(r"`([^`]+)`", text) if "test_" in q]
    named = [(q, found) for q in quoted if (found := NAMED.fullmatch(q))]
    assert len(named) == len(quoted), {*quoted} - {q for q, _ in named}
    assert len(named) > 30
    assert [q for q, found in named if not is_there(found["file"], found["test"])] == []
