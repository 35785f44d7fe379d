"""Findings: each code has its section in docs/findings.md, and a message names all of it."""

from __future__ import annotations

import pickle
from pathlib import Path

from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode

PAGE = Path(__file__).parents[3] / "docs/findings.md"


def test_every_code_is_documented_as_a_rule() -> None:
    _, *sections = PAGE.read_text().split("\n## ")
    assert [section.splitlines()[0] for section in sections] == [
        f"{code.name} {code.value}" for code in FindingCode
    ]
    for section in sections:
        for part in ("What", "Why", "Example", "Remedy"):
            assert f"**{part}.**" in section


def test_an_error_says_its_finding_with_its_code() -> None:
    finding = Finding(FindingCode.PG001, "sink `orders`", "the limit is 0", "raise it")
    error = PreflightError(finding)
    assert error.finding is finding
    assert str(error).startswith("sink `orders`: the limit is 0; raise it (PG001, ")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert PreflightError("no server").finding is None
