"""Findings: each code has its section in docs/findings.md, and a message names all of it."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode, Severity, errors, heaviest_first

PAGE = Path(__file__).parents[3] / "docs/findings.md"


def test_every_code_is_documented_as_a_rule() -> None:
    _, *sections = PAGE.read_text().split("\n## ")
    assert [section.splitlines()[0] for section in sections] == [
        f"{code.name} {code.title}" for code in FindingCode
    ]
    assert len({code.title for code in FindingCode}) == len(FindingCode)
    for code, section in zip(FindingCode, sections, strict=True):
        assert re.search(rf"\b{code.severity.value}\b", section.lower()), code
        for part in ("What", "Why", "Example", "Remedy"):
            assert f"**{part}.**" in section


def test_an_error_says_its_finding_with_its_code() -> None:
    finding = Finding(FindingCode.PG001, "sink `orders`", "the limit is 0", "raise it")
    error = PreflightError(finding)
    assert error.finding is finding
    assert str(error).startswith("sink `orders`: the limit is 0; raise it (PG001, ")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert PreflightError("no server").finding is None


def test_a_finding_is_read_as_it_was_stored() -> None:
    finding = Finding(FindingCode.KF002, "sink `out`", "it is held", "wait", Severity.ERROR)
    assert Finding.from_json(finding.to_json()) == finding
    usual = Finding(FindingCode.KF002, "sink `out`", "it is held", "wait")
    assert Finding.from_json(usual.to_json()).weight is usual.weight is Severity.WARNING


def test_the_heaviest_come_first_and_each_once() -> None:
    note = Finding(FindingCode.ST003, "a", "f", "r")
    error, warning = (
        Finding(FindingCode.SC001, "a", "f", "r", weight)
        for weight in (Severity.ERROR, Severity.WARNING)
    )
    assert heaviest_first([note, warning, error, note]) == (error, warning, note)
    assert errors([note, warning, error]) == [error]
